package web

import (
	"cmp"
	"log/slog"
	"net/http"
	"path"
	"regexp"
	"strings"
	"time"

	"github.com/gorilla/mux"

	"getwork/assign/tracing"
)

// named is what the log says of a call beside its measures. It has no item, detail, note or credential: whoever reads a log need
// not see what people work on.
type named struct {
	user, task, request string
}

// names adds what the path says. It is called where the router's variables are known.
func (n *named) names(r *http.Request) {
	vars := mux.Vars(r)
	n.task = vars["task"]
	if route, _ := mux.CurrentRoute(r).GetPathTemplate(); route == "/api/v1/requests/{id}" {
		n.request = vars["id"]
	}
}

// traceparent is the header of W3C Trace Context, level 1: version, trace, parent and flags.
var traceparent = regexp.MustCompile(`^[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}(-.*)?$`)

// traceOf returns the trace that a call says it belongs to; empty if it says none. Its span, if it has one, knows better.
func traceOf(r *http.Request) string {
	if is := traceparent.FindStringSubmatch(r.Header.Get("Traceparent")); is != nil {
		return is[1]
	}
	return ""
}

// beginSpan begins the call's span, as from its beginning. Only calls of the API have one: probes, metrics and the page's files would
// bury them.
func (c *call) beginSpan(t *tracing.Tracer, r *http.Request) {
	if t != nil && strings.HasPrefix(c.route, "/api/v1/") {
		c.span = t.Call(r, c.route, c.began)
	}
}

// endSpan ends the call's span. Of a live channel only the handshake is one: otherwise it would be a span of hours, which nobody sees
// before its end.
func (c *call) endSpan(status int) {
	c.span.End(status, c.task, c.request)
}

// handshaken ends the span of an event stream that has begun.
func handshaken(r *http.Request) {
	if c, ok := r.Context().Value(callKey{}).(*call); ok {
		c.endSpan(http.StatusOK)
	}
}

// traceparentOf returns what a click records of its span; empty: nothing.
func traceparentOf(r *http.Request) string {
	if c, ok := r.Context().Value(callKey{}).(*call); ok {
		return c.span.Traceparent()
	}
	return ""
}

// made adds the request that a click made.
func (c *call) made() {
	if at := c.Header().Get("Location"); c.route == clickRoute && at != "" {
		c.request = path.Base(at)
	}
}

// record writes the line of a call that has been answered.
func (c *call) record(log *slog.Logger, r *http.Request, method string, status int, took time.Duration) {
	facts := []any{"method", method, "route", c.route, "status", status, "seconds", took.Seconds()}
	for _, f := range []struct{ name, value string }{{"user", c.user}, {"task", c.task}, {"request", c.request}, {"trace", cmp.Or(c.span.Trace(), traceOf(r))}} {
		if f.value != "" {
			facts = append(facts, f.name, f.value)
		}
	}
	log.Info("call", facts...)
}

// routeOf returns what the log says of where a failed call went: its route and its task, as in record. Its path may have an item. The
// route is empty if the call failed before the router.
func routeOf(r *http.Request) []any {
	c, ok := r.Context().Value(callKey{}).(*call)
	switch {
	case !ok:
		return nil
	case c.task == "":
		return []any{"route", c.route}
	}
	return []any{"route", c.route, "task", c.task}
}

// clickRoute is where a request is recorded.
const clickRoute = "/api/v1/tasks/{task}/requests"
