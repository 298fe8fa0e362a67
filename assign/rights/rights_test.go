package rights

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"getwork/assign"
)

func TestNames(t *testing.T) {
	t.Parallel()
	for name, good := range map[string]bool{
		"oliver": true, "Zoë": true, "Иван": true, "Νίκος": true, "李 雷": true, "o'neil": true, "Ann Lee": true, "agent-7": true,
		"mi\u0430":                     false, // a Cyrillic letter
		"Zoe\u0308":                    false, // not normalised
		"Ann  Lee":                     false,
		" ann":                         false,
		"ann\u200b":                    false,
		"ann\u2028":                    false,
		"\ue000":                       false, // private use
		"a\u0378":                      false, // unassigned
		"":                             false,
		"ann\n":                        false,
		"αlpha":                        false,
		"a\u202eb":                     false,
		"tab\there":                    false,
		"x" + strings.Repeat("y", 128): false,
	} {
		if err := CheckName(name); (err == nil) != good {
			t.Errorf("%q: %v", name, err)
		}
	}
	for a, b := range map[string]string{"Mia": "mia", "ｍｉａ": "mia", "ﬁn": "fin"} {
		if nameKey(a) != nameKey(b) {
			t.Errorf("%q and %q are told apart", a, b)
		}
	}
}

func TestTokenForm(t *testing.T) {
	t.Parallel()
	id, token := newToken()
	if got, ok := tokenID(token); !ok || got != id {
		t.Fatalf("%s: %s, %v", token, got, ok)
	}
	for i := range token { // each character counts
		other := byte('x')
		if token[i] == other {
			other = 'y'
		}
		if _, ok := tokenID(token[:i] + string(other) + token[i+1:]); ok {
			t.Errorf("character %d may be another", i)
		}
	}
	if _, ok := tokenID(token + "x"); ok {
		t.Error("it may be longer")
	}
}

func TestTokenAllowsWhatItsOwnerMayNow(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	cookie := d.logIn(t, "mia", assign.RoleManager, "")
	mia, err := d.session(t, cookie)
	if err != nil {
		t.Fatal(err)
	}
	token, made, err := d.CreateToken(t.Context(), NewToken{Label: "script", Scopes: []string{"work", "read", "read"}, Tasks: []string{"loans"}, Role: mia.Role, By: mia.Principal})
	if err != nil {
		t.Fatal(err)
	}
	if made.User != "mia" || made.MadeBy != "mia" || made.Kind != "personal" || strings.Join(made.Scopes, " ") != "read work" {
		t.Errorf("made %+v", made)
	}
	const stored = `
select count(*) from getwork.token where strpos(token::text, $1) > 0 or strpos(token::text, encode(convert_to($1, 'UTF8'), 'hex')) > 0`
	for from := 16; from+8 <= len(token); from += 8 { // the secret, in text or in bytes, or a part of it
		if n := d.count(t, stored, token[from:from+8]); n != 0 {
			t.Errorf("%s, of the secret of %s, is in the table", token[from:from+8], token)
		}
	}
	check := func(want string, role assign.Role) {
		t.Helper()
		r, err := d.token(t, token)
		if why(err) != want || err == nil && r.Role != role {
			t.Errorf("role %q, %q; want %q, %q", r.Role, why(err), role, want)
		}
	}
	check("", assign.RoleManager)
	d.logIn(t, "mia", assign.RoleWorker, cookie)
	check("", assign.RoleWorker)
	d.exec(t, "update getwork.principal set seen_at = seen_at - interval '721 hours'")
	check(WhyOwner, "")
	d.exec(t, "update getwork.principal set seen_at = clock_timestamp()")
	if _, err := d.Block(t.Context(), "mia", assign.UserChange{Blocked: true}); err != nil {
		t.Fatal(err)
	}
	check(WhyBlocked, "")
	if _, err := d.Block(t.Context(), "mia", assign.UserChange{Blocked: false}); err != nil {
		t.Fatal(err)
	}
	check("", assign.RoleWorker)
	d.exec(t, "update getwork.token set expires_at = clock_timestamp()")
	check(WhyExpired, "")
	d.exec(t, "update getwork.token set expires_at = clock_timestamp() + interval '1 hour'")
	if err := d.EndToken(t.Context(), made.ID, "mia", mia.Principal); err != nil {
		t.Fatal(err)
	}
	check(WhyEnded, "")
	if err := d.EndToken(t.Context(), made.ID, "mia", mia.Principal); err != nil {
		t.Error("ending it again:", err)
	}
	if _, err := d.token(t, token[:20]+"AAAA"+token[24:]); why(err) != WhyUnknown {
		t.Error("a wrong sum:", why(err))
	}
	forged := "gw_" + made.ID + "_" + strings.Repeat("A", secretLength)
	if _, err := d.token(t, forged+sumOf(forged)); why(err) != WhyWrong {
		t.Error("a wrong secret:", why(err))
	}
}

