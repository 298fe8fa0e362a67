package identity

import (
	"log/slog"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"getwork/assign"
	"getwork/assign/rights"
	"getwork/schema/schematest"
	"getwork/schema/schematest/timeout"
	"getwork/web"
)

// browser makes a session, and returns the header of its cookie.
func (n *station) browser(t *testing.T, name string, role assign.Role) (header []string, cookie string) {
	t.Helper()
	begun, err := n.rights.Begin(t.Context(), rights.LogIn{Entry: rights.Entry{Iss: "idp", Sub: name, Name: name, Role: role}, Max: time.Hour, AuthAt: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	return []string{"Cookie", "session=" + begun.Cookie}, begun.Cookie
}

const verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"

var inJSON = []string{"Content-Type", "application/json"}

// approve approves a terminal, and returns the code.
func (n *station) approve(t *testing.T, session []string, challenge, port string) (code string) {
	t.Helper()
	status, answer := n.call(t, "POST", "/auth/cli/approve", `{"challenge":"`+challenge+`","port":`+port+`,"label":"mia@laptop"}`, append(session, inJSON...)...)
	if status != 200 {
		t.Fatal(status, answer)
	}
	got := decode[struct{ Next, Code string }](t, answer)
	if port == "0" {
		return got.Code
	}
	next, err := url.Parse(got.Next)
	if err != nil || !strings.HasPrefix(got.Next, "http://127.0.0.1:"+port+"/?code=") {
		t.Fatal(got.Next, err)
	}
	return next.Query().Get("code")
}

func (n *station) redeem(t *testing.T, code, verifier string) (status int, answer string) {
	t.Helper()
	return n.call(t, "POST", "/auth/cli/token", `{"code":"`+code+`","verifier":"`+verifier+`"}`, inJSON...)
}

// A code gives the terminal that asked, and no other, one token; on any node, within a minute. The token has the rights of its
// session, and ends with it.
func TestTerminal(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	base := schematest.URL(t)
	here, there := startOn(t, base, true), startOn(t, base, false)
	session, cookie := here.browser(t, "mia", assign.RoleManager)
	challenge := rights.Challenge(verifier)
	code := here.approve(t, session, challenge, "40001")
	if status, answer := there.redeem(t, code, strings.Repeat("x", 43)); status != 400 || !strings.Contains(answer, "/problems/log-in-failed") {
		t.Errorf("another verifier: %d %s", status, answer)
	}
	if status, _ := there.call(t, "GET", "/api/v1/me", "", bearer("gw_"+code[:12]+"_"+strings.Repeat("0", 49))...); status != 401 {
		t.Errorf("a code as a token: %d", status)
	}
	status, answer := there.redeem(t, code, verifier)
	got := decode[rights.Terminal](t, answer)
	if status != 200 || got.User != "mia" || got.Role != assign.RoleManager || got.ID != code[:12] {
		t.Fatalf("%d %s", status, answer)
	}
	if status, _ := here.redeem(t, code, verifier); status != 400 {
		t.Errorf("a code used twice: %d", status)
	}
	_, me := here.call(t, "GET", "/api/v1/me", "", bearer(got.Token)...)
	if !strings.Contains(me, `"user":"mia"`) || !strings.Contains(me, `"by":"token"`) {
		t.Errorf("me %s", me)
	}
	// Those who have logged in lately may make tokens, also from a terminal.
	if status, answer := here.call(t, "POST", "/api/v1/tokens", `{"label":"x","scopes":["manage"]}`, bearer(got.Token)...); status != 201 {
		t.Errorf("a token by a terminal: %d %s", status, answer)
	}
	// A terminal approves no other: a token makes no tokens.
	if status, answer := here.call(t, "POST", "/auth/cli/approve", `{"challenge":"`+challenge+`","port":40001,"label":"x"}`, append(bearer(got.Token), inJSON...)...); status != 403 {
		t.Errorf("approved by a terminal: %d %s", status, answer)
	}

	late := here.approve(t, session, challenge, "40001")
	if _, err := here.db.Exec(t.Context(), "update getwork.token set expires_at = expires_at - interval '1 minute' where id = $1", late[:12]); err != nil {
		t.Fatal(err)
	}
	if status, _ := here.redeem(t, late, verifier); status != 400 {
		t.Errorf("a late code: %d", status)
	}
	before, former := here.browser(t, "tracy", assign.RoleWorker)
	replaced := here.approve(t, before, challenge, "0")
	if _, err := here.rights.Begin(t.Context(), rights.LogIn{Entry: rights.Entry{Iss: "idp", Sub: "tracy", Name: "tracy", Role: assign.RoleWorker}, Max: time.Hour, Former: former}); err != nil {
		t.Fatal(err)
	}
	if status, _ := here.redeem(t, replaced, verifier); status != 400 {
		t.Errorf("a code of a session that was replaced: %d", status)
	}
	open := here.approve(t, session, challenge, "0")
	if _, err := here.rights.End(t.Context(), rights.Ending{By: "log-out", Cookie: cookie}); err != nil {
		t.Fatal(err)
	}
	if status, _ := here.redeem(t, open, verifier); status != 400 {
		t.Errorf("a code of a session that has ended: %d", status)
	}
	timeout.Await(t, "the end of the terminal's token", func() bool {
		status, _ := there.call(t, "GET", "/api/v1/me", "", bearer(got.Token)...)
		return status == 401
	})
	for _, secret := range []string{code[13:], got.Token[16:], verifier} {
		if strings.Contains(here.log.String()+there.log.String(), secret) {
			t.Error("a log has a secret")
		}
		var rows int
		if err := here.db.QueryRow(t.Context(), `select (select count(*) from getwork.token t where strpos(t::text, $1) > 0) + (select count(*) from getwork.audit a where strpos(a::text, $1) > 0)`, secret).Scan(&rows); err != nil || rows != 0 {
			t.Errorf("a table has a secret: %d, %v", rows, err)
		}
	}
}

// Somebody is led to approve an attacker's terminal. What their browser then has is of no use without the attacker's verifier,
// and goes to their own machine; and who has the code alone can't use it.
func TestPhishedTerminal(t *testing.T) {
	t.Parallel()
	n := start(t)
	session, _ := n.browser(t, "mia", assign.RoleWorker)
	code := n.approve(t, session, rights.Challenge("the attacker's"), "40001")
	for what, tried := range map[string]string{"her own verifier": verifier, "the challenge": rights.Challenge("the attacker's"), "none": ""} {
		if status, _ := n.redeem(t, code, tried); status != 400 {
			t.Errorf("%s: %d", what, status)
		}
	}
	var acts int
	if err := n.db.QueryRow(t.Context(), `select count(*) from getwork.audit where act = 'terminal.approve' and actor = 'mia' and outcome = 'done'`).Scan(&acts); err != nil || acts != 1 {
		t.Errorf("%d acts, %v", acts, err)
	}
	guesses := 0
	for range 15 {
		if status, _ := n.redeem(t, code, strings.Repeat("x", 43)); status == 429 {
			guesses++
		}
	}
	if guesses == 0 {
		t.Error("guessing is not limited")
	}
}

// An address that guessed too often asks the database nothing more for a while, so that not even a good code is used up.
func TestGuessedCodesAreNotLookedUp(t *testing.T) {
	t.Parallel()
	n := start(t)
	session, _ := n.browser(t, "mia", assign.RoleWorker)
	code := n.approve(t, session, rights.Challenge(verifier), "40001")
	guesses := web.NewAddressLimit(1) // in a minute
	redeem := func(verifier string) error {
		r := httptest.NewRequestWithContext(t.Context(), "POST", "/auth/cli/token", strings.NewReader(`{"code":"`+code+`","verifier":"`+verifier+`"}`))
		r.Header.Set("Content-Type", "application/json")
		return Terminals{Rights: n.rights.Registry, Log: slog.New(slog.DiscardHandler)}.redeem(httptest.NewRecorder(), r, guesses)
	}
	if err := redeem(strings.Repeat("x", 43)); !assign.IsRefusal(err, assign.LogInFailed) {
		t.Errorf("a guess: %v", err)
	}
	if err := redeem(verifier); !assign.IsRefusal(err, assign.RateLimited) {
		t.Errorf("after too many guesses: %v", err)
	}
	var used bool
	if err := n.db.QueryRow(t.Context(), `select expires_at > clock_timestamp() + interval '2 minutes' from getwork.token where id = $1`, code[:12]).Scan(&used); err != nil || used {
		t.Errorf("the code was used: %v, %v", used, err)
	}
}

// The page names the user and the terminal, and no other page may frame it.
func TestApprovalPage(t *testing.T) {
	t.Parallel()
	n := start(t)
	session, _ := n.browser(t, "mia", assign.RoleWorker)
	challenge := rights.Challenge(verifier)
	page := "/auth/cli?challenge=" + challenge + "&label=" + url.QueryEscape(`<b>mia@laptop`)
	html := []string{"Accept", "text/html"}
	status, text := n.call(t, "GET", page+"&port=40001", "", append(session, html...)...)
	if status != 200 || !strings.Contains(text, "<bdi>mia</bdi>") || !strings.Contains(text, "<bdi>&lt;b&gt;mia@laptop</bdi>") || !strings.Contains(text, Check(challenge)) || strings.Contains(text, "paste") {
		t.Errorf("%d %s", status, text)
	}
	if _, text := n.call(t, "GET", page, "", append(session, html...)...); !strings.Contains(text, "give it to nobody") {
		t.Errorf("by hand: %s", text)
	}
	for what, c := range map[string]struct {
		method, path, body string
		headers            []string
		status             int
	}{
		"a port of the system":         {"GET", page + "&port=80", "", session, 400},
		"no port":                      {"GET", page + "&port=0", "", session, 400},
		"a bad challenge":              {"GET", "/auth/cli?challenge=x&label=y", "", session, 400},
		"a label that turns the text":  {"GET", "/auth/cli?challenge=" + challenge + "&label=%E2%80%AEx", "", session, 400},
		"approved by nobody":           {"POST", "/auth/cli/approve", `{}`, inJSON, 401},
		"approved by a form":           {"POST", "/auth/cli/approve", `{"challenge":"` + challenge + `","port":0,"label":"x"}`, append(session, "Content-Type", "text/plain"), 400},
		"approved by another origin":   {"POST", "/auth/cli/approve", `{"challenge":"` + challenge + `","port":0,"label":"x"}`, append(append(session, inJSON...), "Origin", "https://evil.example"), 403},
		"approved with a system port":  {"POST", "/auth/cli/approve", `{"challenge":"` + challenge + `","port":22,"label":"x"}`, append(session, inJSON...), 400},
		"approved with another member": {"POST", "/auth/cli/approve", `{"challenge":"` + challenge + `","port":0,"label":"x","host":"evil"}`, append(session, inJSON...), 400},
	} {
		if status, answer := n.call(t, c.method, c.path, c.body, c.headers...); status != c.status {
			t.Errorf("%s: %d %s, want %d", what, status, answer, c.status)
		}
	}
	client := *n.Client()
	client.CheckRedirect = noRedirect
	response, err := client.Get(n.URL + page + "&port=40001")
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if to := response.Header.Get("Location"); response.StatusCode != 303 || !strings.HasPrefix(to, "/auth/login?return_to=%2Fauth%2Fcli%3Fchallenge%3D") {
		t.Errorf("without a session: %d to %s", response.StatusCode, to)
	}
}
