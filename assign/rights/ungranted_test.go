package rights

import (
	"slices"
	"strings"
	"testing"

	"getwork/assign"
)

// A provider that gives somebody no role any more ends all that they have: sessions, and with their role what their tokens allow.
// With a new role the tokens work again.
func TestUngranted(t *testing.T) {
	t.Parallel()
	var asked calls
	d := newDesk(t, asked.into)
	here, elsewhere := d.logIn(t, "ann", assign.RoleManager, ""), d.logIn(t, "ann", assign.RoleManager, "")
	ann, err := d.session(t, here)
	if err != nil {
		t.Fatal(err)
	}
	token, made, err := d.CreateToken(t.Context(), NewToken{Label: "script", Scopes: Scopes, Role: ann.Role, By: ann.Principal})
	if err != nil {
		t.Fatal(err)
	}
	shown, err := d.token(t, token)
	channels := map[*followed]End{d.follow(t, ann, nil): EndOver, d.follow(t, shown, err): EndBlocked}
	bob := d.logIn(t, "bob", assign.RoleWorker, "")
	for f := range channels {
		d.look(t, f, "")
	}
	asked.cancelled = nil
	for range 2 { // the second time there is nothing left to end
		if err := d.Ungranted(t.Context(), "idp", "sub of ann", "refresh"); err != nil {
			t.Fatal(err)
		}
	}
	for f, want := range channels {
		d.look(t, f, want)
	}
	for _, cookie := range []string{here, elsewhere} {
		if _, err := d.session(t, cookie); why(err) != WhyEnded {
			t.Errorf("a session: %v", err)
		}
	}
	if _, err := d.token(t, token); why(err) != WhyRole || !assign.IsRefusal(err, assign.Forbidden) {
		t.Errorf("a token: %v", err)
	}
	if len(asked.cancelled) != 1 || !strings.Contains(asked.cancelled[0], string(ByToken(made.ID))) || strings.Count(asked.cancelled[0], "s:") != 2 || strings.Contains(asked.cancelled[0], "j:") {
		t.Errorf("cancelled %q", asked.cancelled)
	}
	if n := d.count(t, `select count(*) from getwork.audit where act = 'user.change' and object = 'ann' and detail->>'role' = '' and detail->>'by' = 'refresh'`); n != 1 {
		t.Errorf("the change is audited %d times", n)
	}
	if _, err := d.session(t, bob); err != nil {
		t.Error("somebody else's session:", err)
	}
	if err := d.Ungranted(t.Context(), "idp", "nobody", "log-in"); err != nil {
		t.Error("an account without a name:", err)
	}
	d.logIn(t, "ann", assign.RoleWorker, "")
	if r, err := d.token(t, token); err != nil || r.Role != assign.RoleWorker || !slices.Equal(r.Groups, []string{"desk"}) {
		t.Errorf("with a role again: %+v %v", r, err)
	}
}

// Whoever has a name here, and comes without a role, is in the audit, once an hour; strangers are not.
func TestRefusedWithoutARole(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.logIn(t, "ann", assign.RoleWorker, "")
	for _, sub := range []string{"sub of ann", "sub of ann", "nobody"} {
		if err := d.Ungranted(t.Context(), "idp", sub, "log-in"); err != nil {
			t.Fatal(err)
		}
	}
	if n := d.count(t, `select count(*) from getwork.audit where act = 'log-in' and outcome = 'refused' and object = 'ann' and detail->>'why' = 'no-grant'`); n != 1 {
		t.Errorf("%d rows of the audit, want 1", n)
	}
	if n := d.count(t, `select count(*) from getwork.audit where outcome = 'refused'`); n != 1 {
		t.Errorf("%d refusals in the audit, want 1", n)
	}
}
