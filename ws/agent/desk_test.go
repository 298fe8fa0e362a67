package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"getwork/assign"
	"getwork/schema/schematest/memnet"
	"getwork/schema/schematest/timeout"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// desk answers as a node does, from memory and without a live channel. Unlike a real node, it can lose answers, and end
// leases when the test wants it. Tests with real nodes are in cmd/internal/e2e/story.
type desk struct {
	t     *testing.T
	conns memnet.Network

	mu       sync.Mutex
	task     assign.Task
	lease    time.Duration // 0: none
	items    []string      // that can be handed out
	requests []*assign.Request
	work     []*assign.Work
	keys     map[string]*assign.Request
	calls    []string // method and path of each
	bodies   []string
	said     map[string]string // disposition by item
	most     int               // held at the same time
	again    int               // when to ask again for a waiting request, in seconds
	travel   time.Duration     // of each call, before the desk reads it

	refusing func(call, item string) (status int, kind string) // what becomes of one work in a call for much; 0: what usually does

	// fault may answer in the desk's place; before is false if the call was executed and its answer would be lost.
	fault func(w http.ResponseWriter, r *http.Request, before bool) (answered bool)
}

func newDesk(t *testing.T, items ...string) *desk {
	d := &desk{t: t, conns: memnet.New(), items: items, lease: 30 * time.Second, again: 1, keys: map[string]*assign.Request{}, said: map[string]string{}}
	d.task.Settings = assign.DefaultSettings()
	d.task.Name, d.task.Backoff = "crawl", assign.Duration(7*time.Second)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/tasks/crawl", func(w http.ResponseWriter, _ *http.Request) { reply(w, 200, d.task) })
	mux.HandleFunc("GET /api/v1/pipeline", d.pipeline)
	mux.HandleFunc("POST /api/v1/tasks/crawl/requests", d.getWork)
	mux.HandleFunc("GET /api/v1/requests/{id}", d.request)
	mux.HandleFunc("DELETE /api/v1/requests/{id}", d.cancel)
	mux.HandleFunc("GET /api/v1/work/{id}", func(w http.ResponseWriter, r *http.Request) {
		if id, ok := d.byID(w, r); ok {
			work := *d.work[id]
			work.Earlier = []assign.Ending{{ID: 1, User: "ann", State: "returned", ClosedAt: work.AssignedAt, Note: new("no answer")}}
			reply(w, 200, work)
		}
	})
	mux.HandleFunc("POST /api/v1/work/extend", d.extend)
	mux.HandleFunc("POST /api/v1/work/dispositions", d.dispose)
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { refuse(w, 404, "not-found") })
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		time.Sleep(d.travel)
		r.Body = io.NopCloser(bytes.NewReader(body))
		d.mu.Lock()
		defer d.mu.Unlock()
		if r.URL.Path != "/api/v1/ws" {
			d.calls = append(d.calls, r.Method+" "+strings.TrimPrefix(r.URL.Path, "/api/v1"))
			d.bodies = append(d.bodies, string(body))
		}
		if d.fault != nil && d.fault(w, r, true) {
			return
		}
		got := httptest.NewRecorder()
		mux.ServeHTTP(got, r)
		if d.fault != nil && d.fault(w, r, false) {
			return
		}
		for name, values := range got.Header() {
			w.Header()[name] = values
		}
		w.WriteHeader(got.Code)
		_, _ = w.Write(got.Body.Bytes())
	})}
	server.Protocols = new(http.Protocols)
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetUnencryptedHTTP2(true)
	served := make(chan error, 1)
	go func() { served <- server.Serve(d.conns) }()
	t.Cleanup(func() {
		_ = server.Close()
		<-served
	})
	return d
}

func reply(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

func refuse(w http.ResponseWriter, status int, kind string) {
	w.Header().Set("Content-Type", "application/problem+json")
	if status == 503 || status == 429 {
		w.Header().Set("Retry-After", "1")
	}
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, `{"type":"/problems/%s","title":"x","status":%d,"detail":"%s it is"}`, kind, status, kind)
}

func (d *desk) answer(w http.ResponseWriter, q *assign.Request) {
	q.Work = []assign.Work{}
	for _, each := range d.work {
		if each.TaskID == q.ID { // which the desk uses for the request
			q.Work = append(q.Work, *each)
		}
	}
	status := 201
	if q.State == assign.Pending {
		status = 202
		w.Header().Set("Retry-After", strconv.Itoa(d.again))
	}
	reply(w, status, q)
}

func (d *desk) getWork(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Count  int             `json:"count"`
		Linger assign.Duration `json:"linger"`
		Lease  assign.Duration `json:"lease"`
	}
	if json.NewDecoder(r.Body).Decode(&body) != nil || body.Count < 1 || body.Count > d.task.MaxRequest {
		refuse(w, 400, "invalid")
		return
	}
	key := r.Header.Get("Idempotency-Key")
	q := d.keys[key]
	if i := slices.IndexFunc(d.requests, func(q *assign.Request) bool { return q.State == assign.Pending }); q == nil && i >= 0 {
		q = d.requests[i]
	}
	if q == nil {
		q = &assign.Request{ID: int64(len(d.requests) + 1), Task: "crawl", Wanted: body.Count, State: assign.Pending}
		d.requests = append(d.requests, q)
		d.serve(q)
		if q.State == assign.Pending && body.Linger == 0 {
			reason := assign.NoMatch
			q.State, q.Reason = assign.None, &reason
		}
	}
	d.keys[key] = q
	d.answer(w, q)
}

