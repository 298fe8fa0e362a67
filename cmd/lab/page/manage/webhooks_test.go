package manage

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"
	"github.com/jackc/pgx/v5/pgxpool"

	"getwork/assign"
	"getwork/cmd/internal/cluster"
	"getwork/cmd/internal/e2e"
	"getwork/cmd/lab/page"
	"getwork/schema/schematest"
)

// posts is a receiver of web hooks, and what has come.
type posts struct {
	*httptest.Server
	mu    sync.Mutex
	sick  bool
	found []post
}

type post struct {
	id, event  string // webhook-id; its type and item
	signatures []string
	signed     string // what is signed
	taken      bool
}

func newPosts(t *testing.T) *posts {
	t.Helper()
	p := &posts{}
	p.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var e struct {
			Type string
			Data struct{ Item string }
		}
		body, _ := io.ReadAll(r.Body)
		if err := json.Unmarshal(body, &e); err != nil {
			t.Errorf("%s: %v", body, err)
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		id := r.Header.Get("Webhook-Id")
		p.found = append(p.found, post{id: id, event: strings.TrimSpace(e.Type + " " + e.Data.Item), taken: !p.sick,
			signatures: strings.Fields(r.Header.Get("Webhook-Signature")), signed: id + "." + r.Header.Get("Webhook-Timestamp") + "." + string(body)})
		if p.sick {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	t.Cleanup(p.Close)
	return p
}

func (p *posts) fails(yes bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sick = yes
}

// came waits until an event has come so often, and returns its last post.
func (p *posts) came(t *testing.T, event string, taken bool, times int) (last post) {
	t.Helper()
	e2e.Await(t, event+" comes", 2*e2e.Soon, func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		n := 0
		for _, one := range p.found {
			if one.event == event && one.taken == taken {
				n++
				last = one
			}
		}
		return n >= times
	})
	return last
}

// signedBy reports whether one of the post's signatures is by that secret.
func (p post) signedBy(t *testing.T, secret string) bool {
	t.Helper()
	text, found := strings.CutPrefix(secret, "whsec_")
	key, err := base64.StdEncoding.DecodeString(text)
	if err != nil || !found || len(key) != 32 {
		t.Fatalf("the secret is %q: %v", secret, err)
	}
	mac := hmac.New(sha256.New, key)
	_, _ = mac.Write([]byte(p.signed))
	return slices.Contains(p.signatures, "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
}

// A manager makes a web hook, gives its secret to the receiver, and sends a test. When the receiver was away too long, they send the
// dead events again. They change the secret, and delete the web hook.
func TestPageWebhook(t *testing.T) {
	t.Parallel()
	p := newPosts(t)
	roots := filepath.Join(t.TempDir(), "roots.pem")
	if err := os.WriteFile(roots, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	s := &e2e.Site{T: t, URL: schematest.URL(t)}
	db, err := pgxpool.New(t.Context(), s.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	s.DB = db
	s.Nodes = cluster.Start(t, 1, cluster.Options{DatabaseURL: s.URL, Args: []string{"--webhook-allow", "127.0.0.1/32"}, Env: []string{"SSL_CERT_FILE=" + roots}})
	page.Leased(s, "1h", "a", "b", "c")
	s.Create(map[string]any{"name": "zeta"})
	work := s.Takes("Oliver", 3)
	completes := func(w assign.Work) { s.Disposed(s.As("Oliver", 0), w, "complete", "") }
	b := page.NewBrowser(t, "")
	b.Visit(s.Nodes[0].URL, "/", "Mary,manager")
	b.Use("link", "Web hooks")
	b.Sees("There are no web hooks yet.")
	b.Use("button", "New web hook")
	b.Await(`document.activeElement.id === 'hook-url'`, e2e.Soon)
	b.Keys(p.URL + "/getwork")
	b.Choose("Task", "zeta")
	b.Choose("Task", "verify")
	s.Create(map[string]any{"name": "first", "title": "A new one, before it"})
	b.Await(`document.querySelector('#hook-task').options.length === 5`, e2e.Soon)
	if chosen := b.Eval(`document.querySelector('#hook-task').value`); chosen != "verify" {
		t.Errorf("the task that was chosen has become %q", chosen)
	}
	b.Use("checkbox", "work.assigned")
	b.Use("button", "Make the web hook")
	b.Await(`document.activeElement.id === 'the-secret'`, e2e.Soon)
	first := b.Eval(`document.activeElement.value`)
	b.Use("button", "Copy")
	b.Await(`['Copied.', 'It is selected: copy it by keyboard.'].includes(document.querySelector('#said').textContent)`, e2e.Soon)
	b.Use("button", "Done")
	b.Sees("Nothing has been sent yet.")
	if kept := b.Eval(`document.documentElement.outerHTML + JSON.stringify([location, sessionStorage, localStorage])`); strings.Contains(kept, first) {
		t.Errorf("of the secret %q there is still: %s", first, kept)
	}
	if got := e2e.Column[string](s, `select s.name || ' ' || array_to_string(events, ' ') from getwork.hook join getwork.task_state s using (task_id)`); !slices.Equal(got, []string{"verify alert.begun alert.ended run.failed work.closed work.expired"}) {
		t.Errorf("the web hook is %q", got)
	}

	b.Use("button", "Send a test")
	b.Sees("The test was delivered: the receiver answered 200.")
	if test := p.came(t, assign.WebhookTestEvent, true, 1); !test.signedBy(t, first) {
		t.Error("the test is not signed by the secret")
	}
	completes(work[0])
	p.came(t, "work.closed a", true, 1)
	row := func(event, item, state string) string {
		return fmt.Sprintf(`[...document.querySelectorAll('[data-delivery]')].some(({ innerText: is }) => is.includes(%q) && is.includes(%q) && is.includes(%q))`, event, item, state)
	}
	b.Await(row("work.closed", "a", "delivered"), 2*e2e.Soon)

	p.fails(true)
	completes(work[1])
	completes(work[2])
	p.came(t, "work.closed b", false, 1)
	p.came(t, "work.closed c", false, 1)
	b.Await(row("work.closed", "b", "answered 500"), 2*e2e.Soon)
	b.Shows(".facts .tag", "failing")
	s.Exec(`update getwork.hook_event set since = since - interval '73 hours' where state = 'waiting'`)
	s.Await("they are dead", 60*time.Second, `select count(*) = 2 from getwork.hook_event where state = 'dead'`)
	b.Use("button", "Dead")
	b.Await(row("work.closed", "b", "dead")+` && location.search.includes('dead')`, 2*e2e.Soon)
	p.fails(false)
	b.Use("button", "Send work.closed of b again")
	b.Sees("1 event is sent again.")
	b.Await(`document.activeElement.id === 'deliveries-title'`, e2e.Soon)
	if before, now := p.came(t, "work.closed b", false, 1), p.came(t, "work.closed b", true, 1); before.id != now.id {
		t.Errorf("it has another id when it is sent again: %s, before %s", now.id, before.id)
	}
	b.Use("button", "Send all dead ones again")
	b.Use("button", "Send them again")
	p.came(t, "work.closed c", true, 1)
	b.Sees("No event is dead.")

	b.Use("button", "New secret")
	b.Eval(`(() => {
		const { fetch } = window;
		window.fetch = async (...args) => {
			const answer = await fetch(...args);
			if (args[1].method === 'POST') await new Promise((f) => { window.give = f; });
			return answer;
		};
		window.hurry = () => { window.fetch = fetch; give(); };
		return '';
	})()`)
	b.Use("button", "Make a new secret")
	b.Await(`window.give`, e2e.Soon)
	b.Keys(kb.Escape)
	b.Keys(kb.Escape)
	b.Press("dialog button[type=button]") // nor does Cancel close it: the secret is made, and would never be shown
	b.Eval(`(hurry(), '')`)
	b.Await(`document.activeElement.id === 'the-secret'`, e2e.Soon)
	second := b.Eval(`document.activeElement.value`)
	b.Sees("the former secret signs, too")
	b.Use("button", "Done")
	b.Await(`document.activeElement.id === 'new-secret'`, e2e.Soon)
	b.Use("button", "Send a test")
	b.Sees("The test was delivered")
	if test := p.came(t, assign.WebhookTestEvent, true, 2); second == first || !test.signedBy(t, first) || !test.signedBy(t, second) {
		t.Errorf("the test is not signed by both secrets: %q", test.signatures)
	}
	b.Use("button", "Delete web hook")
	b.Use("button", "Delete it")
	b.Sees("There are no web hooks yet.")
	s.Await("it is deleted", e2e.Soon, `select not exists (select from getwork.hook)`)
	b.Use("link", "The shape of an event")
	b.Await(`document.querySelector('#WebhookEvent')?.getBoundingClientRect().top < innerHeight`, e2e.Soon)
}
