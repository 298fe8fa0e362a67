package web

import (
	"net/http"
	"strings"

	"github.com/gorilla/mux"

	"getwork/assign"
)

// api adds the routes under /api/v1, each with the roles that may call it. It uses no subrouter, because with one mux
// forgets a method that did not match, and answers 404 instead of 405.
func (s *server) api(m *mux.Router) {
	const api = "/api/v1"
	route := func(method, path string, h handler, may ...Role) {
		methods := []string{method}
		if method == "GET" {
			methods = append(methods, "HEAD")
		}
		m.Handle(api+path, s.allow(h, may...)).Methods(methods...)
	}
	everybody := roles
	works := []Role{Worker, Agent, Manager}
	route("GET", "/me", s.whoAmI, everybody...)
	route("GET", "/tasks", s.listTasks, everybody...)
	route("POST", "/tasks", s.createTask, Manager)
	route("GET", "/tasks/{task}", s.showTask, everybody...)
	route("PATCH", "/tasks/{task}", s.updateTask, Manager)
	route("DELETE", "/tasks/{task}", s.deleteTask, Manager)
	route("POST", "/tasks/{task}/requests", s.getWork, works...)
	route("GET", "/tasks/{task}/runs", packed(s.listRuns), Observer, Manager)
	route("POST", "/tasks/{task}/preview", s.preview, Manager)
	route("POST", "/preview", s.previewNew, Manager)
	route("GET", "/tasks/{task}/versions", packed(s.listVersions), Manager)
	route("POST", "/tasks/{task}/versions/{n}/restore", s.restoreVersion, Manager)
	route("POST", "/tasks/{task}/items", s.pushItems, Agent, Manager)
	route("GET", "/tasks/{task}/items/{item}", s.explain, Manager)
	route("POST", "/tasks/{task}/items/{item}/claim", s.claim, works...)
	route("POST", "/tasks/{task}/redrive", s.redrive, Manager)
	route("GET", "/requests", packed(s.listRequests), Observer, Manager)
	route("GET", "/requests/{id}", s.showRequest, works...)
	route("DELETE", "/requests/{id}", s.cancelRequest, works...)
	route("GET", "/pipeline", s.pipeline, works...)
	route("GET", "/work", packed(s.listWork), Observer, Manager)
	route("GET", "/holders", packed(s.listHolders), Observer, Manager)
	route("POST", "/work/{id}/disposition", s.dispose, works...)
	route("POST", "/work/{id}/extend", s.extend, works...)
	route("POST", "/work/{id}/reassign", s.reassign, Manager)
	route("POST", "/work/release", s.release, Manager)
	route("GET", "/history", packed(s.history), Observer, Manager)
	route("GET", "/returns", packed(s.returns), Observer, Manager)
	m.Handle(api+"/events", s.allow(s.events, everybody...)).Methods("GET")
	m.Handle(api+"/ws", s.allow(func(w http.ResponseWriter, r *http.Request) error {
		if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
			return assign.Refuse(assign.Invalid, "this address speaks WebSocket, subprotocol getwork.v1; /api/v1/events has the same over plain HTTP")
		}
		s.Socket.ServeHTTP(w, r)
		return nil
	}, everybody...)).Methods("GET")
}
