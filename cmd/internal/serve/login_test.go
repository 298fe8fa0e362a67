package serve

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/cmd/internal/idp"
	"getwork/schema/schematest"
	"getwork/schema/schematest/timeout"
)

// bank is a node where people log in at a provider.
type bank struct {
	running
	idp      *idp.Provider
	hooks    atomic.Pointer[idp.Hooks] // of the provider
	identity Identity                  // its settings
}

const oidcClient = "getwork"

func newBank(t *testing.T, change ...func(*Identity)) *bank {
	t.Helper()
	return newBankOf(t, nil, Command{}, change...)
}

// newBankOf is a node with these settings, where these people can log in; nil: the demo's.
func newBankOf(t *testing.T, people []idp.Person, c Command, change ...func(*Identity)) *bank {
	t.Helper()
	b := &bank{}
	p, err := idp.Start(idp.Config{People: people, Hooks: b.hooks.Load})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("a secret of the tests, long enough\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	i := Identity{Auth: "oidc", PublicURL: "http://127.0.0.1:0", LogIn: LogIn{OIDCIssuer: p.Issuer, OIDCClientID: oidcClient, OIDCClientSecretFile: secret,
		OIDCScopes: "openid profile offline_access", OIDCNameClaim: "preferred_username", OIDCGroupsClaim: "groups", OIDCStale: time.Hour, Grant: idp.Grants, TaskGroups: "all",
		SessionIdle: 30 * time.Minute, SessionMax: 10 * time.Hour, look: 50 * time.Millisecond}}
	for _, f := range change {
		f(&i)
	}
	b.idp, b.identity = p, i
	b.running = b.beside(t, c)
	p.Register(idp.Client{ID: oidcClient, Secret: "a secret of the tests, long enough", Redirects: []string{b.url + "/auth/callback"}, AfterOut: []string{b.url + "/"},
		Messages: []string{b.url + "/auth/backchannel"}})
	return b
}

// beside starts another node of the bank.
func (b *bank) beside(t *testing.T, c Command) running {
	t.Helper()
	c.Identity, c.Queries = b.identity, Queries{TrustQueryWriters: true}
	return runs(t, c)
}

// browser keeps cookies as a browser does on loopback, where Go's own jar keeps back those that are Secure.
type browser struct {
	t       *testing.T
	cookies map[string]string
}

func newBrowser(t *testing.T) *browser { return &browser{t, map[string]string{}} }

