package hook

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"getwork/assign"
	"getwork/assign/audit"
	"getwork/assign/pg"
	"getwork/schema/schematest"
	"getwork/schema/schematest/timeout"
)

func TestMain(m *testing.M) { os.Exit(schematest.Main(m)) }

func anybody(bool) error { return nil }

// desk is a registry and a sender on a database with one task, and the receiver of its hooks.
type desk struct {
	*Registry
	t        *testing.T
	db       *pgxpool.Pool
	sender   *Sender
	receiver *receiver
	task     string
}

func newDesk(t *testing.T, answer http.HandlerFunc) *desk {
	t.Helper()
	return newDeskOn(t, schematest.URL(t), answer)
}

func newDeskOn(t *testing.T, url string, answer http.HandlerFunc) *desk {
	t.Helper()
	db, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	c := Config{DB: pg.Router{Calls: db}, Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, Retention: time.Hour, Log: log}
	d := &desk{t: t, db: db, task: "verify", receiver: newReceiver(t, answer)}
	d.Registry = &Registry{Config: c, Audit: &audit.Writer{Node: "n1", Log: log, DB: c.DB}}
	d.sender = d.newSender()
	d.exec(`insert into getwork.task default values`)
	d.exec(`insert into getwork.task_version (task_id, version, name, query, created_by) values (1, 1, 'verify', null, 'boss')`)
	d.exec(`insert into getwork.task_state (task_id, name, version) values (1, 'verify', 1)`)
	return d
}

// newSender returns a sender that trusts the receiver's certificate.
func (d *desk) newSender() *Sender {
	s := NewSender(d.Config)
	roots := x509.NewCertPool()
	roots.AddCert(d.receiver.Certificate())
	s.client.secure.Transport.(*http.Transport).TLSClientConfig = &tls.Config{RootCAs: roots}
	return s
}

func (d *desk) exec(sql string, args ...any) {
	d.t.Helper()
	if _, err := d.db.Exec(d.t.Context(), sql, args...); err != nil {
		d.t.Fatalf("%s: %v", sql, err)
	}
}

func (d *desk) text(sql string, args ...any) (text string) {
	d.t.Helper()
	if err := d.db.QueryRow(d.t.Context(), sql, args...).Scan(&text); err != nil {
		d.t.Fatalf("%s: %v", sql, err)
	}
	return text
}

func (d *desk) hook(events ...string) (w assign.Webhook, secret string) {
	d.t.Helper()
	w, secret, err := d.Create(d.t.Context(), assign.NewWebhook{Task: &d.task, URL: d.receiver.URL + "/getwork", Events: events}, "mia")
	if err != nil {
		d.t.Fatal(err)
	}
	return w, secret
}

// assign hands an item out, and closes it.
func (d *desk) assign(item string) {
	d.t.Helper()
	d.exec(`insert into getwork.work (task_id, item, user_name) values (1, $1, 'oliver')`, item)
}

func (d *desk) close(item string) {
	d.t.Helper()
	d.exec(`update getwork.work set state = 'completed', closed_at = clock_timestamp(), closed_by = 'oliver', closed_xid = pg_current_xact_id() where item = $1 and state = 'held'`, item)
}

// once has the sender send what is due now, and waits for the answers.
func (d *desk) once() {
	d.t.Helper()
	d.onceBy(d.sender)
}

func (d *desk) onceBy(s *Sender) {
	d.t.Helper()
	var sending sync.WaitGroup
	if err := s.round(d.t.Context(), &sending, make(chan struct{}, 1)); err != nil {
		d.t.Fatal(err)
	}
	sending.Wait()
}

// due makes all that waits due, as time would.
func (d *desk) due() {
	d.t.Helper()
	d.exec(`update getwork.hook_event set next_at = clock_timestamp() where state = 'waiting'`)
	d.exec(`update getwork.hook set retry_at = clock_timestamp() where retry_at is not null`)
}

// states are those of all events, by id.
func (d *desk) states() string {
	d.t.Helper()
	return d.text(`select coalesce(string_agg(state || ' ' || attempts, ', ' order by id), '') from getwork.hook_event`)
}

// message is what a receiver got.
type message struct {
	header http.Header
	body   string
	Type   string
	Data   struct{ Task, Item, Work, User, State string }
}

type receiver struct {
	*httptest.Server
	mu  sync.Mutex
	got []message
}

// newReceiver starts a receiver that answers 204, or as answer does.
func newReceiver(t *testing.T, answer http.HandlerFunc) *receiver {
	t.Helper()
	r := &receiver{}
	r.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		body, _ := io.ReadAll(request.Body)
		m := message{header: request.Header, body: string(body)}
		if err := json.Unmarshal(body, &m); err != nil {
			t.Errorf("the body %s: %v", body, err)
		}
		r.mu.Lock()
		r.got = append(r.got, m)
		r.mu.Unlock()
		if answer != nil {
			answer(w, request)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	}))
	t.Cleanup(r.Close)
	return r
}

// all returns what came so far, as type and item.
func (r *receiver) all() (all []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.got {
		all = append(all, m.Type+" "+m.Data.Item)
	}
	return all
}

func (r *receiver) last() message {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.got[len(r.got)-1]
}

func wait(t *testing.T, what string, ok func(ctx context.Context) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout.Scale(20*time.Second))
	defer cancel()
	for tick := time.NewTicker(5 * time.Millisecond); !ok(ctx); {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("no %s in time", what)
		}
	}
}
