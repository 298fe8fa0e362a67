// Package web is getwork's REST API, its event stream, and its page.
//
// It knows who asks (identity.go) and what the contract makes of answers and errors (problem.go); what happens is
// decided in package assign. Middleware stands around the router, since gorilla/mux skips its own on 404 and 405.
package web