// call makes a call, and follows no redirect.
func (b *browser) call(method, address string, header ...string) (*http.Response, string) {
	b.t.Helper()
	r, err := http.NewRequestWithContext(b.t.Context(), method, address, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	for name, value := range b.cookies {
		r.AddCookie(&http.Cookie{Name: name, Value: value})
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	still := &http.Client{Transport: plain.Transport, Timeout: plain.Timeout, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	response, err := still.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, c := range response.Cookies() {
		if !strings.HasPrefix(c.Name, "__Host-") || !c.Secure || !c.HttpOnly || c.Path != "/" || c.SameSite != http.SameSiteLaxMode {
			b.t.Errorf("cookie %v", c)
		}
		if c.MaxAge < 0 {
			delete(b.cookies, c.Name)
		} else {
			b.cookies[c.Name] = c.Value
		}
	}
	return response, string(body)
}

// logIn logs somebody in, as far as the session's cookie, and returns where the browser goes then.
func (b *browser) logIn(at *bank, sub, path string) string {
	b.t.Helper()
	return b.comeBack(b.goToProvider(at, sub, path))
}

// goToProvider begins a log-in, and returns where the provider sends the browser.
func (b *browser) goToProvider(at *bank, sub, path string) (back string) {
	b.t.Helper()
	var begun *http.Response
	timeout.Await(b.t, "the provider is known", func() bool {
		begun, _ = b.call("GET", at.url+"/auth/login?return_to="+url.QueryEscape(path))
		return begun.StatusCode == 303
	})
	back, err := at.idp.Authorize(begun.Header.Get("Location"), sub)
	if err != nil {
		b.t.Fatal(err)
	}
	return back
}

func (b *browser) comeBack(back string) string {
	b.t.Helper()
	done, body := b.call("GET", back)
	if done.StatusCode != 303 {
		b.t.Fatalf("call-back: %d %s", done.StatusCode, body)
	}
	return done.Header.Get("Location")
}

// me returns who the node takes the browser for; nobody: empty.
func (b *browser) me(at *bank) (user, role string, admin bool, status int) {
	b.t.Helper()
	r, body := b.call("GET", at.url+"/api/v1/me")
	var me struct {
		User, Role string
		Admin      bool
	}
	_ = json.Unmarshal([]byte(body), &me)
	return me.User, me.Role, me.Admin, r.StatusCode
}

// People log in by the provider, are who it says, and go where they wanted to; log-out ends it here and there.
func TestLogInAndOut(t *testing.T) {
	t.Parallel()
	at := newBank(t)
	b := newBrowser(t)
	if r, body := b.call("GET", at.url+"/api/v1/me"); r.StatusCode != 401 || !strings.Contains(body, `"log_in":"/auth/login"`) {
		t.Errorf("before: %d %s", r.StatusCode, body)
	}
	if to := b.logIn(at, "0001", "/#/desk"); to != "/#/desk" {
		t.Errorf("went to %q", to)
	}
	if user, role, admin, _ := b.me(at); user != "Oliver" || role != "worker" || admin {
		t.Errorf("%q %q %v", user, role, admin)
	}
	if r, body := b.call("GET", at.url+"/api/v1/users"); r.StatusCode != 403 {
		t.Errorf("people for a worker: %d %s", r.StatusCode, body)
	}
	// Another site's page can do nothing with the cookie.
	if r, _ := b.call("POST", at.url+"/auth/logout", "Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site"); r.StatusCode != 403 {
		t.Errorf("log-out by another site: %d", r.StatusCode)
	}
	ada := newBrowser(t)
	ada.logIn(at, "0004", "/")
	if user, role, admin, _ := ada.me(at); user != "Ada" || role != "" || !admin {
		t.Errorf("%q %q %v", user, role, admin)
	}
	if r, body := ada.call("GET", at.url+"/api/v1/users"); r.StatusCode != 200 || !strings.Contains(body, `"Oliver"`) {
		t.Errorf("people for an admin: %d %s", r.StatusCode, body)
	}
	if r, _ := ada.call("GET", at.url+"/api/v1/tasks"); r.StatusCode != 403 {
		t.Errorf("tasks for an admin without a role: %d", r.StatusCode)
	}
	r, body := b.call("POST", at.url+"/auth/logout", "Origin", at.url)
	if r.StatusCode != 200 || !strings.Contains(body, at.idp.Issuer+"/end_session?") || len(b.cookies) != 0 {
		t.Errorf("log-out: %d %s, cookies %v", r.StatusCode, body, b.cookies)
	}
	b.cookies = map[string]string{"__Host-getwork-" + port(at.url): "x"}
	if r, _ := b.call("POST", at.url+"/auth/logout", "Origin", at.url); r.StatusCode != 200 {
		t.Errorf("log-out without a session: %d", r.StatusCode)
	}
	if _, _, _, status := b.me(at); status != 401 {
		t.Errorf("afterwards: %d", status)
	}
}

func port(address string) string {
	u, _ := url.Parse(address)
	return u.Port()
}

// The provider says that a person has left: their sessions here end within two seconds, without anybody asking.
func TestBackchannelEndsSessions(t *testing.T) {
	t.Parallel()
	at := newBank(t)
	oliver, tracy := newBrowser(t), newBrowser(t)
	oliver.logIn(at, "0001", "/")
	tracy.logIn(at, "0002", "/")
	if err := at.idp.LogOut(t.Context(), "0001"); err != nil {
		t.Fatal(err)
	}
	timeout.Await(t, "the end of Oliver's session", func() bool { _, _, _, status := oliver.me(at); return status == 401 })
	if user, _, _, _ := tracy.me(at); user != "Tracy" {
		t.Errorf("Tracy is %q", user)
	}
}

// What the provider changes counts after the next refresh, and a person whom it refuses is out. While it is away sessions go
// on, and nobody new comes in.
func TestRefreshFollowsTheProvider(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	at := newBank(t)
	b := newBrowser(t)
	b.logIn(at, "0001", "/")
	db, err := pgx.Connect(t.Context(), at.database)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close(context.WithoutCancel(t.Context()))
	age := func() {
		t.Helper()
		if _, err := db.Exec(t.Context(), "update getwork.session set refreshed_at = refreshed_at - interval '11 minutes', refreshing_until = null"); err != nil {
			t.Fatal(err)
		}
	}
	if err := at.idp.Close(); err != nil {
		t.Fatal(err)
	}
	// What is left is noted as it is written: less and less is left of a claim, too.
	if _, err := db.Exec(t.Context(), `
create table public.refreshing (remains interval);
create function public.note() returns trigger language plpgsql as $$
begin
  insert into public.refreshing values (new.refreshing_until - clock_timestamp());
  return null;
end $$;
create trigger note after update of refreshing_until on getwork.session for each row execute function public.note()`); err != nil {
		t.Fatal(err)
	}
	age()
	timeout.Await(t, "the provider is asked in vain", func() bool {
		b.me(at) // it is in use
		var asked bool
		err := db.QueryRow(t.Context(), "select exists (select from public.refreshing where remains between interval '30 seconds' and interval '1 minute')").Scan(&asked)
		return err == nil && asked
	})
	if user, _, _, _ := b.me(at); user != "Oliver" {
		t.Errorf("while the provider is away: %q", user)
	}
	if err := at.idp.Reopen(); err != nil {
		t.Fatal(err)
	}
	at.idp.SetGroups("0001", []string{"loan-managers", "new"})
	age()
	timeout.Await(t, "the new role", func() bool { _, role, _, _ := b.me(at); return role == "manager" })
	token := b.token(at)
	if status := withToken(t, at, token); status != 200 {
		t.Errorf("a token: %d", status)
	}
	at.idp.SetGroups("0001", []string{"none that counts"})
	age()
	timeout.Await(t, "the end", func() bool { _, _, _, status := b.me(at); return status == 401 })
	if status := withToken(t, at, token); status != 403 {
		t.Errorf("the token of somebody who has no role any more: %d", status)
	}
}

// Somebody whose groups the provider has taken away, and who logs in again, loses what they still have: the session of another
// browser, and what their token may do.
func TestLogInWithoutARole(t *testing.T) {
	t.Parallel()
	at := newBank(t)
	b := newBrowser(t)
	b.logIn(at, "0001", "/")
	token := b.token(at)
	at.idp.SetGroups("0001", []string{})
	again := newBrowser(t)
	begun, _ := again.call("GET", at.url+"/auth/login")
	back, err := at.idp.Authorize(begun.Header.Get("Location"), "0001")
	if err != nil {
		t.Fatal(err)
	}
	if r, body := again.call("GET", back); r.StatusCode != 403 {
		t.Errorf("log-in: %d %s", r.StatusCode, body)
	}
	timeout.Await(t, "the end", func() bool { _, _, _, status := b.me(at); return status == 401 })
	if status := withToken(t, at, token); status != 403 {
		t.Errorf("the token: %d", status)
	}
	at.idp.SetGroups("0001", []string{"loan-desk"})
	again.logIn(at, "0001", "/")
	if status := withToken(t, at, token); status != 200 {
		t.Errorf("the token of somebody who has a role again: %d", status)
	}
}

// token makes a token of the user who is logged in.
func (b *browser) token(at *bank) string {
	b.t.Helper()
	r, err := http.NewRequestWithContext(b.t.Context(), "POST", at.url+"/api/v1/tokens", strings.NewReader(`{"label":"script","scopes":["read","work"]}`))
	if err != nil {
		b.t.Fatal(err)
	}
	for name, value := range b.cookies {
		r.AddCookie(&http.Cookie{Name: name, Value: value})
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := plain.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer answer.Body.Close()
	var made struct{ Token string }
	if err := json.NewDecoder(answer.Body).Decode(&made); err != nil || made.Token == "" {
		b.t.Fatalf("make a token: %d, %v", answer.StatusCode, err)
	}
	return made.Token
}

// withToken returns the status of a call with a token.
func withToken(t *testing.T, at *bank, token string) int {
	t.Helper()
	r, _ := newBrowser(t).call("GET", at.url+"/api/v1/me", "Authorization", "Bearer "+token)
	return r.StatusCode
}

// One address can't begin or end log-ins without end, nor send bad log-out messages; others are not kept out meanwhile.
func TestLogInLimits(t *testing.T) {
	t.Parallel()
	b := newBank(t, func(i *Identity) { i.TrustedProxy = []string{"127.0.0.1"} })
	window := newBrowser(t)
	for n, path := range []string{"/auth/login", "/auth/callback", "/auth/backchannel"} {
		method, most := "GET", logInsPerMinute
		if path == "/auth/backchannel" {
			method, most = "POST", badMessagesPerMinute
		}
		from := fmt.Sprintf("192.0.2.%d", n)
		for calls := 1; ; calls++ {
			response, body := window.call(method, b.url+path, "X-Forwarded-For", from)
			if response.StatusCode != http.StatusTooManyRequests {
				if calls > 2*most {
					t.Fatalf("%s: %d calls in a row, and the last is answered %d", path, calls, response.StatusCode)
				}
				continue
			}
			if calls <= most || response.Header.Get("Retry-After") == "" || !strings.Contains(body, "too many") {
				t.Errorf("%s: call %d is answered 429, Retry-After %q: %s", path, calls, response.Header.Get("Retry-After"), body)
			}
			break
		}
		if response, _ := window.call(method, b.url+path, "X-Forwarded-For", "198.51.100.1"); response.StatusCode == http.StatusTooManyRequests {
			t.Errorf("%s: another address is kept out", path)
		}
	}
	if b.said("reason=logout-limit") == 0 {
		t.Error("the log does not say that log-out messages were dropped")
	}
}
