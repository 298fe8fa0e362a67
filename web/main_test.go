package web

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"getwork/assign"
	"getwork/assign/audit"
	"getwork/assign/engine"
	"getwork/assign/enginetest"
	"getwork/assign/feed"
	"getwork/assign/hook"
	"getwork/assign/pg"
	"getwork/assign/records"
	"getwork/assign/report"
	"getwork/assign/rights"
	"getwork/assign/tracing"
	"getwork/schema/schematest"
	"getwork/schema/schematest/timeout"
)

func TestMain(m *testing.M) { os.Exit(schematest.Main(m)) }

// station is a node in this process: an engine with its listener, behind the handler.
type station struct {
	*httptest.Server
	engine  *engine.Engine
	audit   *audit.Writer
	records *records.Records
	feed    *feed.Feed
	db      *pgxpool.Pool
	open    atomic.Int64 // calls under way
	drain   func()
}

type stationOptions struct {
	steps        func(context.Context, engine.Step)
	readTimeout  time.Duration
	writeTimeout time.Duration
	log          io.Writer
	logCalls     bool
	hidePeople   bool
	checks       []Check
	limit        int    // of calls, and of those who wait
	public       string // --public-url; unless dev is set, the caller is then whom a bearer token names
	dev          bool
	tls          bool
	identify     Identify
	authors      string // QueryAuthors
	rights       bool   // sessions, tokens and users exist
	traces       *tracing.Tracer
}

// panics is a header at which the identity of a test's node panics.
const panics = "X-Panic"

func start(t *testing.T, o stationOptions) *station {
	t.Helper()
	return startOn(t, schematest.URL(t), o)
}

// startPatient starts a node whose statements wait for a lock for as long as the test holds it.
func startPatient(t *testing.T, o stationOptions) *station {
	t.Helper()
	return startOn(t, schematest.URL(t)+"&lock_timeout=2min", o)
}

// startOn starts a node on the database of that URL, and ends it with the test.
func startOn(t *testing.T, url string, o stationOptions) *station {
	t.Helper()
	if o.log == nil {
		o.log = t.Output()
	}
	log := slog.New(slog.NewTextHandler(o.log, nil))
	node := enginetest.Start(t, url, enginetest.Options{Look: 2 * time.Second, Steps: o.steps, Log: o.log})
	node.Audit = &audit.Writer{Node: node.Node, Log: log, DB: node.Pools.Router()}
	n := &station{engine: node.Engine, audit: node.Audit, records: node.Records, feed: node.Feed, db: node.Pools.API}
	n.serve(t, o, log)
	return n
}

func (n *station) serve(t *testing.T, o stationOptions, log *slog.Logger) {
	draining := make(chan struct{})
	identify, logInBy := o.identify, "dev"
	if o.public != "" && !o.dev {
		logInBy = "token"
	}
	switch {
	case identify != nil:
	case logInBy == "dev":
		identify = DevIdentity
	default:
		identify = byBearer
	}
	var watch *rights.Watch
	if o.rights {
		watch = rights.NewWatch(rights.New(rights.Config{Node: "n1", DB: pg.Router{Calls: n.db}, Channel: "getwork", Audit: &audit.Writer{Node: "n1", Log: log}, Log: log}))
	}
	n.drain = sync.OnceFunc(func() { close(draining) })
	c := Config{
		Engine: n.engine, Records: n.records, Feed: n.feed, Audit: n.audit,
		Report: report.New(n.db, nil),
		Hooks:  &hook.Registry{Config: hook.Config{DB: pg.Router{Calls: n.db}, Log: log}, Audit: n.audit},
		Identify: func(r *http.Request) (*Caller, error) {
			if r.Header.Get(panics) != "" {
				panic("secret")
			}
			return identify(r)
		},
		LogInBy: logInBy, QueryAuthors: o.authors,
		Rights: watch,
		Socket: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = fmt.Fprintf(w, "socket of %s", CallerOf(r).Holder.User)
		}),
		Ready:    func(context.Context) []Check { return o.checks },
		Draining: draining,
		MaxCalls: o.limit, MaxWaiting: o.limit,
		Log: log, LogCalls: o.logCalls, HidePeople: o.hidePeople, Trace: o.traces,
	}
	if o.public != "" {
		public, err := url.Parse(o.public)
		if err != nil {
			t.Fatal(err)
		}
		c.PublicURL = public
	}
	h := Handler(c)
	n.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n.open.Add(1)
		defer n.open.Add(-1)
		h.ServeHTTP(w, r)
	}))
	n.Config.ReadTimeout, n.Config.WriteTimeout = o.readTimeout, o.writeTimeout
	if o.tls {
		n.StartTLS()
	} else {
		n.Start()
	}
	n.Client().Transport.(*http.Transport).DisableCompression = true // tests set Accept-Encoding themselves
	n.Client().CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	t.Cleanup(n.Close)
}

// byBearer identifies a manager by name: the bearer token.
func byBearer(r *http.Request) (*Caller, error) {
	user, found := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !found {
		return nil, nil
	}
	return &Caller{Holder: assign.Holder{User: user}, Role: Manager, By: "token"}, nil
}

// headers are pairs of a name and a value; the name Host sets the requested host.
type headers []string

func as(user string, more ...string) headers { return append(headers{"X-Getwork-User", user}, more...) }

func asAgent(user string, more ...string) headers {
	return as(user, append(more, "X-Getwork-Role", "agent")...)
}

