// Package web is getwork's REST API, its event stream, and its page.
//
// It identifies callers (identity.go) and renders answers and errors (problem.go); package assign/engine decides what
// happens. Middleware is wrapped around the router, because gorilla/mux skips its own on 404 and 405.
package web
