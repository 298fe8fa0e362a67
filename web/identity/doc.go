// Package identity says who sends a request, in production: by a token, a session's cookie, a JSON web token, or what a proxy
// says. One credential of each request counts. If it is invalid, the request is refused, and no other is tried.
package identity
