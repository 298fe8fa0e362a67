package fault

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"getwork/assign"
	"getwork/cmd/internal/cluster"
	"getwork/cmd/internal/e2e"
	"getwork/schema/schematest"
)

// gated is a receiver that answers nobody before its gate is opened.
type gated struct {
	*httptest.Server
	gate chan struct{}

	mu       sync.Mutex
	inside   int
	answered map[string]int // how often each event was, by its type and item
	wrong    []string
}

func newGated(t *testing.T) *gated {
	t.Helper()
	g := &gated{gate: make(chan struct{}), answered: map[string]int{}}
	g.Server = httptest.NewTLSServer(http.HandlerFunc(g.receive))
	t.Cleanup(g.Close)
	return g
}

func (g *gated) receive(w http.ResponseWriter, r *http.Request) {
	var e struct {
		Type string
		Data struct{ Item string }
	}
	body, _ := io.ReadAll(r.Body)
	err := json.Unmarshal(body, &e)
	g.mu.Lock()
	g.inside++
	if err != nil || r.Header.Get("Webhook-Signature") == "" {
		g.wrong = append(g.wrong, fmt.Sprintf("%s: %v", body, err))
	}
	if e.Type == assign.WorkClosedEvent && g.answered[assign.WorkAssignedEvent+e.Data.Item] == 0 {
		g.wrong = append(g.wrong, e.Data.Item+" is closed, and nobody has heard that it was assigned")
	}
	g.mu.Unlock()
	select {
	case <-g.gate:
	case <-r.Context().Done(): // the node has died
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.answered[e.Type+e.Data.Item]++
	w.WriteHeader(http.StatusNoContent)
}

// Three nodes are in the middle of sending when two of them are killed with -9, and the third loses all its connections to the
// database. It sends everything, and of each item in its order.
func TestWebhookSendersKilled(t *testing.T) {
	t.Parallel()
	const items = 20 // more than two nodes send to one hook at once
	g := newGated(t)
	roots := filepath.Join(t.TempDir(), "roots.pem")
	if err := os.WriteFile(roots, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: g.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	url := schematest.URL(t)
	db, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	nodes := cluster.Start(t, 3, cluster.Options{DatabaseURL: url, Args: []string{"--webhook-allow", "127.0.0.1/32"}, Env: []string{"SSL_CERT_FILE=" + roots}})
	s := &site{&e2e.Site{T: t, URL: url, DB: db, Nodes: nodes}}
	mary := s.As("mary", 0)
	if err := mary.CreateTask(t.Context(), map[string]any{"name": "photos", "query": nil, "max_request": items}); err != nil {
		t.Fatal(err)
	}
	if a, err := mary.Do(t.Context(), "POST", "/api/v1/webhooks", map[string]any{"task": "photos", "url": g.URL + "/getwork"}, "X-Getwork-Role", "manager"); err != nil || a.Status != 201 {
		t.Fatalf("make a web hook: %d %s %v", a.Status, a.Body, err)
	}
	var pushed []assign.NewItem
	for i := range items {
		pushed = append(pushed, assign.NewItem{Item: fmt.Sprint(i)})
	}
	if _, err := mary.Push(t.Context(), "photos", pushed...); err != nil {
		t.Fatal(err)
	}
	r, a, err := s.As("oliver", 1).GetWork(t.Context(), "photos", items)
	if err != nil || len(r.Work) != items {
		t.Fatalf("get work: %d %s %v", a.Status, a.Body, err)
	}
	for _, w := range r.Work {
		if _, a, err := s.As("oliver", 2).Dispose(t.Context(), w.ID, "complete", ""); err != nil || a.Status != 200 {
			t.Fatalf("complete %d: %d %s %v", w.ID, a.Status, a.Body, err)
		}
	}
	e2e.Await(t, "all nodes send", 30*time.Second, func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		return g.inside == items
	})
	nodes[0].Kill()
	nodes[1].Kill()
	if left := column[int](s, `select count(*)::int from getwork.hook_event where state = 'waiting'`); left[0] != 2*items {
		t.Errorf("%d events wait, want all %d", left[0], 2*items)
	}
	if cut := column[int](s, `select count(pg_terminate_backend(pid))::int from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()`); cut[0] == 0 {
		t.Error("no connection was cut")
	}
	close(g.gate)
	s.Exec(`update getwork.hook_event set next_at = clock_timestamp() where state = 'waiting'`) // in half a minute the dead nodes' leases would be over
	// What the third node could not write waits until its lease ends.
	s.Await("everything is delivered", 60*time.Second, `select count(*) = `+fmt.Sprint(2*items)+` from getwork.hook_event where state = 'delivered'`)
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.answered) != 2*items || len(g.wrong) > 0 {
		t.Errorf("%d events came, want %d; wrong: %v", len(g.answered), 2*items, g.wrong)
	}
}