// serve hands out the items.
func (d *desk) serve(q *assign.Request) {
	for q.Assigned < q.Wanted && len(d.items) > 0 {
		work := d.hold(d.items[0], q.ID)
		d.items = d.items[1:]
		work.Attempt, work.Again = 1, strings.HasPrefix(work.Item, "again")
		q.Assigned++
		q.State = assign.Assigned
	}
}

// hold makes work.
func (d *desk) hold(item string, request int64) *assign.Work {
	work := &assign.Work{ID: int64(len(d.work) + 1), Task: "crawl", Item: item, Details: json.RawMessage("{}"), State: "held",
		AssignedAt: time.Now(), TaskID: request}
	if d.lease > 0 {
		until := work.AssignedAt.Add(d.lease)
		work.LeaseExpiresAt, work.Lease = &until, new(assign.Duration(d.lease))
	}
	d.work = append(d.work, work)
	held := 0
	for _, w := range d.work {
		if w.State == "held" {
			held++
		}
	}
	d.most = max(d.most, held)
	return work
}

func (d *desk) byID(w http.ResponseWriter, r *http.Request) (id int64, ok bool) {
	id, err := strconv.ParseInt(r.PathValue("id"), 10, 64)
	if err != nil || id < 1 || id > int64(max(len(d.work), len(d.requests))) {
		refuse(w, 404, "not-found")
		return 0, false
	}
	return id - 1, true
}

func (d *desk) request(w http.ResponseWriter, r *http.Request) {
	if i, ok := d.byID(w, r); ok {
		d.answer(w, d.requests[i])
	}
}

func (d *desk) cancel(w http.ResponseWriter, r *http.Request) {
	i, ok := d.byID(w, r)
	switch {
	case !ok:
	case d.requests[i].State != assign.Pending && d.requests[i].State != assign.Cancelled:
		refuse(w, 409, "not-pending")
	default:
		d.requests[i].State = assign.Cancelled
		d.answer(w, d.requests[i])
	}
}

func (d *desk) extend(w http.ResponseWriter, r *http.Request) {
	var body struct {
		IDs []string `json:"ids"`
	}
	if json.NewDecoder(r.Body).Decode(&body) != nil {
		refuse(w, 400, "invalid")
		return
	}
	var results []assign.Result
	for _, text := range body.IDs {
		id, _ := strconv.ParseInt(text, 10, 64)
		results = append(results, d.result("extend", id, func(work *assign.Work) (int, string) {
			if work.State != "held" || d.lease > 0 && time.Now().After(*work.LeaseExpiresAt) {
				return 409, "lease-lost"
			}
			if d.lease > 0 {
				until := time.Now().Add(d.lease)
				work.LeaseExpiresAt = &until
			}
			return 200, ""
		}))
	}
	reply(w, 200, map[string]any{"results": results})
}

// result is what becomes of one work in a call for much.
func (d *desk) result(call string, id int64, do func(*assign.Work) (status int, kind string)) assign.Result {
	status, kind := 404, "not-found"
	if id >= 1 && id <= int64(len(d.work)) {
		work := d.work[id-1]
		if status = 0; d.refusing != nil {
			status, kind = d.refusing(call, work.Item)
		}
		if status == 0 {
			status, kind = do(work)
		}
		if status == 200 {
			now := *work
			return assign.Result{ID: id, Status: status, Work: &now}
		}
	}
	return assign.Result{ID: id, Status: status, Problem: &assign.Problem{Type: "/problems/" + kind, Title: "x", Status: status, Detail: kind + " it is"}}
}

func (d *desk) dispose(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Dispositions []assign.Disposal `json:"dispositions"`
	}
	if json.NewDecoder(r.Body).Decode(&body) != nil || len(body.Dispositions) > assign.MaxMany {
		refuse(w, 400, "invalid")
		return
	}
	var results []assign.Result
	for _, one := range body.Dispositions {
		said, _ := json.Marshal(one.Disposition)
		results = append(results, d.result("disposition", one.ID, func(work *assign.Work) (int, string) {
			if work.State != "held" && d.said[work.Item] != string(said) {
				return 409, "already-closed"
			}
			work.State = "closed"
			d.said[work.Item] = string(said)
			return 200, ""
		}))
	}
	reply(w, 200, map[string]any{"results": results})
}

func (d *desk) pipeline(w http.ResponseWriter, _ *http.Request) {
	p := assign.Pipeline{Work: []assign.Work{}, Requests: []assign.Request{}}
	for _, each := range d.work {
		if each.State == "held" {
			p.Work = append(p.Work, *each)
		}
	}
	for _, q := range d.requests {
		if q.State == assign.Pending {
			p.Requests = append(p.Requests, *q)
		}
	}
	reply(w, 200, p)
}

// do changes the desk while it serves no call.
func (d *desk) do(change func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change()
}

// count returns how many calls have that prefix.
func (d *desk) count(prefix string) (n int) {
	d.do(func() {
		for _, c := range d.calls {
			if strings.HasPrefix(c, prefix) {
				n++
			}
		}
	})
	return n
}

// await polls until the condition is true.
func (d *desk) await(what string, so func() bool) {
	d.t.Helper()
	timeout.Await(d.t, what, func() (is bool) {
		d.do(func() { is = so() })
		return is
	})
}

// agent returns an agent of the desk's task; it logs to the test.
func (d *desk) agent(h HandlerFunc) *Agent {
	log := slog.New(slog.NewTextHandler(d.t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
	return &Agent{URL: "http://desk", User: "crawler", Task: "crawl", Handler: h, Log: log, Transport: &http.Transport{DialContext: d.conns.Dial}}
}

// start runs an agent until stop is called, which returns Run's error.
func (d *desk) start(a *Agent) (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	stop = sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	d.t.Cleanup(func() { _ = stop() })
	return stop
}
