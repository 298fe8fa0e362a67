package serve

import (
	"strconv"
	"strings"
	"testing"

	"getwork/schema/schematest"
	"getwork/schema/schematest/timeout"
)

// figure returns a metric of a node, by its name and labels as /metrics writes them; absent: -1.
func (r running) figure(t *testing.T, name string) float64 {
	t.Helper()
	_, body := answer(t, plain, "GET", r.metrics)
	for line := range strings.Lines(body) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			f, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil {
				t.Fatal(err)
			}
			return f
		}
	}
	return -1
}

// /metrics counts who comes in and how, and says whether the provider answers.
func TestMetricsOfIdentity(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	var settings Identity
	at := newBank(t, func(i *Identity) { i.MetricsListen = "127.0.0.1:0"; settings = *i })
	grows := func(want float64, method, outcome string, do func()) {
		t.Helper()
		name := `getwork_auth_total{method="` + method + `",outcome="` + outcome + `"}`
		before := max(0, at.figure(t, name))
		do()
		if got := at.figure(t, name) - before; got != want {
			t.Errorf("%s grew by %v, want %v", name, got, want)
		}
	}
	oliver := newBrowser(t)
	grows(1, "oidc", "ok", func() { oliver.logIn(at, "0001", "/") })
	grows(2, "session", "ok", func() { oliver.me(at); oliver.me(at) })
	me := at.url + "/api/v1/me"
	grows(1, "session", "unknown", func() {
		answer(t, plain, "GET", me, "Cookie", "__Host-getwork-"+port(at.url)+"="+strings.Repeat("x", 43))
	})
	grows(1, "bearer", "unknown", func() { answer(t, plain, "GET", me, "Authorization", "Bearer secret") })
	grows(1, "oidc", "refused", func() { answer(t, plain, "GET", at.url+"/auth/callback?state=x&code=y") })
	if lag := at.figure(t, "getwork_rights_lag_seconds"); lag < 0 || lag > timeout.Scale(10e9).Seconds() {
		t.Errorf("the lag is %v s", lag)
	}
	if up, fetches := at.figure(t, "getwork_idp_up"), at.figure(t, "getwork_jwks_fetches_total"); up != 1 || fetches != float64(at.idp.Calls("/jwks")) || fetches < 1 {
		t.Errorf("up %v, %v fetches; the provider had %d", up, fetches, at.idp.Calls("/jwks"))
	}
	if sessions := at.figure(t, "getwork_sessions"); sessions != 0 && sessions != 1 { // of its start
		t.Errorf("%v sessions", sessions)
	}
	another := runs(t, Command{DatabaseURL: at.database, Identity: settings, Queries: Queries{TrustQueryWriters: true}})
	timeout.Await(t, "another node counts the session", func() bool { return another.figure(t, "getwork_sessions") == 1 })

	begun, _ := newBrowser(t).call("GET", at.url+"/auth/login")
	back, err := at.idp.Authorize(begun.Header.Get("Location"), "0002")
	if err != nil {
		t.Fatal(err)
	}
	if err := at.idp.Close(); err != nil {
		t.Fatal(err)
	}
	tracy := newBrowser(t)
	for _, c := range begun.Cookies() {
		tracy.cookies[c.Name] = c.Value
	}
	if r, body := tracy.call("GET", back); r.StatusCode != 503 || at.figure(t, "getwork_idp_up") != 0 {
		t.Errorf("log-in while the provider is away: %d %s, up %v", r.StatusCode, body, at.figure(t, "getwork_idp_up"))
	}
	_, all := answer(t, plain, "GET", at.metrics)
	for _, secret := range []string{"Oliver", `"0001"`, "secret", oidcClient + `"`, strings.TrimPrefix(at.idp.Issuer, "http://")} {
		if strings.Contains(all, secret) {
			t.Errorf("the metrics have %q", secret)
		}
	}
}
