// Package identity says who sends a request, in production: by a token, a session's cookie, a JSON web token, or what a proxy
// says. One credential counts for each request; one that is no good is refused, and no other is tried in its place.
package identity
