package web

import (
	"net/http"
	"slices"
	"strings"

	"getwork/assign"
)

// operation is a route's rules: who may call it, and with which tokens.
type operation struct {
	scope string // of a token: read, work, push or manage
	tasks within // what a token for some tasks may do with it
	roles []Role // nil: whoever is known, an admin without a role, too
	admin bool   // needs the admin bit
	wall  bool   // shows counts and nothing else, so that screens on a wall may call it
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

// permit passes callers whom the operation's rules allow, and tells others which rule does not.
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
		if who := c.Who(); !c.covers(subject.Task) && !who.Anything && (subject.User != who.Holder.User || !who.May(subject.Groups)) {
			return notYours(r, rule, id) // the refusal below would tell of a task that does not exist for them
		}
		tasks = []string{subject.Task}
	default:
		return assign.Refuse(assign.Forbidden, "this token is for the tasks %s, and this call is not about one of them", strings.Join(c.Tasks, ", "))
	}
	for _, name := range tasks {
		if !slices.Contains(c.Tasks, name) {
			return assign.Refuse(assign.Forbidden, "this token is for the tasks %s, not for %q", strings.Join(c.Tasks, ", "), name)
		}
	}
	return nil
}

// notYours is what the handlers say of a request or of work that is somebody else's. They are not asked: it may become the caller's
// meanwhile, and their token is for other tasks all the same.
func notYours(r *http.Request, rule within, id int64) error {
	switch {
	case rule == ofRequest:
		return assign.Refuse(assign.NotFound, "no request %d of yours; GET /api/v1/pipeline lists those that wait", id)
	case r.Method == http.MethodPost:
		return assign.Refuse(assign.NotFound, "no work %d of yours; GET /api/v1/pipeline lists what you hold", id)
	}
	return assign.Refuse(assign.NotFound, noWork, id)
}

// covers reports whether a caller's token is for that task.
func (c *Caller) covers(task string) bool { return c.Tasks == nil || slices.Contains(c.Tasks, task) }

// narrow leaves what is of other tasks out of a pipeline.
func (c *Caller) narrow(p assign.Pipeline) assign.Pipeline {
	if c.Tasks == nil {
		return p
	}
	return p.Of(c.Tasks)
}
