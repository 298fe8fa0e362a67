package client

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"getwork/assign"
)

// asProxy makes calls as a proxy does that names their user.
type asProxy struct {
	http.RoundTripper
	secret, user, groups string
}

func (p asProxy) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	for name, value := range map[string]string{"X-Getwork-Proxy-Secret": p.secret, "X-Forwarded-User": p.user, "X-Forwarded-Groups": p.groups} {
		r.Header.Set(name, value)
	}
	return p.RoundTripper.RoundTrip(r)
}

// everyCallAboutPeople makes each call about people, sessions and tokens once, at a node whose proxy names users.
func everyCallAboutPeople(t *testing.T, seen *recorder) {
	const secret = "0123456789abcdef0123456789abcdef"
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte(secret), 0o600); err != nil {
		t.Fatal(err)
	}
	address, stop, err := launch("people", "--auth", "proxy", "--public-url", "http://127.0.0.1:0", "--trust-query-writers", "--trusted-proxy", "127.0.0.1",
		"--proxy-secret-file", file, "--grant", "manager=chiefs", "--grant", "worker=desk", "--grant", "admin=it")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	if err := awaitReady(address); err != nil {
		t.Fatal(err)
	}
	client := func(user, groups string) *Client {
		return &Client{URL: address, HTTP: &http.Client{Transport: asProxy{seen, secret, user, groups}}}
	}
	ctx, ada, mia := t.Context(), client("Ada", "it"), client("Mia", "chiefs")
	if me := must[Me](t)(mia.WhoAmI(ctx)); me.User != "Mia" || me.Role != "manager" {
		t.Fatalf("Mia is %+v", me)
	}
	if err := mia.Active(ctx); err != nil {
		t.Error(err)
	}
	made := must[MadeToken](t)(mia.CreateToken(ctx, NewToken{Label: "report", Scopes: []string{"read"}, ExpiresIn: assign.Duration(time.Hour)}))
	if me := must[Me](t)((&Client{URL: address, Token: made.Secret}).WhoAmI(ctx)); me.User != "Mia" || made.User != "Mia" || len(made.ID) != 12 {
		t.Errorf("with the token I am %+v; it is %+v", me, made.Token)
	}
	if tokens := must[[]assign.Token](t)(ada.ListTokens(ctx, "Mia")); len(tokens) != 1 || tokens[0].ID != made.ID || tokens[0].Label != "report" {
		t.Errorf("Mia's tokens: %+v", tokens)
	}
	if _, err := mia.ListTokens(ctx, "Ada"); KindOf(err) != assign.NotFound {
		t.Errorf("another's tokens: %v", err)
	}
	if err := mia.EndToken(ctx, made.ID); err != nil {
		t.Error(err)
	}
	if tokens := must[[]assign.Token](t)(mia.ListTokens(ctx, "")); len(tokens) != 0 {
		t.Errorf("after their end: %+v", tokens)
	}
	// Behind a proxy nobody has a session.
	if sessions := must[[]Session](t)(mia.ListSessions(ctx, "")); len(sessions) != 0 {
		t.Errorf("sessions %+v", sessions)
	}
	if err := ada.EndSessions(ctx, "Mia"); err != nil {
		t.Error(err)
	}
	if err := mia.EndSession(ctx, "nothing"); KindOf(err) != assign.NotFound || !strings.Contains(err.Error(), "no live session") {
		t.Errorf("an end of no session: %v", err)
	} else {
		seen.calls = append(seen.calls, "DELETE "+api+"/sessions/nothing") // the operation has answered
	}
	if users := must[Page[assign.User]](t)(ada.ListUsers(ctx, UserFilter{Search: "mi"})); len(users.Rows) != 1 || users.Rows[0].Subject != "Mia" {
		t.Errorf("users %+v", users)
	}
	if u := must[assign.ChangedUser](t)(ada.BlockUser(ctx, "Mia", assign.UserChange{Blocked: true, WithServices: true})); !u.Blocked {
		t.Errorf("blocked: %+v", u)
	}
	if _, err := mia.WhoAmI(ctx); KindOf(err) != assign.Forbidden {
		t.Errorf("Mia is blocked, and is answered %v", err)
	}
	if u := must[assign.ChangedUser](t)(ada.BlockUser(ctx, "Mia", assign.UserChange{})); u.Blocked {
		t.Errorf("let in: %+v", u)
	}
	if u := must[assign.User](t)(ada.RebindUser(ctx, "Mia", "proxy", "Maria")); u.Name != "Mia" || u.Subject != "Maria" {
		t.Errorf("rebound: %+v", u)
	}
}
