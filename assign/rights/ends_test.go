package rights

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"getwork/assign"
	"getwork/schema/schematest"
	"getwork/schema/schematest/timeout"
)

// A change that is refused changes nobody's rights: the node goes on with what it has read. Otherwise a stranger's wrong codes would have
// it read everybody's credentials anew.
func TestRefusedChangesAreQuiet(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	token, id := d.service(t, "robot", assign.RoleManager)
	d.cache.since = time.Now().Add(time.Hour) // nothing is forgotten because of its age
	quiet := func() bool {
		_, cached := d.cache.get("t:" + id)
		return cached && len(d.watch.soon) == 0
	}
	for what, change := range map[string]func() error{
		"a wrong code of a terminal": func() error {
			_, err := d.RedeemCode(t.Context(), strings.Repeat("1", idLength)+"."+strings.Repeat("2", 43), strings.Repeat("3", 43))
			return err
		},
		"a wrong link of a screen": func() error {
			_, err := d.OpenWall(t.Context(), strings.Repeat("1", 43), "", netip.Addr{}, "")
			return err
		},
		"a token that there is not": func() error { return d.EndToken(t.Context(), "none", "ada", 0) },
	} {
		if len(d.watch.soon) > 0 {
			<-d.watch.soon
		}
		if _, err := d.Token(t.Context(), token); err != nil {
			t.Fatal(err)
		}
		err := change()
		var r *assign.Refusal
		if !errors.As(err, &r) {
			t.Errorf("%s: %v", what, err)
		}
		if !quiet() {
			t.Errorf("%s: the node reads everything anew", what)
		}
	}
	if err := d.EndToken(t.Context(), id, "ada", 0); err != nil {
		t.Fatal(err)
	}
	if quiet() {
		t.Error("an end is not looked for")
	}
}

// comesFrom is a log-in of a session that the provider calls so, with an ID token of that time.
func comesFrom(sid string, issued time.Time) LogIn {
	return LogIn{Entry: Entry{Iss: "idp", Sub: "1", Name: "ann", Role: assign.RoleWorker, Groups: []string{}}, SID: sid, Max: time.Hour, IssuedAt: issued}
}

// message is a log-out message of the provider.
func (d *desk) message(ctx context.Context, sid string, issued time.Time, once byte) ([]Ended, error) {
	return d.End(ctx, Ending{By: "provider", Iss: "idp", SID: sid, Sub: "1", Once: &[32]byte{once}, Until: time.Now().Add(time.Hour), IssuedAt: issued})
}

// A message that comes between a log-in's code and its session ends the log-in. A later one is welcome.
func TestLogOutBeforeTheSession(t *testing.T) {
	t.Parallel()
	for name, sid := range map[string]string{"of a session": "s1", "of an account": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t)
			now := time.Now().Truncate(time.Second)
			if ended, err := d.message(t.Context(), sid, now, 1); err != nil || len(ended) > 0 {
				t.Fatal(ended, err)
			}
			for issued, want := range map[time.Duration]assign.Kind{-time.Second: assign.LogInFailed, 0: assign.LogInFailed, time.Second: ""} {
				_, err := d.Begin(t.Context(), comesFrom("s1", now.Add(issued)))
				if got := kindOf(err); got != want {
					t.Errorf("a log-in of %v: %v", issued, err)
				}
			}
			if _, err := d.Begin(t.Context(), comesFrom("s2", now)); (kindOf(err) == assign.LogInFailed) != (sid == "") {
				t.Errorf("another session of the account: %v", err)
			}
			if n := d.count(t, `select count(*) from getwork.session where ended_at is null`); n != map[string]int{"s1": 2, "": 1}[sid] {
				t.Errorf("%d sessions live", n)
			}
		})
	}
}

// A message that comes while the session's row is being written waits, and ends it.
func TestLogOutBesideTheSession(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	now := time.Now().Truncate(time.Second)
	d.logIn(t, "bob", assign.RoleWorker, "")
	d.exec(t, `insert into getwork.principal (name, name_key, iss, sub, kind) values ('ann', 'ann', 'idp', '1', 'person')`)
	tx, err := d.db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(t.Context(), `select from getwork.principal where name = 'ann' for update`); err != nil {
		t.Fatal(err)
	}
	waits := func(n int) {
		timeout.Await(t, "they wait for locks", func() bool {
			return schematest.LockWaits(t, d.db) == n
		})
	}
	begun, over := make(chan error, 1), make(chan []Ended, 1)
	go func() {
		_, err := d.Begin(t.Context(), comesFrom("s1", now))
		begun <- err
	}()
	waits(1) // for the principal's row: it has seen no message
	go func() {
		ended, err := d.message(t.Context(), "s1", now, 1)
		if err != nil {
			t.Error(err)
		}
		over <- ended
	}()
	waits(2)
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-begun; err != nil {
		t.Fatal(err)
	}
	if ended := <-over; len(ended) != 1 || ended[0].User != "ann" {
		t.Errorf("the message ended %v", ended)
	}
}

