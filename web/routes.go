package web

import (
	"net/http"
	"slices"
	"strings"

	"github.com/gorilla/mux"

	"getwork/assign"
	"getwork/assign/records"
	"getwork/assign/rights"
)

// api adds the routes under /api/v1, each with the scope and the roles that may call it. It uses no subrouter, because with
// one mux forgets a method that did not match, and answers 404 instead of 405.
func (s *server) api(m *mux.Router) {
	const api = "/api/v1"
	s.rules = map[string]operation{}
	described := queryParameters()
	add := func(method, path string, o operation, h handler) {
		methods := []string{method}
		if method == "GET" && path != "/events" && path != "/ws" { // a live channel without its events is nothing
			methods = append(methods, "HEAD")
		}
		if o.tasks == outside && strings.Contains(path, "{task}") {
			o.tasks = inPath
		}
		o.parameters = described[method+" "+api+path]
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
	counts("/tasks", narrowed, packed(s.listTasks), all...)
	route("POST", "/tasks", manage, outside, s.createTask, Manager)
	counts("/tasks/{task}", inPath, withTask(s.showTask), all...)
	route("PATCH", "/tasks/{task}", manage, inPath, withTask(s.updateTask), Manager)
	route("DELETE", "/tasks/{task}", manage, inPath, withTask(s.deleteTask), Manager)
	route("POST", "/tasks/{task}/requests", work, inPath, withTask(s.getWork), works...)
	route("GET", "/tasks/{task}/runs", read, inPath, packed(s.listRuns), Observer, Manager)
	route("POST", "/tasks/{task}/preview", manage, inPath, withTask(s.preview), Manager)
	route("POST", "/tasks/{task}/compare", manage, inPath, withTask(s.compare), Manager)
	route("POST", "/preview", manage, outside, s.previewNew, Manager)
	route("GET", "/schema", manage, outside, packed(s.showSchema), Manager)
	route("GET", "/tasks/{task}/versions", read, inPath, packed(s.listVersions), Manager)
	route("GET", "/tasks/{task}/log", read, inPath, packed(s.listTaskLog), Observer, Manager)
	route("POST", "/tasks/{task}/versions/{n}/restore", manage, inPath, withTask(s.restoreVersion), Manager)
	route("POST", "/tasks/{task}/items", push, inPath, withTask(s.pushItems), Agent, Manager)
	route("GET", "/tasks/{task}/items/{item}", read, inPath, s.explain, Manager)
	route("POST", "/tasks/{task}/items/{item}/claim", work, inPath, s.claim, works...)
	route("POST", "/tasks/{task}/redrive", manage, inPath, withTask(s.redrive), Manager)
	route("POST", "/requests", work, narrowed, s.getNext, works...)
	route("GET", "/requests", read, asked, packed(s.listRequests), Observer, Manager)
	route("GET", "/requests/{id}", read, ofRequest, s.showRequest, works...)
	route("DELETE", "/requests/{id}", work, ofRequest, s.cancelRequest, works...)
	route("GET", "/pipeline", read, narrowed, s.pipeline, works...)
	route("GET", "/alerts", read, narrowed, packed(s.alerts), Observer, Manager)
	route("GET", "/day", read, narrowed, packed(s.day), works...)
	route("GET", "/work", read, asked, packed(s.listWork), Observer, Manager)
	route("GET", "/work/{id}", read, ofWork, s.showWork, all...)
	route("GET", "/holders", read, asked, packed(s.listHolders), Observer, Manager)
	route("POST", "/work/{id}/disposition", work, ofWork, s.dispose, works...)
	route("POST", "/work/{id}/extend", work, ofWork, s.extend, works...)
	route("POST", "/work/{id}/later", work, ofWork, s.later, Worker, Manager)
	route("POST", "/work/dispositions", work, narrowed, s.disposeMany, works...)
	route("POST", "/work/extend", work, narrowed, s.extendMany, works...)
	route("POST", "/work/{id}/reassign", manage, ofWork, s.reassign, Manager)
	route("POST", "/work/release", manage, narrowed, s.release, Manager)
	route("GET", "/limits", read, outside, packed(s.showLimits), Observer, Manager)
	route("PUT", "/limits", manage, outside, s.setLimits, Manager)
	route("GET", "/absences", read, outside, packed(s.listAbsences), all...)
	route("POST", "/absences", work, outside, s.createAbsence, works...)
	route("DELETE", "/absences/{id}", work, outside, s.endAbsence, works...)
	route("PUT", "/people/{name}/absences", manage, outside, s.importAbsences, Manager)
	route("GET", "/people/{name}/skills", read, outside, s.showSkills, all...)
	route("PUT", "/people/{name}/skills", manage, outside, s.setSkills, Manager)
	counts("/history", asked, packed(s.history), Observer, Manager)
	route("GET", "/returns", read, asked, packed(s.returns), Observer, Manager)
	known := func(method, path, scope string, tasks within, h handler) { route(method, path, scope, tasks, h) } // the handler says who may
	known("GET", "/webhooks", read, asked, packed(s.listWebhooks))
	known("POST", "/webhooks", manage, outside, s.createWebhook)
	known("DELETE", "/webhooks/{id}", manage, outside, withHook(s.deleteWebhook))
	known("POST", "/webhooks/{id}/test", manage, outside, withHook(s.testWebhook))
	known("POST", "/webhooks/{id}/rotate", manage, outside, withHook(s.rotateWebhook))
	known("GET", "/webhooks/{id}/deliveries", read, outside, packed(withHook(s.listDeliveries)))
	known("POST", "/webhooks/{id}/redrive", manage, outside, withHook(s.redriveWebhook))
	counts("/events", narrowed, s.events, all...)
	counts("/ws", narrowed, s.socket, all...)
	// own adds what everybody who logs in may do with their own sessions and tokens. The handlers let administrators name others.
	own := func(method, path, scope string, tasks within, h handler) {
		route(method, path, scope, tasks, s.withRights(h))
	}
	own("POST", "/me/active", read, narrowed, s.active)
	own("GET", "/tokens", read, outside, s.listTokens)
	own("POST", "/tokens", manage, outside, s.createToken)
	own("DELETE", "/tokens/{id}", manage, outside, s.endToken)
	own("GET", "/sessions", read, outside, s.listSessions)
	own("DELETE", "/sessions", manage, outside, s.endSessions)
	own("DELETE", "/sessions/{id}", manage, outside, s.endSession)
	admins := func(method, path, scope string, h handler) {
		add(method, path, operation{scope: scope, admin: true}, s.withRights(h))
	}
	admins("GET", "/users", read, s.listUsers)
	admins("PATCH", "/users/{name}", manage, s.changeUser)
	admins("POST", "/users/{name}/rebind", manage, s.rebindUser)
	admins("POST", "/walls", manage, s.createWall)
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

// operation is a route's rules: who may call it, and with which tokens.
type operation struct {
	scope string // of a token: read, work, push or manage
	tasks within // what a token for some tasks may do with it
	roles []Role // nil: whoever is known, an admin without a role, too
	admin bool   // needs the admin bit
	wall  bool   // shows counts and nothing else, so that screens on a wall may call it

	parameters []string // of the query
}

// within says how a call keeps to the tasks that a token is for.
type within int

const (
	outside   within = iota // such tokens may not call it
	inPath                  // the task is in the path
	asked                   // ?task= must name some of them
	ofRequest               // the request in the path must be of one of them
	ofWork                  // the work in the path must be of one of them
	narrowed                // the handler leaves the others out
)

// permit passes callers whom the operation's rules allow, and says to others which rule does not.
func (s *server) permit(h handler, o operation) http.Handler {
	return s.handle(func(w http.ResponseWriter, r *http.Request) error {
		c := CallerOf(r)
		switch {
		case c == nil:
			return assign.Refuse(assign.Unauthenticated, "%s", s.whoAreYou())
		case c.Wall && !o.wall:
			return assign.Refuse(assign.Forbidden, "this screen may show counts and nothing else; log in to see more")
		case o.admin && !c.Admin:
			return assign.Refuse(assign.Forbidden, "this call is for administrators, and you are not one: managers manage work, administrators manage people")
		case o.roles != nil && !slices.Contains(o.roles, c.Role):
			return notYourRole(c, o.roles)
		case c.Scopes != nil && !slices.Contains(c.Scopes, o.scope):
			return assign.Refuse(assign.Forbidden, "this token is for %s, and this call needs %s; make a token with that scope", strings.Join(c.Scopes, " and "), o.scope)
		}
		if err := refuseOthers(r, o.parameters); err != nil {
			return err
		}
		if c.Tasks != nil {
			if err := s.keepWithin(r, c, o.tasks); err != nil {
				return err
			}
		}
		return h(w, r)
	})
}

func (s *server) whoAreYou() string {
	if s.LogInBy == "dev" {
		return "say who you are: with --auth dev, the header X-Getwork-User or the log-in page"
	}
	return "say who you are: send a token, Authorization: Bearer gw_…, or log in"
}

func notYourRole(c *Caller, may []Role) error {
	if c.Role == "" {
		return assign.Refuse(assign.Forbidden, "you are an administrator without a role, and this call is for: %s", list(may))
	}
	return assign.Refuse(assign.Forbidden, "your role is %s; this is for: %s", c.Role, list(may))
}

// keepWithin refuses a call of a token that is for some tasks, unless it is about one of those.
func (s *server) keepWithin(r *http.Request, c *Caller, rule within) error {
	var tasks []string
	switch rule {
	case narrowed:
		return nil
	case inPath:
		name, err := segment(r, "task")
		if err != nil {
			return err
		}
		tasks = []string{name}
	case asked:
		v, err := parameters(r)
		if err != nil {
			return err
		}
		if tasks = taskNames(v); tasks == nil {
			return assign.RefuseField("task", "this token is for some tasks: name those that you ask about, ?task=%s", strings.Join(c.Tasks, ","))
		}
	case ofRequest, ofWork:
		id, err := number(r, "id")
		if err != nil {
			return err
		}
		subject, err := s.Records.Subject(r.Context(), id, rule == ofWork)
		if err != nil || subject.Task == "" { // the handler says that there is none
			return err
		}
		if c.mustNotKnow(subject) {
			return notYours(r, rule, id)
		}
		if tasks = subject.Tasks; tasks == nil {
			tasks = []string{subject.Task}
		}
	default:
		return assign.Refuse(assign.Forbidden, "this token is for the tasks %s, and this call is not about one of them", strings.Join(c.Tasks, ", "))
	}
	for _, name := range tasks {
		if !c.covers(name) {
			return c.notFor(name)
		}
	}
	return nil
}

// mustNotKnow reports whether a refusal that names the task would tell the caller of a task that does not exist for them.
func (c *Caller) mustNotKnow(of records.Subject) bool {
	who := c.Who()
	covers := of.Tasks != nil && !slices.ContainsFunc(of.Tasks, func(name string) bool { return !c.covers(name) })
	return !covers && !c.covers(of.Task) && !who.Anything && (of.User != who.Holder.User || !who.May(of.Groups))
}

// notFor is the refusal of a call about a task that the caller's token is not for.
func (c *Caller) notFor(task string) *assign.Refusal {
	return assign.Refuse(assign.Forbidden, "this token is for the tasks %s, not for %q", strings.Join(c.Tasks, ", "), task)
}

// beyond returns the refusals of those works that are of other tasks than those that the caller's token is for, by their places.
func (s *server) beyond(r *http.Request, ids []int64) (map[int]*assign.Refusal, error) {
	c := CallerOf(r)
	if c.Tasks == nil {
		return nil, nil
	}
	subjects, err := s.Records.WorkSubjects(r.Context(), ids)
	if err != nil {
		return nil, err
	}
	refused := map[int]*assign.Refusal{}
	for i, id := range ids {
		subject, known := subjects[id]
		switch {
		case !known: // the engine says that there is none
		case c.mustNotKnow(subject):
			refused[i] = assign.Refuse(assign.NotFound, noHeldWork, id)
		case !c.covers(subject.Task):
			refused[i] = c.notFor(subject.Task)
		}
	}
	return refused, nil
}

// notYours is what the handlers say of a request or of work that is somebody else's. They are not asked: it may become the caller's
// meanwhile, and their token is for other tasks all the same.
func notYours(r *http.Request, rule within, id int64) error {
	switch {
	case rule == ofRequest:
		return assign.Refuse(assign.NotFound, "no request %d of yours; GET /api/v1/pipeline lists those that wait", id)
	case r.Method == http.MethodPost:
		return assign.Refuse(assign.NotFound, noHeldWork, id)
	}
	return assign.Refuse(assign.NotFound, noWork, id)
}

// noHeldWork is what the engine says of work that is not the caller's.
const noHeldWork = "no work %d of yours; GET /api/v1/pipeline lists what you hold"

// covers reports whether a caller's token is for that task.
func (c *Caller) covers(task string) bool { return c.Tasks == nil || slices.Contains(c.Tasks, task) }

// narrow leaves what is of other tasks out of a pipeline.
func (c *Caller) narrow(p assign.Pipeline) assign.Pipeline {
	if c.Tasks == nil {
		return p
	}
	return p.Of(c.Tasks)
}