func manager(more ...string) headers {
	return as("maria", append(more, "X-Getwork-Role", "manager")...)
}

// reply is an answer.
type reply struct {
	t      *testing.T
	status int
	header http.Header
	body   string
	took   time.Duration
}

// call makes a call, and compares the answer with the API's description.
func (n *station) call(t *testing.T, method, path string, h headers, body string) reply {
	t.Helper()
	began := time.Now()
	response, err := n.Client().Do(n.request(t, method, path, h, body))
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	defer response.Body.Close()
	b, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	r := reply{t, response.StatusCode, response.Header, string(b), time.Since(began)}
	for name, want := range map[string]string{"X-Content-Type-Options": "nosniff", "Content-Security-Policy": "default-src 'none'"} {
		if !strings.HasPrefix(r.header.Get(name), want) {
			t.Errorf("%s %s: %s is %q, want %s", method, path, name, r.header.Get(name), want)
		}
	}
	if problems := described(t).answer(method, path, r); len(problems) > 0 {
		t.Errorf("%s %s: %d %s\nis not as described: %s", method, path, r.status, b, strings.Join(problems, "; "))
	}
	return r
}

func (n *station) request(t *testing.T, method, path string, h headers, body string) *http.Request {
	t.Helper()
	var sent io.Reader
	if body != "" {
		sent = strings.NewReader(body)
	}
	r, err := http.NewRequestWithContext(t.Context(), method, n.URL+path, sent)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(h); i += 2 {
		if h[i] == "Host" {
			r.Host = h[i+1]
		}
		r.Header.Add(h[i], h[i+1])
	}
	return r
}

func (r reply) want(status int) reply {
	r.t.Helper()
	if r.status != status {
		r.t.Fatalf("status %d, want %d: %s", r.status, status, r.body)
	}
	return r
}

// refused checks that the answer is a problem of that kind whose errors name these fields.
func (r reply) refused(status int, kind string, fields ...string) {
	r.t.Helper()
	r.want(status)
	if got := r.header.Get("Content-Type"); got != "application/problem+json" {
		r.t.Errorf("content type %q", got)
	}
	p := read[assign.Problem](r)
	if p.Type != "/problems/"+kind || p.Status != status || p.Title == "" || p.Detail == "" {
		r.t.Errorf("problem %+v, want %s with a title and a detail", p, kind)
	}
	var named []string
	for _, f := range p.Errors {
		named = append(named, f.Field)
	}
	if strings.Join(named, " ") != strings.Join(fields, " ") {
		r.t.Errorf("errors name %q, want %q: %s", named, fields, r.body)
	}
}

func (r reply) wantHeader(name, value string) reply {
	r.t.Helper()
	if got := r.header.Get(name); got != value {
		r.t.Errorf("%s: %q, want %q", name, got, value)
	}
	return r
}

// wantAgain checks Retry-After, which depends on the request's age: the given age plus the time that has passed since.
func (r reply) wantAgain(want string, age time.Duration, since time.Time) reply {
	r.t.Helper()
	later := "20"
	switch age += time.Since(since); {
	case age < 5*time.Second:
		later = "5"
	case age < 15*time.Second:
		later = "10"
	}
	least, _ := strconv.Atoi(want)
	most, _ := strconv.Atoi(later)
	if got, err := strconv.Atoi(r.header.Get("Retry-After")); err != nil || got < least || got > most {
		r.t.Errorf("Retry-After: %q, want %s, or by now up to %s", r.header.Get("Retry-After"), want, later)
	}
	return r
}

// read decodes an answer.
func read[T any](r reply) T {
	r.t.Helper()
	var v T
	if err := json.Unmarshal([]byte(r.body), &v); err != nil {
		r.t.Fatalf("%s: %v", r.body, err)
	}
	return v
}

// five is a query that returns five items.
const five = "select 'loan/' || g as item, g as amount from generate_series(1, 5) g order by g"

// newTask makes a task over REST; more are further settings, as JSON.
func (n *station) newTask(t *testing.T, name, query, more string) reply {
	t.Helper()
	return n.call(t, "POST", "/api/v1/tasks", manager(), fmt.Sprintf(`{"name":%q,"query":%q%s}`, name, query, more)).want(201)
}

// newInbox makes a task without a query.
func (n *station) newInbox(t *testing.T, name, more string) reply {
	t.Helper()
	return n.call(t, "POST", "/api/v1/tasks", manager(), fmt.Sprintf(`{"name":%q,"query":null%s}`, name, more)).want(201)
}

// take gets work, and fails the test if there is none.
func (n *station) take(t *testing.T, task, user string, count int) []assign.Work {
	t.Helper()
	r := read[assign.Request](n.call(t, "POST", "/api/v1/tasks/"+task+"/requests", as(user, "Prefer", "wait=60"), fmt.Sprintf(`{"count":%d}`, count)).want(201))
	if r.State != assign.Assigned {
		t.Fatalf("%s got %+v", user, r)
	}
	return r.Work
}

// pendingRequest makes a request that waits on a paused task.
func (n *station) pendingRequest(t *testing.T, task, user string) assign.Request {
	t.Helper()
	return read[assign.Request](n.call(t, "POST", "/api/v1/tasks/"+task+"/requests", as(user), `{"count":2,"linger":"1h"}`).want(202))
}

// await polls until the condition is true.
func await(t *testing.T, what string, so func() bool) {
	t.Helper()
	timeout.Await(t, what, so)
}

func (n *station) exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	if _, err := n.db.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}