func kindOf(err error) assign.Kind {
	var r *assign.Refusal
	if errors.As(err, &r) {
		return r.Kind
	}
	if err != nil {
		return assign.Internal
	}
	return ""
}

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
	claim := d.claim(t, "ann")
	for range 2 { // the second time there is nothing left to end
		if err := d.Ungranted(t.Context(), "idp", "sub of ann", &claim); err != nil {
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
	if err := d.Ungranted(t.Context(), "idp", "nobody", nil); err != nil {
		t.Error("an account without a name:", err)
	}
	d.logIn(t, "ann", assign.RoleWorker, "")
	if r, err := d.token(t, token); err != nil || r.Role != assign.RoleWorker || !slices.Equal(r.Groups, []string{"desk"}) {
		t.Errorf("with a role again: %+v %v", r, err)
	}
}

// claim claims a session of somebody, which is followed.
func (d *desk) claim(t *testing.T, user string) Claim {
	t.Helper()
	d.exec(t, `
update getwork.session set refresh = 'sealed', refreshed_at = clock_timestamp() - interval '11 minutes', created_at = created_at - interval '11 minutes'
where principal = (select id from getwork.principal where name = $1)`, user)
	claims, err := d.watch.ClaimRefresh(t.Context(), 1)
	if err != nil || len(claims) != 1 {
		t.Fatalf("claimed %+v, %v; want one", claims, err)
	}
	return claims[0]
}

// The provider says at a refresh that somebody has no role, and the database is away. Meanwhile they get a role again, which a log-in
// or another session's refresh shows. The late answer takes nothing from them, and neither does that of a claim that was lost.
func TestLateUngranted(t *testing.T) {
	t.Parallel()
	again := Entry{Iss: "idp", Sub: "sub of ann", Name: "ann", Role: assign.RoleWorker, Groups: []string{"desk"}}
	for what, since := range map[string]func(t *testing.T, d *desk, other Rights){
		"a log-in": func(t *testing.T, d *desk, _ Rights) { d.logIn(t, "ann", again.Role, "") },
		"a log-in and a log-out": func(t *testing.T, d *desk, _ Rights) {
			if _, err := d.End(t.Context(), Ending{By: "log-out", Cookie: d.logIn(t, "ann", again.Role, "")}); err != nil {
				t.Fatal(err)
			}
		},
		"another session's refresh": func(t *testing.T, d *desk, other Rights) {
			d.follow(t, other, nil)
			if err := d.Refreshed(t.Context(), d.claim(t, "ann"), nil, again); err != nil {
				t.Fatal(err)
			}
		},
		"another claim": func(t *testing.T, d *desk, _ Rights) {
			d.exec(t, `update getwork.session set refreshing_until = clock_timestamp() - interval '1 second' where refreshing_until is not null`)
			d.claim(t, "ann")
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			var asked calls
			d := newDesk(t, asked.into)
			here, elsewhere := d.logIn(t, "ann", assign.RoleWorker, ""), d.logIn(t, "ann", assign.RoleWorker, "")
			r, err := d.session(t, here)
			d.follow(t, r, err)
			other, err := d.session(t, elsewhere)
			if err != nil {
				t.Fatal(err)
			}
			d.uses.lately(0) // only the followed session is in use
			claim := d.claim(t, "ann")
			since(t, d, other)
			asked.cancelled = nil
			if err := d.Ungranted(t.Context(), "idp", "sub of ann", &claim); err != nil {
				t.Fatal(err)
			}
			if n := d.count(t, `select count(*) from getwork.principal where role = 'worker'`); n != 1 {
				t.Error("the role is gone")
			}
			for _, cookie := range []string{here, elsewhere} {
				if _, err := d.session(t, cookie); err != nil {
					t.Errorf("a session: %v", err)
				}
			}
			if len(asked.cancelled) != 0 {
				t.Errorf("cancelled %q", asked.cancelled)
			}
		})
	}
}

// A log-in that came before, also by a clock that was since set back, does not outweigh what the provider says at a refresh. Nor
// does it help that the session ends meanwhile.
func TestUngrantedInTime(t *testing.T) {
	t.Parallel()
	for what, since := range map[string]string{
		"a clock that was set back": `update getwork.session set created_at = clock_timestamp() + interval '1 hour'`,
		"a log-out":                 `update getwork.session set ended_at = clock_timestamp(), ended_by = 'log-out'`,
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t)
			r, err := d.session(t, d.logIn(t, "ann", assign.RoleWorker, ""))
			d.follow(t, r, err)
			claim := d.claim(t, "ann")
			d.exec(t, since)
			if err := d.Ungranted(t.Context(), "idp", "sub of ann", &claim); err != nil {
				t.Fatal(err)
			}
			if n := d.count(t, `select count(*) from getwork.principal where role is null`); n != 1 {
				t.Error("the role stays")
			}
		})
	}
}

// Whoever has a name here, and comes without a role, is in the audit, once an hour; strangers are not.
func TestRefusedWithoutARole(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.logIn(t, "ann", assign.RoleWorker, "")
	for _, sub := range []string{"sub of ann", "sub of ann", "nobody"} {
		if err := d.Ungranted(t.Context(), "idp", sub, nil); err != nil {
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
