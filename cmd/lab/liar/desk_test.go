package liar

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"getwork/assign"
	"getwork/cmd/internal/idp"
	"getwork/schema/schematest/logs"
	"getwork/web/grants"
	"getwork/web/identity/oidc"
)

const secret = "a secret of the client, long enough"

// desk is getwork's log-in beside the provider, with sessions in memory.
type desk struct {
	*testing.T
	*sessions
	idp      *Provider
	source   *oidc.Source
	provider *oidc.Provider
	url      string
	log      *logs.Buffer
	clock    *clock
}

// options change a desk before it opens.
type options struct {
	config func(*oidc.Config)
	source func(*oidc.SourceConfig)
	before func(*Provider)
	away   bool // do not wait for the discovery

	badMessages func(netip.Addr, int) (bool, time.Duration)
}

func open(t *testing.T, o options) *desk {
	t.Helper()
	d := &desk{T: t, sessions: &sessions{once: map[[32]byte]bool{}, alive: map[string]*oidc.Login{}}, log: &logs.Buffer{}, clock: &clock{}}
	server := httptest.NewUnstartedServer(nil)
	d.url = "http://" + server.Listener.Addr().String()
	var err error
	d.idp, err = Start(idp.Config{Now: d.clock.now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.idp.Close() })
	d.register(secret)
	if o.before != nil {
		o.before(d.idp)
	}
	log := slog.New(slog.NewTextHandler(d.log, nil))
	s := oidc.SourceConfig{Issuer: d.idp.Issuer, Log: log, Now: d.clock.now, Again: 20 * time.Millisecond}
	if o.source != nil {
		o.source(&s)
	}
	if d.source, err = oidc.NewSource(s); err != nil {
		t.Fatal(err)
	}
	d.provider = d.open(o.config)
	handlers := &oidc.Handlers{Provider: d.provider, Sessions: d.sessions, Log: log, BadMessages: o.badMessages,
		Address: func(r *http.Request) netip.Addr { return netip.MustParseAddrPort(r.RemoteAddr).Addr() },
		Problem: func(w http.ResponseWriter, _ *http.Request, err error) {
			var r *assign.Refusal
			if errors.As(err, &r) {
				w.WriteHeader(r.Problem().Status)
				return
			}
			w.WriteHeader(http.StatusServiceUnavailable)
		},
	}
	mux := http.NewServeMux()
	for _, r := range handlers.Routes() {
		mux.Handle(r.Method+" "+r.Path, r.Handler)
	}
	server.Config.Handler = mux
	server.Start()
	t.Cleanup(server.Close)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = d.source.Run(ctx)
	}()
	t.Cleanup(func() { cancel(); <-done })
	if !o.away {
		d.await("discovery", func() bool { return d.source.Up() && d.idp.Calls("/jwks") > 0 })
	}
	return d
}

// register registers getwork with the provider.
func (d *desk) register(secret string) {
	d.idp.Register(idp.Client{ID: "getwork", Secret: secret, Redirects: []string{d.url + "/auth/callback"}, AfterOut: []string{d.url + "/"}, Messages: []string{d.url + "/auth/backchannel"}})
}

// open returns another provider of the same source: a second node, or one with other settings.
func (d *desk) open(change func(*oidc.Config)) *oidc.Provider {
	d.Helper()
	c := oidc.Config{Source: d.source, ClientID: "getwork", Secrets: []string{secret}, Scopes: []string{"openid", "profile", "offline_access"}, PublicURL: d.url,
		NameClaim: path(d.T, "preferred_username"), GroupsClaim: path(d.T, "groups"), Rules: rules(d.T), Once: d.Once}
	if change != nil {
		change(&c)
	}
	p, err := oidc.New(c)
	if err != nil {
		d.Fatal(err)
	}
	return p
}

func path(t testing.TB, s string) oidc.Path {
	t.Helper()
	p, err := oidc.ParsePath(s)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func rules(t testing.TB) grants.Rules {
	t.Helper()
	r := grants.Rules{TaskGroups: "all"}
	for _, s := range idp.Grants {
		g, err := grants.Parse(s)
		if err != nil {
			t.Fatal(err)
		}
		r.Grants = append(r.Grants, g)
	}
	return r
}

func (d *desk) await(what string, is func() bool) {
	d.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for limit := time.After(20 * time.Second); !is(); {
		select {
		case <-tick.C:
		case <-limit:
			d.Fatalf("%s does not happen; the log:\n%s", what, d.log)
		}
	}
}

// clock is a real clock that can be set ahead, and stopped.
type clock struct {
	mu      sync.Mutex
	ahead   time.Duration
	stopped time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.stopped.IsZero() {
		return c.stopped.Add(c.ahead)
	}
	return time.Now().Add(c.ahead)
}

func (c *clock) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped = time.Now()
}

func (c *clock) forward(by time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead += by
}

// sessions keeps sessions in memory.
type sessions struct {
	mu     sync.Mutex
	once   map[[32]byte]bool
	alive  map[string]*oidc.Login
	began  []*oidc.Login
	former []string
	calls  int
	fails  error

	ungranted []string
}

func (s *sessions) Ungranted(_ context.Context, sub string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ungranted = append(s.ungranted, sub)
	return nil
}

func (s *sessions) Begin(_ context.Context, l *oidc.Login, former string, _ netip.Addr, _ string) (oidc.Session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls++; s.fails != nil {
		return oidc.Session{}, s.fails
	}
	delete(s.alive, former)
	s.began, s.former = append(s.began, l), append(s.former, former)
	cookie := rand.Text()
	s.alive[cookie] = l
	return oidc.Session{Cookie: cookie, User: strings.ToLower(l.Name), Ends: time.Now().Add(time.Hour)}, nil
}