// Only a token that is made on the database has the admin bit, and not for long; and no service takes a person's name.
func TestAdminTokens(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	mia, err := d.session(t, d.logIn(t, "mia", assign.RoleManager, ""))
	if err != nil {
		t.Fatal(err)
	}
	made := func(n NewToken) error {
		n.Label, n.Scopes, n.Role, n.Admin = "x", Scopes, assign.RoleManager, n.Service != "mia"
		token, shown, err := d.CreateToken(t.Context(), n)
		if err != nil {
			return err
		}
		r, err := d.token(t, token)
		if err != nil || !r.Admin || !shown.Admin || r.Left > 24*time.Hour {
			t.Errorf("made %+v, which allows %+v, %v", shown, r, err)
		}
		return nil
	}
	for what, c := range map[string]struct {
		NewToken
		kind assign.Kind
	}{
		"on the database":     {NewToken{Service: "ops", From: "root@db1"}, ""},
		"the same again":      {NewToken{Service: "ops", Expires: 24 * time.Hour}, ""},
		"for too long":        {NewToken{Service: "ops", Expires: 25 * time.Hour}, assign.Invalid},
		"by somebody":         {NewToken{Service: "ops", By: mia.Principal}, assign.Forbidden},
		"personal":            {NewToken{By: mia.Principal}, assign.Forbidden},
		"of a person's name":  {NewToken{Service: "mia"}, assign.NameTaken},
		"of a name like hers": {NewToken{Service: "Mia"}, assign.NameTaken},
		"of a bad name":       {NewToken{Service: "a  b"}, assign.Invalid},
	} {
		err := made(c.NewToken)
		var r *assign.Refusal
		if c.kind == "" && err != nil || c.kind != "" && (!errors.As(err, &r) || r.Kind != c.kind) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if n := d.count(t, "select count(*) from getwork.audit where act = 'token.create' and detail->>'from' = 'root@db1'"); n != 1 {
		t.Errorf("%d acts say who made the token", n)
	}
}

// The first token of a service gives it its groups. A later one can't silently ask for others.
func TestGroupsOfAService(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	made := func(service string, groups ...string) error {
		_, _, err := d.CreateToken(t.Context(), NewToken{Label: "x", Scopes: []string{ScopeRead}, Service: service, Role: assign.RoleWorker, Groups: groups})
		return err
	}
	for _, c := range []struct {
		service string
		groups  []string
		want    string // what the refusal says
	}{
		{"robot", []string{"desk", "board"}, ""},
		{"robot", nil, ""},
		{"robot", []string{"board", "desk", "desk"}, ""},
		{"robot", []string{"desk"}, `"robot" is in the groups desk, board; leave the groups out`},
		{"robot", []string{"desk", "vault"}, `"robot" is in the groups desk, board; leave the groups out`},
		{"robot", []string{}, `"robot" is in the groups desk, board; leave the groups out`},
		{"loner", nil, ""},
		{"loner", []string{}, ""},
		{"loner", []string{"desk"}, `"loner" is in no group; leave the groups out`},
	} {
		err := made(c.service, c.groups...)
		if c.want == "" && err != nil || c.want != "" && (!assign.IsRefusal(err, assign.Exists) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s with %q: %v", c.service, c.groups, err)
		}
	}
}

func TestRolesInCommon(t *testing.T) {
	t.Parallel()
	for _, c := range [][3]assign.Role{
		{assign.RoleManager, assign.RoleWorker, assign.RoleWorker}, {assign.RoleAgent, assign.RoleWorker, assign.RoleWorker},
		{assign.RoleObserver, assign.RoleWorker, ""}, {assign.RoleObserver, assign.RoleManager, assign.RoleObserver},
		{assign.RoleAgent, assign.RoleObserver, ""}, {assign.RoleAgent, assign.RoleAgent, assign.RoleAgent},
	} {
		if got := c[0].Both(c[1]); got != c[2] || c[1].Both(c[0]) != got {
			t.Errorf("%s and %s: %q, want %q", c[0], c[1], got, c[2])
		}
	}
}

func TestWrongTokens(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	good := NewToken{Label: "x", Scopes: []string{"read"}, Service: "robot", Role: assign.RoleAgent}
	for what, change := range map[string]func(*NewToken){
		"no label":        func(n *NewToken) { n.Label = "" },
		"a line break":    func(n *NewToken) { n.Label = "a\nb" },
		"no scope":        func(n *NewToken) { n.Scopes = nil },
		"another scope":   func(n *NewToken) { n.Scopes = []string{"write"} },
		"no task":         func(n *NewToken) { n.Tasks = []string{} },
		"no name":         func(n *NewToken) { n.Tasks = []string{"A B"} },
		"too long":        func(n *NewToken) { n.Expires = 8785 * time.Hour },
		"too short":       func(n *NewToken) { n.Expires = time.Second },
		"another role":    func(n *NewToken) { n.Role = "boss" },
		"a wrong service": func(n *NewToken) { n.Service = "ro\u0431ot" },
	} {
		n := good
		change(&n)
		if _, _, err := d.CreateToken(t.Context(), n); err == nil {
			t.Error(what, "is taken")
		}
	}
	d.service(t, "robot", assign.RoleAgent)
	for what, n := range map[string]NewToken{
		"another role of the service": {Label: "x", Scopes: []string{"read"}, Service: "robot", Role: assign.RoleManager},
		"a name that looks the same":  {Label: "x", Scopes: []string{"read"}, Service: "Robot", Role: assign.RoleAgent},
	} {
		if _, _, err := d.CreateToken(t.Context(), n); err == nil {
			t.Error(what, "is taken")
		}
	}
	if n := d.count(t, "select count(*) from getwork.audit where act = 'token.create'"); n != 1 {
		t.Errorf("%d rows of the audit, want 1: what was refused did not happen", n)
	}
}

func TestLogIn(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	first := d.logIn(t, "oliver", assign.RoleWorker, "")
	second := d.logIn(t, "oliver", assign.RoleWorker, first)
	if _, err := d.session(t, first); why(err) != WhyEnded {
		t.Error("the browser's former session:", why(err))
	}
	if r, err := d.session(t, second); err != nil || r.User != "oliver" || r.Left < 29*time.Minute || r.Left > 30*time.Minute {
		t.Errorf("%+v %v", r, err)
	}
	// The same name from another account, and the same account with another name.
	_, err := d.Begin(t.Context(), LogIn{Entry: Entry{Iss: "idp", Sub: "another", Name: "Oliver", Role: assign.RoleWorker}, Max: time.Hour})
	if !assign.IsRefusal(err, assign.NameTaken) {
		t.Error("a taken name:", err)
	}
	if n := d.count(t, "select count(*) from getwork.audit where act = 'log-in' and outcome = 'refused'"); n != 1 {
		t.Errorf("%d refused log-ins are audited, want 1", n)
	}
	begun, err := d.Begin(t.Context(), LogIn{Entry: Entry{Iss: "idp", Sub: "sub of oliver", Name: "ollie", Role: assign.RoleWorker}, Max: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	if r, _ := d.session(t, begun.Cookie); r.User != "oliver" {
		t.Errorf("renamed to %q", r.User)
	}
	for range maxSessions {
		d.logIn(t, "oliver", assign.RoleWorker, "")
	}
	if sessions, err := d.Sessions(t.Context(), "oliver"); err != nil || len(sessions) != maxSessions {
		t.Errorf("%d sessions %v, want %d", len(sessions), err, maxSessions)
	}
	if _, err := d.session(t, begun.Cookie); why(err) != WhyEnded {
		t.Error("the oldest of too many:", why(err))
	}
	if _, err := d.Block(t.Context(), "oliver", assign.UserChange{Blocked: true}); err != nil {
		t.Fatal(err)
	}
	_, err = d.Begin(t.Context(), LogIn{Entry: Entry{Iss: "idp", Sub: "sub of oliver", Name: "oliver", Role: assign.RoleWorker}, Max: time.Hour})
	if why(err) != WhyBlocked {
		t.Error("a blocked user logs in:", err)
	}
}

// Whatever waits under the credentials that a log-in changes is locked at once, before any of it is changed.
func TestLogInLocksFirst(t *testing.T) {
	t.Parallel()
	var c calls
	d := newDesk(t, c.into)
	former := d.logIn(t, "bob", assign.RoleWorker, "")
	of := func(cookie string) string {
		r, err := d.session(t, cookie)
		if err != nil {
			t.Fatal(err)
		}
		return string(r.Credential)
	}
	var anns []string
	for range maxSessions {
		anns = append(anns, of(d.logIn(t, "ann", assign.RoleWorker, "")))
	}
	all := append(anns, of(former))
	d.exec(t, `update getwork.principal set groups = '{other}'`) // so that the log-in changes them
	c.steps = nil
	d.logIn(t, "ann", assign.RoleWorker, former)
	if len(c.steps) != 4 || !strings.HasPrefix(c.steps[0], "lock ") || !strings.HasPrefix(c.steps[1], "rebind ") ||
		!strings.HasPrefix(c.steps[2], "regroup ") || !strings.HasPrefix(c.steps[3], "cancel ") {
		t.Fatalf("a log-in does this: %q", c.steps)
	}
	for _, credential := range all {
		if !strings.Contains(c.steps[0], credential) {
			t.Errorf("%s, want also %s", c.steps[0], credential)
		}
	}
}

func TestRebind(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	cookie := d.logIn(t, "tracy", assign.RoleWorker, "")
	d.exec(t, "update getwork.principal set kind = 'service'") // the name was a program's before
	if _, err := d.RebindUser(t.Context(), "tracy", "idp", "new"); err != nil {
		t.Fatal(err)
	}
	if n := d.count(t, "select count(*) from getwork.principal where kind = 'person'"); n != 1 {
		t.Error("a person's tokens are not bound to their log-ins")
	}
	if _, err := d.session(t, cookie); why(err) != WhyEnded {
		t.Error("what the former account had:", why(err))
	}
	if _, err := d.Begin(t.Context(), LogIn{Entry: Entry{Iss: "idp", Sub: "new", Name: "t", Role: assign.RoleWorker}, Max: time.Hour}); err != nil {
		t.Error("the new account:", err)
	}
	if _, err := d.RebindUser(t.Context(), "nobody", "idp", "x"); !assign.IsRefusal(err, assign.NotFound) {
		t.Error("nobody:", err)
	}
}

func TestOnce(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	what := [32]byte{1}
	for i, want := range []bool{true, false, false} {
		if first, err := d.Once(t.Context(), what, time.Now().Add(time.Hour)); err != nil || first != want {
			t.Errorf("time %d: %v %v", i, first, err)
		}
	}
}

func TestUnknownCredentialsAskLittle(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	token, _ := d.service(t, "robot", assign.RoleAgent)
	if _, err := d.Token(t.Context(), token); err != nil {
		t.Fatal(err)
	}
	overloaded := 0
	for range 10 * askMost {
		_, unknown := newToken()
		switch _, err := d.Token(t.Context(), unknown); why(err) {
		case WhyOverload:
			overloaded++
		case WhyUnknown:
		default:
			t.Fatal(err)
		}
	}
	if overloaded == 0 {
		t.Error("each unknown token was looked up")
	}
	if _, err := d.token(t, token); err != nil {
		t.Error("a good one meanwhile:", err)
	}
}

// Everybody comes back at once to a node that has just started, which has seen nobody yet.
func TestKnownCredentialsAfterAStart(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	const users = 6 * askMost
	d.exec(t, `
with entered as (
  insert into getwork.principal (name, name_key, iss, sub, kind, role, groups)
  select 'user ' || n, 'user ' || n, 'idp', n::text, 'person', 'worker', '{}' from generate_series(1, $1::integer) n
  returning id, sub
)
insert into getwork.session (id, public_id, principal, role, admin, groups, auth_time, idle_at, ends_at)
select sha256(convert_to('cookie ' || sub, 'UTF8')), lpad(sub, 12, '0'), id, 'worker', false, '{}', clock_timestamp(), clock_timestamp() + interval '30 minutes', clock_timestamp() + interval '10 hours'
from entered`, users)
	var all errgroup.Group
	for i := range users {
		all.Go(func() error {
			_, err := d.Session(t.Context(), fmt.Sprint("cookie ", i+1))
			return err
		})
	}
	if err := all.Wait(); err != nil {
		t.Error(err)
	}
}

// The provider is asked about a session by one node at a time, and what it says is stored only while the claim lasts.
func TestRefreshIsClaimed(t *testing.T) {
	t.Parallel()
	var asked calls
	d := newDesk(t, asked.into)
	begun, err := d.Begin(t.Context(), LogIn{Entry: Entry{Iss: "idp", Sub: "1", Name: "ann", Role: assign.RoleWorker}, Max: time.Hour,
		Seal: func([]byte) ([]byte, []byte, error) { return []byte("sealed"), nil, nil }})
	if err != nil {
		t.Fatal(err)
	}
	claims := func() []Claim {
		t.Helper()
		c, err := d.watch.ClaimRefresh(t.Context(), 2)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	d.exec(t, "update getwork.session set refreshed_at = refreshed_at - interval '11 minutes'")
	if c := claims(); len(c) != 0 {
		t.Error("claimed though nobody uses it here")
	}
	r, err := d.session(t, begun.Cookie)
	f := d.follow(t, r, err)
	d.look(t, f, "")
	var before time.Time // by the database's clock
	if err := d.db.QueryRow(t.Context(), "select clock_timestamp()").Scan(&before); err != nil {
		t.Fatal(err)
	}
	first := claims()
	if len(first) != 1 || string(first[0].Sealed) != "sealed" || first[0].Sub != "1" {
		t.Fatalf("%+v", first)
	}
	if c := claims(); len(c) != 0 {
		t.Error("claimed twice")
	}
	// 8 s to ask, and a minute to store.
	if n := d.count(t, "select count(*) from getwork.session where refreshing_until - interval '68 seconds' > $1", before); n != 1 {
		t.Error("it can be claimed while its node may still be storing the answer")
	}
	d.exec(t, "update getwork.session set refreshing_until = clock_timestamp() - interval '1 second'") // that node has died
	second := claims()
	if len(second) != 1 {
		t.Fatal("not claimed again")
	}
	ends := func(c Claim, want int) {
		t.Helper()
		if ended, err := d.End(t.Context(), Ending{By: "refresh", Claim: &c}); err != nil || len(ended) != want {
			t.Errorf("a refresh ended %d sessions, want %d (%v)", len(ended), want, err)
		}
	}
	ends(first[0], 0) // its claim was lost
	e := Entry{Iss: "idp", Sub: "1", Role: assign.RoleManager, Groups: []string{"new"}}
	if err := d.Refreshed(t.Context(), first[0], []byte("late"), e); err != nil {
		t.Fatal(err)
	}
	if r, err := d.session(t, begun.Cookie); err != nil || r.Role != assign.RoleWorker {
		t.Errorf("a claim that had run out was stored: %+v %v", r, err)
	}
	if err := d.Unrefreshed(t.Context(), second[0], nil); err != nil {
		t.Fatal(err)
	}
	if c := claims(); len(c) != 0 {
		t.Error("asked again at once after the provider did not answer")
	}
	d.exec(t, "update getwork.session set refreshing_until = null")
	third := claims()
	if err := d.Refreshed(t.Context(), third[0], []byte("next"), e); err != nil {
		t.Fatal(err)
	}
	if r, err := d.session(t, begun.Cookie); err != nil || r.Role != assign.RoleManager || r.Groups[0] != "new" {
		t.Errorf("%+v %v", r, err)
	}
	d.look(t, f, EndChanged)
	// A node that did not hear of its commit tries again.
	if err := d.Refreshed(t.Context(), third[0], []byte("again"), e); err != nil {
		t.Fatal(err)
	}
	if err := d.Unrefreshed(t.Context(), third[0], []byte("again")); err != nil {
		t.Fatal(err)
	}
	ends(third[0], 0) // it was confirmed since
	if n := d.count(t, "select count(*) from getwork.session where refresh = 'next' and refreshing_until is null"); n != 1 {
		t.Error("the next refresh token was not stored")
	}
	d.exec(t, "update getwork.principal set admin = true, groups = '{other}'") // by another session, since when the provider has changed its mind
	d.exec(t, "update getwork.session set refreshed_at = refreshed_at - interval '11 minutes'")
	r, err = d.session(t, begun.Cookie)
	f = d.follow(t, r, err)
	d.look(t, f, "")
	fourth := claims()
	if len(fourth) != 1 {
		t.Fatal("not claimed after ten minutes")
	}
	if err := d.Refreshed(t.Context(), fourth[0], nil, e); err != nil {
		t.Fatal(err)
	}
	if n := d.count(t, "select count(*) from getwork.principal where role = 'manager' and not admin and groups = '{new}'"); n != 1 {
		t.Error("the principal, by whom tokens are judged, keeps rights that the provider has just not named")
	}
	if len(asked.regrouped) != 0 {
		t.Errorf("a manager, who needs no groups, waits with some: %q", asked.regrouped)
	}
	d.exec(t, "update getwork.session set refreshed_at = refreshed_at - interval '11 minutes'")
	r, err = d.session(t, begun.Cookie)
	d.look(t, d.follow(t, r, err), "")
	fifth := claims()
	if len(fifth) != 1 {
		t.Fatal("not claimed after ten minutes more")
	}
	e.Role = assign.RoleWorker
	if err := d.Refreshed(t.Context(), fifth[0], nil, e); err != nil {
		t.Fatal(err)
	}
	if len(asked.regrouped) != 1 || !strings.HasSuffix(asked.regrouped[0], "[new]") {
		t.Errorf("a worker's requests are given the groups %q", asked.regrouped)
	}
	d.exec(t, "update getwork.session set refreshed_at = refreshed_at - interval '11 minutes'")
	r, err = d.session(t, begun.Cookie)
	d.look(t, d.follow(t, r, err), "")
	ends(claims()[0], 1)
}

// A session that only a terminal uses, by its calls or by a live channel, is refreshed like one that a browser uses.
func TestTerminalsRefreshTheirSession(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	begun, err := d.Begin(t.Context(), LogIn{Entry: Entry{Iss: "idp", Sub: "1", Name: "ann", Role: assign.RoleWorker}, Max: time.Hour,
		Seal: func([]byte) ([]byte, []byte, error) { return []byte("sealed"), nil, nil }})
	if err != nil {
		t.Fatal(err)
	}
	session, err := d.session(t, begun.Cookie)
	if err != nil {
		t.Fatal(err)
	}
	terminal := d.terminal(t, &session)
	stale := func() {
		t.Helper()
		d.uses.lately(0) // nobody has used it here
		d.exec(t, "update getwork.session set refreshed_at = refreshed_at - interval '11 minutes', refreshing_until = null")
	}
	claimed := func(when string, want int) {
		t.Helper()
		if c, err := d.watch.ClaimRefresh(t.Context(), 2); err != nil || len(c) != want {
			t.Errorf("%s: claimed %+v, %v; want %d", when, c, err, want)
		}
	}
	stale()
	claimed("unused", 0)
	r, err := d.token(t, terminal)
	if err != nil {
		t.Fatal(err)
	}
	claimed("after a call", 1)
	stale()
	d.follow(t, r, nil)
	claimed("with a live channel", 1)
}

// terminal logs in a terminal of a session, and returns its token.
func (d *desk) terminal(t *testing.T, session *Rights) (token string) {
	t.Helper()
	const verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"
	code, err := d.ApproveTerminal(t.Context(), session, Challenge(verifier), "ann@laptop")
	if err != nil {
		t.Fatal(err)
	}
	terminal, err := d.RedeemCode(t.Context(), code, verifier)
	if err != nil {
		t.Fatal(err)
	}
	return terminal.Token
}

// A provider's message that is sent twice ends nothing the second time.
func TestLogOutMessageCountsOnce(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	for i, want := range []int{1, 0} {
		d.logIn(t, "ann", assign.RoleWorker, "")
		ended, err := d.End(t.Context(), Ending{By: "provider", Iss: "idp", Sub: "sub of ann", Once: &[32]byte{7}, Until: time.Now().Add(time.Hour)})
		if err != nil || len(ended) != want {
			t.Errorf("message %d: %+v %v", i, ended, err)
		}
	}
}

// What ended long ago is removed; what lives, or ended lately, stays.
func TestTidy(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.logIn(t, "ann", assign.RoleWorker, "")
	old := d.logIn(t, "bob", assign.RoleWorker, "")
	_, id := d.service(t, "robot", assign.RoleAgent)
	d.service(t, "other", assign.RoleAgent)
	d.exec(t, "update getwork.session set ended_at = clock_timestamp() - interval '31 days', ended_by = 'x' where id = $1", Hash(old))
	d.exec(t, "update getwork.token set ended_at = clock_timestamp() - interval '31 days', ended_by = 'x' where id = $1", id)
	d.exec(t, "insert into getwork.once values ('a', clock_timestamp()), ('b', clock_timestamp() + interval '1 hour')")
	d.watch.tidy(t.Context())
	for table, want := range map[string]int{"session": 1, "token": 1, "once": 1, "principal": 4} {
		if n := d.count(t, "select count(*) from getwork."+table); n != want {
			t.Errorf("%d rows of %s, want %d", n, table, want)
		}
	}
}

// A session or a token that ends by time has its row in the audit, once, as one that somebody ends has. What waits under it waits on.
func TestEndsByTimeAreAudited(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	rows := func() (got []string) {
		t.Helper()
		found, err := d.db.Query(t.Context(), `select concat_ws(' ', act, object, detail ->> 'by', detail -> 'credentials', detail ->> 'at', actor) from getwork.audit
			where act in ('session.end', 'token.end') order by n`)
		if err == nil {
			got, err = pgx.CollectRows(found, pgx.RowTo[string])
		}
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	d.watch.tidy(t.Context())
	if got := rows(); len(got) != 0 {
		t.Fatalf("before anything ends: %q", got)
	}
	idle := d.logIn(t, "ann", assign.RoleWorker, "")
	began := time.Now().UTC().Add(-24 * time.Hour)
	at := func(d time.Duration) string { return began.Add(d).Format(time.RFC3339) }
	r, err := d.session(t, idle)
	if err != nil {
		t.Fatal(err)
	}
	ann := string(r.Credential)
	terminal, _, _ := strings.Cut(strings.TrimPrefix(d.terminal(t, &r), "gw_"), "_")
	long := d.logIn(t, "bob", assign.RoleWorker, "")
	d.logIn(t, "cyd", assign.RoleWorker, "")
	_, token := d.service(t, "robot", assign.RoleAgent)
	d.service(t, "other", assign.RoleAgent)
	d.exec(t, "update getwork.session set idle_at = $2 where id = $1", Hash(idle), at(0))
	d.exec(t, "update getwork.session set ends_at = $2 where id = $1", Hash(long), at(time.Hour))
	d.exec(t, "update getwork.token set expires_at = $2 where id = $1", token, at(2*time.Hour))
	d.watch.tidy(t.Context())
	d.watch.tidy(t.Context())
	var bob string
	if err := d.db.QueryRow(t.Context(), "select 's:' || public_id from getwork.session where id = $1", Hash(long)).Scan(&bob); err != nil {
		t.Fatal(err)
	}
	want := []string{
		fmt.Sprintf(`session.end ann idle ["%s", "t:%s"] %s`, ann, terminal, at(0)),
		fmt.Sprintf(`session.end bob expired ["%s"] %s`, bob, at(time.Hour)),
		fmt.Sprintf(`token.end %s expired %s`, token, at(2*time.Hour)),
	}
	if diff := cmp.Diff(want, rows()); diff != "" {
		t.Error(diff)
	}
	if n := d.count(t, "select count(*) from getwork.session where ended_at is not null"); n != 0 {
		t.Errorf("%d sessions have been ended", n)
	}
}

// A user makes ten tokens an hour, of whatever kind. The refusal says when the next one may be made.
func TestTokensInAnHour(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	ann, err := d.session(t, d.logIn(t, "ann", assign.RoleManager, ""))
	if err != nil {
		t.Fatal(err)
	}
	bob, err := d.session(t, d.logIn(t, "bob", assign.RoleWorker, ""))
	if err != nil {
		t.Fatal(err)
	}
	create := func(of Rights, service string) (string, error) {
		_, made, err := d.CreateToken(t.Context(), NewToken{Label: "x", Scopes: []string{ScopeRead}, Role: of.Role, By: of.Principal, Manager: true, Service: service})
		return made.ID, err
	}
	approve := func() error {
		_, err := d.ApproveTerminal(t.Context(), &ann, Challenge("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"), "laptop")
		return err
	}
	for i := range 10 {
		switch i % 3 {
		case 0: // a token that has ended was made all the same
			var id string
			if id, err = create(ann, ""); err == nil {
				err = d.EndToken(t.Context(), id, "ann", ann.Principal)
			}
		case 1:
			_, err = create(ann, "robot")
		case 2:
			err = approve()
		}
		if err != nil {
			t.Fatal(i, err)
		}
	}
	d.exec(t, "update getwork.token set created_at = created_at - interval '20 minutes' where made_by = $1", ann.Principal)
	acts := d.count(t, "select count(*) from getwork.audit")
	for what, again := range map[string]func() error{
		"of her own": func() error { _, err := create(ann, ""); return err }, "of a service": func() error { _, err := create(ann, "robot"); return err },
		"of a new service": func() error { _, err := create(ann, "printer"); return err }, "of a terminal": approve,
	} {
		var r *assign.Refusal
		if err := again(); !errors.As(err, &r) || r.Kind != assign.RateLimited || r.After > 40*time.Minute || r.After < 38*time.Minute || !strings.Contains(r.Detail, "in 40m") {
			t.Errorf("the eleventh, %s: %v (%+v)", what, err, r)
		}
	}
	if n := d.count(t, "select count(*) from getwork.audit"); n != acts {
		t.Errorf("%d acts of refused calls", n-acts)
	}
	if _, err := create(bob, ""); err != nil {
		t.Errorf("somebody else's: %v", err)
	}
	if d.service(t, "robot", ann.Role); t.Failed() {
		return
	}
	d.exec(t, "update getwork.token set created_at = created_at - interval '41 minutes' where id = (select id from getwork.token where made_by = $1 order by created_at limit 1)", ann.Principal)
	if _, err := create(ann, ""); err != nil {
		t.Errorf("an hour after the first: %v", err)
	}
	if _, err := create(ann, ""); !assign.IsRefusal(err, assign.RateLimited) {
		t.Errorf("and one more: %v", err)
	}
	d.exec(t, "update getwork.token set created_at = created_at + interval '3 hours'") // the clock was set back
	if _, err := create(ann, ""); err != nil {
		t.Errorf("after tokens of the future: %v", err)
	}
}

// A user has at most twenty personal tokens that live; one that has ended, or expired, makes room.
func TestTokensOfAUser(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	ann, err := d.session(t, d.logIn(t, "ann", assign.RoleWorker, ""))
	if err != nil {
		t.Fatal(err)
	}
	create := func() (string, error) {
		_, made, err := d.CreateToken(t.Context(), NewToken{Label: "x", Scopes: []string{ScopeRead}, Role: ann.Role, By: ann.Principal})
		return made.ID, err
	}
	var last string
	for range maxTokens {
		d.exec(t, "update getwork.token set created_at = created_at - interval '1 hour'") // no more than ten are made in one
		if last, err = create(); err != nil {
			t.Fatal(err)
		}
	}
	d.exec(t, "update getwork.token set created_at = created_at - interval '1 hour'")
	for _, free := range []func(){
		func() {
			if err := d.EndToken(t.Context(), last, "ann", ann.Principal); err != nil {
				t.Fatal(err)
			}
		},
		func() {
			d.exec(t, "update getwork.token set expires_at = clock_timestamp() where id = (select max(id) from getwork.token where ended_at is null)")
		},
	} {
		if _, err := create(); !assign.IsRefusal(err, assign.InUse) {
			t.Errorf("one more than %d: %v", maxTokens, err)
		}
		free()
		if _, err := create(); err != nil {
			t.Error(err)
		}
	}
}
