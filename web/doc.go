// Package web is getwork's REST API, its event stream, and its page.
//
// Package web/identity finds out who sends a request; under --auth dev identity.go does. This package renders answers and errors
// (problem.go); packages assign/engine, assign/manage and assign/explain decide what happens. Middleware is wrapped around the
// router, because gorilla/mux skips its own on 404 and 405.
package web