func (s *sessions) End(_ context.Context, cookie string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls++; s.fails != nil {
		return "", s.fails
	}
	l := s.alive[cookie]
	delete(s.alive, cookie)
	if l == nil {
		return "", nil
	}
	return l.IDToken, nil
}

func (s *sessions) EndAll(_ context.Context, o oidc.LogOut) (n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls++; s.fails != nil {
		return 0, s.fails
	}
	if s.once[o.Once] {
		return 0, nil
	}
	s.once[o.Once] = true
	for cookie, l := range s.alive {
		if l.Iss == o.Iss && (o.SID != "" && l.SID == o.SID || o.SID == "" && l.Sub == o.Sub) {
			delete(s.alive, cookie)
			n++
		}
	}
	return n, nil
}

func (s *sessions) Once(_ context.Context, what [32]byte, _ time.Time) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fresh := !s.once[what]
	s.once[what] = true
	return fresh, nil
}

func (s *sessions) count() (calls int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

func (s *sessions) last() *oidc.Login {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.began[len(s.began)-1]
}

// tab is a browser that follows no redirect by itself. Go's cookie jar would not send Secure cookies over HTTP, as browsers
// do on loopback.
type tab struct {
	*desk
	cookies map[string]string
}

func (d *desk) browser() *tab { return &tab{d, map[string]string{}} }

type reply struct {
	*http.Response
	text string
}

func (b *tab) call(method, address, body string, header ...string) reply {
	b.Helper()
	if strings.HasPrefix(address, "/") {
		address = b.url + address
	}
	r, err := http.NewRequestWithContext(b.Context(), method, address, strings.NewReader(body))
	if err != nil {
		b.Fatal(err)
	}
	r.Header.Set("Accept", "text/html")
	for name, value := range b.cookies {
		r.AddCookie(&http.Cookie{Name: name, Value: value})
	}
	for i := 0; i < len(header); i += 2 {
		if r.Header.Set(header[i], header[i+1]); header[i] == "Host" {
			r.Host = header[i+1]
		}
	}
	response, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		b.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		b.Fatal(err)
	}
	for _, c := range response.Cookies() {
		if c.MaxAge < 0 {
			delete(b.cookies, c.Name)
		} else {
			b.cookies[c.Name] = c.Value
		}
	}
	return reply{response, string(text)}
}

func (b *tab) get(address string, header ...string) reply {
	b.Helper()
	return b.call("GET", address, "", header...)
}

// leave goes to the provider, and returns its address.
func (b *tab) leave(query string) string {
	b.Helper()
	r := b.get("/auth/login" + query)
	if r.StatusCode != http.StatusSeeOther {
		b.Fatalf("log-in: %d %s", r.StatusCode, r.text)
	}
	return r.Header.Get("Location")
}

// logIn logs a person in, and returns the answer of the call-back.
func (b *tab) logIn(sub string) reply {
	b.Helper()
	return b.get(b.back(b.leave(""), sub))
}

// back picks a person at the provider, and returns the call-back's address.
func (b *tab) back(address, sub string) string {
	b.Helper()
	callback, err := b.idp.Authorize(address, sub)
	if err != nil {
		b.Fatal(err)
	}
	return callback
}

// refused checks that an attempt was refused with one line in the log, a reason, a page with a link to try again, no call of
// Sessions, and none of the words.
func (b *tab) refused(r reply, calls int, reason string, never ...string) {
	b.Helper()
	log := b.log.Take()
	status := 400
	switch reason {
	case "no-grant", "name-missing", "name-form":
		status = 403
	case "token-endpoint", "userinfo", "keys-away", "discovery":
		status = 503
	}
	if strings.Contains(log, "code=server_error") {
		status = 503
	}
	if r.StatusCode != status || !strings.Contains(r.text, "Try again") || r.Header.Get("Location") != "" {
		b.Errorf("it answers with %d: %s", r.StatusCode, r.text)
	}
	if (status == 503) != (r.Header.Get("Retry-After") != "") {
		b.Errorf("Retry-After: %q", r.Header.Get("Retry-After"))
	}
	if strings.Count(log, "\n") != 1 || !strings.Contains(log, "msg=auth") || !strings.Contains(log, "outcome=refused") || !strings.Contains(log, "user=-") || !strings.Contains(log, "reason="+reason) {
		b.Errorf("the log should have one line with the reason %s, and has:\n%s", reason, log)
	}
	if n := b.count(); n != calls {
		b.Errorf("Sessions was called %d times", n-calls)
	}
	if b.cookies[b.provider.SessionCookie()] != "" {
		b.Error("there is a session's cookie")
	}
	told := strings.NewReplacer("description", "", `<script type="module" src="/static/card.js"></script>`, "").Replace(r.text) // without our own
	for _, word := range append(never, "a text of the provider", "evil", "made-up", "Oliver", "loan-desk", "0001", "script") {
		if word != "" && (strings.Contains(log, word) || strings.Contains(told, word)) {
			b.Errorf("%q is told:\n%s\n%s", word, log, r.text)
		}
	}
}

// hidden returns the parts of a call-back's address that nobody may show.
func hidden(address string) (parts []string) {
	u, err := url.Parse(address)
	if err != nil {
		return nil
	}
	for _, name := range []string{"code", "state"} {
		if v := u.Query().Get(name); len(v) > 8 {
			parts = append(parts, v)
		}
	}
	return parts
}

func id(text string) []byte {
	b, _ := hex.DecodeString(cmp.Or(text, strings.Repeat("ab", 32)))
	return b
}
