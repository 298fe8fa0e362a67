package web

import (
	"net/http"
	"strings"

	"github.com/gorilla/mux"

	"getwork/assign"
	"getwork/assign/rights"
)

// api adds the routes under /api/v1, each with the scope and the roles that may call it. It uses no subrouter, because with
// one mux forgets a method that did not match, and answers 404 instead of 405.
func (s *server) api(m *mux.Router) {
	const api = "/api/v1"
	s.rules = map[string]operation{}
	add := func(method, path string, o operation, h handler) {
		methods := []string{method}
		if method == "GET" && path != "/events" && path != "/ws" { // a live channel without its events is nothing
			methods = append(methods, "HEAD")
		}
		if o.tasks == outside && strings.Contains(path, "{task}") {
			o.tasks = inPath
		}
		s.rules[method+" "+api+path] = o
		m.Handle(api+path, s.permit(h, o)).Methods(methods...)
	}
	const read, work, push, manage = rights.ScopeRead, rights.ScopeWork, rights.ScopePush, rights.ScopeManage
	route := func(method, path, scope string, tasks within, h handler, may ...Role) {
		add(method, path, operation{scope: scope, tasks: tasks, roles: may}, h)
	}
	all, works := assign.Roles, []Role{Worker, Agent, Manager}
	// counts adds what a screen on a wall may read, too.
	counts := func(path string, tasks within, h handler, may ...Role) {
		add("GET", path, operation{scope: read, tasks: tasks, roles: may, wall: true}, h)
	}
	counts("/me", narrowed, s.whoAmI)
	counts("/tasks", narrowed, s.listTasks, all...)
	route("POST", "/tasks", manage, outside, s.createTask, Manager)
	counts("/tasks/{task}", inPath, s.showTask, all...)
	route("PATCH", "/tasks/{task}", manage, inPath, s.updateTask, Manager)
	route("DELETE", "/tasks/{task}", manage, inPath, s.deleteTask, Manager)
	route("POST", "/tasks/{task}/requests", work, inPath, s.getWork, works...)
	route("GET", "/tasks/{task}/runs", read, inPath, packed(s.listRuns), Observer, Manager)
	route("POST", "/tasks/{task}/preview", manage, inPath, s.preview, Manager)
	route("POST", "/preview", manage, outside, s.previewNew, Manager)
	route("GET", "/schema", manage, outside, packed(s.showSchema), Manager)
	route("GET", "/tasks/{task}/versions", read, inPath, packed(s.listVersions), Manager)
	route("GET", "/tasks/{task}/log", read, inPath, packed(s.listTaskLog), Observer, Manager)
	route("POST", "/tasks/{task}/versions/{n}/restore", manage, inPath, s.restoreVersion, Manager)
	route("POST", "/tasks/{task}/items", push, inPath, s.pushItems, Agent, Manager)
	route("GET", "/tasks/{task}/items/{item}", read, inPath, s.explain, Manager)
	route("POST", "/tasks/{task}/items/{item}/claim", work, inPath, s.claim, works...)
	route("POST", "/tasks/{task}/redrive", manage, inPath, s.redrive, Manager)
	route("GET", "/requests", read, asked, packed(s.listRequests), Observer, Manager)
	route("GET", "/requests/{id}", read, ofRequest, s.showRequest, works...)
	route("DELETE", "/requests/{id}", work, ofRequest, s.cancelRequest, works...)
	route("GET", "/pipeline", read, narrowed, s.pipeline, works...)
	route("GET", "/work", read, asked, packed(s.listWork), Observer, Manager)
	route("GET", "/work/{id}", read, ofWork, s.showWork, all...)
	route("GET", "/holders", read, asked, packed(s.listHolders), Observer, Manager)
	route("POST", "/work/{id}/disposition", work, ofWork, s.dispose, works...)
	route("POST", "/work/{id}/extend", work, ofWork, s.extend, works...)
	route("POST", "/work/{id}/reassign", manage, ofWork, s.reassign, Manager)
	route("POST", "/work/release", manage, narrowed, s.release, Manager)
	counts("/history", asked, packed(s.history), Observer, Manager)
	route("GET", "/returns", read, asked, packed(s.returns), Observer, Manager)
	hooks := webhooks{s}
	known := func(method, path, scope string, tasks within, h handler) { route(method, path, scope, tasks, h) } // the handler says who may
	known("GET", "/webhooks", read, asked, packed(hooks.listWebhooks))
	known("POST", "/webhooks", manage, outside, hooks.createWebhook)
	known("DELETE", "/webhooks/{id}", manage, outside, withHook(hooks.deleteWebhook))
	known("POST", "/webhooks/{id}/test", manage, outside, withHook(hooks.testWebhook))
	known("POST", "/webhooks/{id}/rotate", manage, outside, withHook(hooks.rotateWebhook))
	known("GET", "/webhooks/{id}/deliveries", read, outside, packed(withHook(hooks.listDeliveries)))
	known("POST", "/webhooks/{id}/redrive", manage, outside, withHook(hooks.redriveWebhook))
	counts("/events", narrowed, s.events, all...)
	counts("/ws", narrowed, s.socket, all...)
	p := people{s}
	// own adds what everybody who logs in may do with their own sessions and tokens. The handlers let administrators name others.
	own := func(method, path, scope string, tasks within, h handler) {
		route(method, path, scope, tasks, p.withRights(h))
	}
	own("POST", "/me/active", read, narrowed, p.active)
	own("GET", "/tokens", read, outside, p.listTokens)
	own("POST", "/tokens", manage, outside, p.createToken)
	own("DELETE", "/tokens/{id}", manage, outside, p.endToken)
	own("GET", "/sessions", read, outside, p.listSessions)
	own("DELETE", "/sessions", manage, outside, p.endSessions)
	own("DELETE", "/sessions/{id}", manage, outside, p.endSession)
	admins := func(method, path, scope string, h handler) {
		add(method, path, operation{scope: scope, admin: true}, p.withRights(h))
	}
	admins("GET", "/users", read, p.listUsers)
	admins("PATCH", "/users/{name}", manage, p.changeUser)
	admins("POST", "/users/{name}/rebind", manage, p.rebindUser)
	admins("POST", "/walls", manage, p.createWall)
	add("GET", "/audit", operation{scope: read, admin: true}, packed(s.listAudit))
}

// socket passes a WebSocket's handshake on.
func (s *server) socket(w http.ResponseWriter, r *http.Request) error {
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		return assign.Refuse(assign.Invalid, "this address speaks WebSocket, subprotocol getwork.v1; /api/v1/events has the same over plain HTTP")
	}
	s.Socket.ServeHTTP(w, r)
	return nil
}
