package rights

import (
	"context"
	"errors"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"getwork/assign"
	"getwork/assign/audit"
	"getwork/assign/pg"
	"getwork/notify"
	"getwork/schema/schematest"
	"getwork/schema/schematest/timeout"
)

// followed is a live channel.
type followed struct{ ends []End }

func (d *desk) follow(t *testing.T, r Rights, err error) *followed {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	f := &followed{}
	t.Cleanup(d.watch.Follow(&r, 0, func(e End) { f.ends = append(f.ends, e) }))
	return f
}

// look makes the watch poll once, and checks how the channel ended; empty: it goes on.
func (d *desk) look(t *testing.T, f *followed, want End) {
	t.Helper()
	if err := d.watch.look(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.watch.endOver(t.Context())
	var got End
	if len(f.ends) > 0 {
		got = f.ends[0]
	}
	if got != want || len(f.ends) > 1 {
		t.Errorf("ended as %q, want %q", f.ends, want)
	}
}

// Each end of a credential ends what depends on it, at the next poll and not before.
func TestEndsAreSeen(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	for name, c := range map[string]struct {
		token bool
		end   func(t *testing.T, d *desk, r Rights) error
		want  End
	}{
		"log-out": {end: func(t *testing.T, d *desk, r Rights) error {
			_, err := d.End(t.Context(), Ending{By: "log-out", PublicID: string(r.Credential[2:])})
			return err
		}, want: EndOver},
		"by the provider's account": {end: func(t *testing.T, d *desk, r Rights) error {
			_, err := d.End(t.Context(), Ending{By: "provider", Iss: "idp", Sub: "sub of ann"})
			return err
		}, want: EndOver},
		"another account": {end: func(t *testing.T, d *desk, r Rights) error {
			_, err := d.End(t.Context(), Ending{By: "provider", Iss: "idp", Sub: "sub of bob"})
			return err
		}},
		"all of a user": {end: func(t *testing.T, d *desk, r Rights) error {
			_, err := d.End(t.Context(), Ending{By: "admin", User: "ann"})
			return err
		}, want: EndOver},
		"somebody else's": {end: func(t *testing.T, d *desk, r Rights) error {
			_, err := d.End(t.Context(), Ending{By: "bob", User: "ann", Of: r.Principal + 1})
			return err
		}},
		"block": {end: func(t *testing.T, d *desk, r Rights) error {
			_, err := d.Block(t.Context(), "ann", assign.UserChange{Blocked: true})
			return err
		}, want: EndBlocked},
		"rebind": {end: func(t *testing.T, d *desk, r Rights) error {
			_, err := d.RebindUser(t.Context(), "ann", "idp", "new")
			return err
		}, want: EndOver},
		"idle": {end: func(t *testing.T, d *desk, r Rights) error {
			d.exec(t, "update getwork.session set idle_at = clock_timestamp(), changed = pg_current_xact_id()")
			return nil
		}, want: EndOver},
		"a token": {token: true, end: func(t *testing.T, d *desk, r Rights) error {
			return d.EndToken(t.Context(), string(r.Credential[2:]), "admin", 0)
		}, want: EndOver},
		"a token's owner has another role": {token: true, end: func(t *testing.T, d *desk, r Rights) error {
			d.exec(t, "update getwork.principal set role = 'observer', changed = pg_current_xact_id()")
			return nil
		}, want: EndBlocked},
		"a token's owner has other groups": {token: true, end: func(t *testing.T, d *desk, r Rights) error {
			d.exec(t, "update getwork.principal set groups = '{x}', changed = pg_current_xact_id()")
			return nil
		}, want: EndChanged},
		"nothing": {end: func(*testing.T, *desk, Rights) error { return nil }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t)
			r, err := d.session(t, d.logIn(t, "ann", assign.RoleWorker, ""))
			if c.token {
				token, _ := d.service(t, "robot", assign.RoleAgent)
				r, err = d.token(t, token)
			}
			f := d.follow(t, r, err)
			d.look(t, f, "")
			if err := c.end(t, d, r); err != nil {
				t.Fatal(err)
			}
			if len(f.ends) > 0 {
				t.Fatal("ended by something else than a look")
			}
			d.look(t, f, c.want)
		})
	}
}

// A transaction may commit long after others that began later: its change is not visible to a poll between, and must be seen
// by the next.
func TestLateCommitsAreSeen(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	r, err := d.session(t, d.logIn(t, "ann", assign.RoleWorker, ""))
	f := d.follow(t, r, err)
	d.look(t, f, "")
	tx, err := d.db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "update getwork.session set ended_at = clock_timestamp(), ended_by = 'x', changed = pg_current_xact_id()"); err != nil {
		t.Fatal(err)
	}
	d.logIn(t, "bob", assign.RoleWorker, "")
	d.look(t, f, "")
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.look(t, f, EndOver)
}

// What was read of a credential may be older than the poll before the channel follows it.
func TestFollowedTooLate(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	r, err := d.session(t, d.logIn(t, "ann", assign.RoleWorker, ""))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.End(t.Context(), Ending{By: "log-out", User: "ann"}); err != nil {
		t.Fatal(err)
	}
	if err := d.watch.look(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.look(t, d.follow(t, r, nil), EndOver)
}

// After a fail-over to another life of the cluster everything is read again: the former snapshot means nothing there.
func TestAnotherClusterIsReadAgain(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	r, err := d.session(t, d.logIn(t, "ann", assign.RoleWorker, ""))
	f := d.follow(t, r, err)
	d.look(t, f, "")
	d.exec(t, "update getwork.session set ended_at = clock_timestamp(), ended_by = 'x', changed = '1'") // not seen by its transaction
	d.look(t, f, "")
	d.watch.cluster = "another"
	d.look(t, f, EndOver)
}

// A session that is used lives on, and so do its channels; one that is not ends at its time.
func TestIdleSessionsEnd(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	cookie := d.logIn(t, "ann", assign.RoleWorker, "")
	r, err := d.session(t, cookie)
	f := d.follow(t, r, err)
	d.look(t, f, "")
	d.exec(t, "update getwork.session set idle_at = clock_timestamp() + interval '1 minute'")
	d.Used(&r, netip.Addr{}, true)
	d.watch.flushUses(t.Context())
	if again, err := d.session(t, cookie); err != nil || again.Left < 20*time.Minute {
		t.Errorf("after an act: %v %v", again.Left, err)
	}
	for _, l := range d.watch.live[r.Credential] {
		l.until = time.Now().Add(-time.Second)
	}
	d.look(t, f, "")
	d.exec(t, "update getwork.session set idle_at = clock_timestamp()")
	for _, l := range d.watch.live[r.Credential] {
		l.until = time.Now().Add(-time.Second)
	}
	d.look(t, f, EndOver)
}

// A session has an end that is written when it begins, and nothing else needs to be known at that time: not who ended it, and not
// what the provider says.
func TestSessionsExpire(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	begun, err := d.Begin(t.Context(), LogIn{Entry: Entry{Iss: "idp", Sub: "1", Name: "ann", Role: assign.RoleWorker}, Max: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	if left := time.Until(begun.Ends); left < 59*time.Minute || left > 61*time.Minute {
		t.Errorf("it ends in %s", left)
	}
	r, err := d.session(t, begun.Cookie)
	f := d.follow(t, r, err)
	d.look(t, f, "")
	d.exec(t, "update getwork.session set ends_at = clock_timestamp(), idle_at = clock_timestamp() + interval '1 hour'")
	if _, err := d.session(t, begun.Cookie); why(err) != WhyExpired {
		t.Errorf("after its end: %v", err)
	}
	for _, l := range d.watch.live[r.Credential] {
		l.until = time.Now().Add(-time.Second)
	}
	d.look(t, f, EndOver)
}

// A personal token's live channel ends when its owner has not logged in for so long, though no row changes then, and goes on if the
// owner has logged in meanwhile.
func TestOwnersWhoStayAway(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	cookie := d.logIn(t, "ann", assign.RoleWorker, "")
	ann, err := d.session(t, cookie)
	if err != nil {
		t.Fatal(err)
	}
	token, _, err := d.CreateToken(t.Context(), NewToken{Label: "script", Scopes: []string{ScopeRead}, Role: ann.Role, By: ann.Principal})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := d.token(t, token); err != nil || r.Left < 719*time.Hour || r.Left > d.OwnerWithin {
		t.Errorf("after a log-in %s are left, %v; want %s", r.Left, err, d.OwnerWithin)
	}
	d.exec(t, "update getwork.principal set seen_at = clock_timestamp() - interval '720 hours' + interval '1 minute'")
	r, err := d.token(t, token)
	if r.Left > time.Minute {
		t.Errorf("a minute before the owner must log in again %s are left", r.Left)
	}
	f := d.follow(t, r, err)
	d.look(t, f, "")
	reached := func() {
		for _, l := range d.watch.live[r.Credential] {
			if l.until.After(time.Now().Add(2 * time.Minute)) {
				t.Errorf("the live channel is not judged again before %s", l.until)
			}
			l.until = time.Now().Add(-time.Second)
		}
	}
	reached()
	d.exec(t, "update getwork.principal set seen_at = seen_at + interval '1 minute'") // they have logged in, on another node
	d.look(t, f, "")
	reached()
	d.exec(t, "update getwork.principal set seen_at = clock_timestamp() - interval '720 hours'")
	d.look(t, f, EndOver)
}

// A node that can't see ends closes its channels after half a minute.
func TestCutOffNodesPart(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	r, err := d.session(t, d.logIn(t, "ann", assign.RoleWorker, ""))
	f := d.follow(t, r, err)
	d.look(t, f, "")
	d.watch.partWhenAway()
	if len(f.ends) > 0 {
		t.Fatal("parted at once")
	}
	d.watch.lookedAt = time.Now().Add(-3 * awayFor)
	d.watch.partWhenAway()
	if len(f.ends) != 1 || f.ends[0] != EndAway {
		t.Errorf("ended as %q", f.ends)
	}
}

// An end cancels what waits, is audited and announced in one transaction, or does not happen.
func TestEndIsWhole(t *testing.T) {
	t.Parallel()
	var cancelled []string
	fail := errors.New("the requests can't be cancelled")
	var now error
	d := newDesk(t, func(c *Config) {
		c.Cancel = func(_ context.Context, _ pgx.Tx, credentials []string) ([]notify.Change, error) {
			cancelled = credentials
			return nil, now
		}
	})
	cookie := d.logIn(t, "ann", assign.RoleWorker, "")
	now = fail
	if _, err := d.End(t.Context(), Ending{By: "log-out", Cookie: cookie}); !errors.Is(err, fail) {
		t.Errorf("error %v", err)
	}
	r, err := d.session(t, cookie)
	if err != nil {
		t.Error("it ended all the same:", err)
	}
	now = nil
	if ended, err := d.End(t.Context(), Ending{By: "log-out", Cookie: cookie}); err != nil || len(ended) != 1 || ended[0].User != "ann" {
		t.Errorf("%+v %v", ended, err)
	}
	if len(cancelled) != 1 || cancelled[0] != string(r.Credential) {
		t.Errorf("cancelled %q, want %s", cancelled, r.Credential)
	}
	d.exec(t, "delete from getwork.audit_head") // no audit row, no act
	if _, err := d.Block(t.Context(), "ann", assign.UserChange{Blocked: true}); err == nil {
		t.Error("blocked without a row in the audit")
	}
	if n := d.count(t, "select count(*) from getwork.principal where blocked_at is not null"); n != 0 {
		t.Error("the block was written")
	}
}

// Sessions that have ended, by whatever means, are not counted as alive.
func TestAlive(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	for _, name := range []string{"ann", "bob", "cid", "eve"} {
		d.logIn(t, name, assign.RoleWorker, "")
	}
	d.exec(t, "update getwork.session set ended_at = clock_timestamp(), ended_by = 'log-out' where principal = 1")
	d.exec(t, "update getwork.session set idle_at = clock_timestamp() where principal = 2")
	d.exec(t, "update getwork.session set ends_at = clock_timestamp() where principal = 3")
	if err := d.watch.countAlive(t.Context()); err != nil || d.watch.Alive() != 1 {
		t.Errorf("%d are alive, %v; want 1", d.watch.Alive(), err)
	}
}

// The live channel of a terminal ends with the session that its token has its rights from, also when another log-in in the same
// browser replaces that session.
func TestTerminalOfAReplacedSession(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	cookie := d.logIn(t, "ann", assign.RoleWorker, "")
	session, err := d.session(t, cookie)
	if err != nil {
		t.Fatal(err)
	}
	r, err := d.token(t, d.terminal(t, &session))
	f := d.follow(t, r, err)
	d.look(t, f, "")
	d.logIn(t, "ann", assign.RoleWorker, cookie)
	d.look(t, f, EndOver)
	if n := d.count(t, "select count(*) from getwork.audit where act = 'session.end' and detail::jsonb -> 'credentials' = to_jsonb($1::text[])",
		[]string{string(session.Credential), string(r.Credential)}); n != 1 {
		t.Errorf("the end of session and token is audited %d times, want once", n)
	}
}

// acting returns a context of calls in somebody's name.
func acting(t *testing.T, r Rights) context.Context {
	return audit.WithActor(t.Context(), audit.Actor{User: r.User, By: "session", Credential: string(r.Credential)})
}

// An act by a session that has ended, or whose user is blocked, since the call began is refused.
func TestActsOfEndedCredentials(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	r, err := d.session(t, d.logIn(t, "ann", assign.RoleManager, ""))
	if err != nil {
		t.Fatal(err)
	}
	as := acting(t, r)
	d.logIn(t, "bob", assign.RoleWorker, "")
	if _, err := d.Block(as, "bob", assign.UserChange{Blocked: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Block(t.Context(), "ann", assign.UserChange{Blocked: true}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"ann", "bob"} {
		u, err := d.Block(as, name, assign.UserChange{Blocked: false})
		if p, _ := pg.ProblemOf(err); p.Status != 401 {
			t.Errorf("%+v, %v: somebody blocked lets %s in", u, err, name)
		}
	}
}

// An act by the former account of a name that was given to another one is refused.
func TestActsOfReboundCredentials(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.logIn(t, "bob", assign.RoleWorker, "")
	for round := range 2 {
		r, err := d.JWT(t.Context(), Entry{Iss: "https://idp", Sub: strconv.Itoa(round), Name: "ann", Role: assign.RoleManager}, time.Now().Add(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		former := []Rights{r, {User: "ann", Credential: "p" + r.Credential[1:]}} // a proxy may name them, too
		for _, r := range former {
			if _, err := d.Block(acting(t, r), "bob", assign.UserChange{Blocked: true}); err != nil {
				t.Errorf("%s, before: %v", r.Credential, err)
			}
		}
		if _, err := d.RebindUser(t.Context(), "ann", "https://idp", strconv.Itoa(round+1)); err != nil {
			t.Fatal(err)
		}
		for _, r := range former {
			u, err := d.Block(acting(t, r), "bob", assign.UserChange{Blocked: false})
			if p, _ := pg.ProblemOf(err); p.Status != 401 {
				t.Errorf("%s: %+v, %v: the former account lets bob in", r.Credential, u, err)
			}
		}
	}
}

// An act that waits for the end of its own credential is refused: by a rebind, which ends sessions and changes the number that stands in
// the credentials by JWT.
func TestActsBesideARebind(t *testing.T) {
	t.Parallel()
	for _, by := range []string{"session", "jwt"} {
		t.Run(by, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t)
			d.logIn(t, "bob", assign.RoleWorker, "")
			r, err := d.session(t, d.logIn(t, "ann", assign.RoleManager, ""))
			if by == "jwt" {
				r, err = d.JWT(t.Context(), Entry{Iss: "https://idp", Sub: "1", Name: "eve", Role: assign.RoleManager}, time.Now().Add(time.Hour))
			}
			if err != nil {
				t.Fatal(err)
			}
			rebind, err := d.DB.Calls.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = rebind.Rollback(context.Background()) }()
			var id int64
			var before int
			if err := rebind.QueryRow(t.Context(), d.SQL(rebindPrincipal), r.User, "https://idp", "2").Scan(&id, &before); err != nil {
				t.Fatal(err)
			}
			if _, err := d.endAll(t.Context(), rebind, id, "rebind"); err != nil {
				t.Fatal(err)
			}
			acted := make(chan error, 1)
			go func() {
				_, err := d.Block(acting(t, r), "bob", assign.UserChange{Blocked: true})
				acted <- err
			}()
			timeout.Await(t, "the act waits", func() bool { return schematest.LockWaits(t, d.DB.Calls) > 0 })
			if err := rebind.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			err = <-acted
			if p, _ := pg.ProblemOf(err); p.Status != 401 {
				t.Errorf("the former account blocks bob: %v", err)
			}
		})
	}
}

// Two acts of one user wait for each other: if both began, each could wait for a lock on their user that the other shares.
func TestActsOfOneUserWait(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	r, err := d.session(t, d.logIn(t, "ann", assign.RoleManager, ""))
	if err != nil {
		t.Fatal(err)
	}
	as := acting(t, r)
	err = pg.Transact(as, d.DB, func(one pgx.Tx) error {
		if err := d.mayStillAct(as, one); err != nil {
			return err
		}
		return pg.Transact(as, d.DB, func(other pgx.Tx) error {
			if _, err := other.Exec(as, "set local lock_timeout = '100ms'"); err != nil {
				return err
			}
			err := d.mayStillAct(as, other)
			var pgErr *pgconn.PgError
			if !errors.As(err, &pgErr) || pgErr.Code != "55P03" {
				t.Errorf("the second act does not wait: %v", err)
			}
			return err
		})
	})
	if err == nil {
		t.Error("the second act has an end")
	}
}

// The changes of one user wait for one another without a connection each: however many there are, others' calls have connections.
func TestChangesOfOneUserLeaveConnections(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	r, err := d.session(t, d.logIn(t, "ann", assign.RoleManager, ""))
	if err != nil {
		t.Fatal(err)
	}
	few := d.db.Config()
	few.MaxConns, few.MinConns = 2, 0
	calls, err := pgxpool.NewWithConfig(t.Context(), few)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(calls.Close)
	holder, err := d.db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = holder.Rollback(context.Background()) }()
	if _, err := holder.Exec(t.Context(), "select from getwork.principal where name = 'ann' for update"); err != nil {
		t.Fatal(err)
	}
	d.DB = pg.Router{Calls: calls}
	const changes = 5
	ended := make(chan error, changes)
	brief, stop := context.WithCancel(acting(t, r))
	for i := range changes {
		ctx := acting(t, r)
		if i == 0 {
			ctx = brief
		}
		go func() {
			_, err := d.End(ctx, Ending{User: "bob"})
			ended <- err
		}()
	}
	under := func() int {
		d.turns.mu.Lock()
		defer d.turns.mu.Unlock()
		if mine := d.turns.users["ann"]; mine != nil {
			return mine.known
		}
		return 0
	}
	timeout.Await(t, "all have begun, and one waits for the lock", func() bool { return under() == changes && calls.Stat().AcquiredConns() > 0 })
	if stop(); !errors.Is(<-ended, context.Canceled) {
		t.Error("the one whose caller has gone goes on")
	}
	within, cancel := context.WithTimeout(t.Context(), timeout.Scale(10*time.Second))
	defer cancel()
	if _, err := d.Tokens(within, "bob", ""); err != nil {
		t.Errorf("somebody else's call, while %d changes wait: %v", under(), err)
	}
	if err := holder.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range changes - 1 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	if under() != 0 || len(d.turns.users) != 0 {
		t.Errorf("%d changes are under way", under())
	}
}

// Whoever acts is found by index among all sessions and tokens that there ever were.
func TestActorByIndex(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	for credential, want := range map[string]string{"s:x": "Index Cond: (public_id = 'x'", "t:x": "Index Cond: (id = 'x'"} {
		for _, statement := range []string{lockActor, selectActor} {
			err := pg.Transact(t.Context(), d.DB, func(tx pgx.Tx) error {
				rows, err := tx.Query(t.Context(), "explain "+d.SQL(statement), credential)
				if err != nil {
					return err
				}
				lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
				if plan := strings.Join(lines, "\n"); strings.Contains(plan, "Seq Scan") || !strings.Contains(plan, want) {
					t.Errorf("%s is not found by index:\n%s", credential, plan)
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}

// Two tabs log in at the same moment, with the cookie of one session: it ends once, and both come in. So it is with two log-outs.
// The audit names nobody else as the one who logged in, and records the former session's end.
func TestLogInFromTabsOfOneSession(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	d := newDesk(t)
	cookie := d.logIn(t, "ann", assign.RoleWorker, "")
	r, err := d.session(t, cookie)
	if err != nil {
		t.Fatal(err)
	}
	tab := audit.WithActor(t.Context(), audit.Actor{User: "ann", By: "session", Credential: string(r.Credential), Address: netip.MustParseAddr("192.0.2.1")})
	for _, name := range []string{"ann", "bob"} {
		in := LogIn{Entry: Entry{Iss: "idp", Sub: "sub of " + name, Name: name, Role: assign.RoleWorker}, Max: time.Hour, Former: cookie}
		if begun, err := d.Begin(tab, in); err != nil || begun.User != name {
			t.Errorf("%s: %+v, %v", name, begun, err)
		}
	}
	if n := d.count(t, "select count(*) from getwork.audit where act = 'log-in' and object = 'bob' and (actor = 'ann' or credential is not null)"); n != 0 {
		t.Error("the audit says that ann logged in as bob")
	}
	if n := d.count(t, "select count(*) from getwork.audit where act = 'log-in' and address = '192.0.2.1'"); n != 2 {
		t.Errorf("%d log-ins have their address, want 2", n)
	}
	const replaced = `select count(*) from getwork.audit where act = 'session.end' and object = 'ann' and actor = 'ann' and outcome = 'done'
		and detail::jsonb = jsonb_build_object('by', 'log-in', 'credentials', jsonb_build_array($1::text))`
	if n := d.count(t, replaced, string(r.Credential)); n != 1 {
		t.Errorf("the former session's end is audited %d times, want once", n)
	}
	if ended, err := d.End(tab, Ending{By: "log-out", Cookie: cookie}); err != nil || len(ended) != 0 {
		t.Errorf("log-out of what has ended: %+v, %v", ended, err)
	}
}

// Whoever is out is out at once, also while the audit is held and nobody can write what has ended by time.
func TestLooksWhileTidying(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	d := newDesk(t)
	d.watch.tidyEvery = time.Millisecond
	r, err := d.session(t, d.logIn(t, "ann", assign.RoleWorker, ""))
	if err != nil {
		t.Fatal(err)
	}
	d.exec(t, "update getwork.session set ends_at = clock_timestamp() where id = $1", Hash(d.logIn(t, "bob", assign.RoleWorker, "")))
	out := make(chan End, 1)
	defer d.watch.Follow(&r, 0, func(e End) { out <- e })()
	tx, err := d.db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := tx.Exec(t.Context(), "select from getwork.audit_head for update"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = d.watch.Run(ctx) })
	defer running.Wait()
	defer cancel()
	timeout.Await(t, "it waits for the audit", func() bool {
		return d.count(t, "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' and query like '%audit_head%'") == 1
	})
	d.exec(t, "update getwork.session set ended_at = clock_timestamp(), ended_by = 'admin', changed = pg_current_xact_id() where 's:' || public_id = $1", string(r.Credential))
	select {
	case <-out:
	case <-time.After(timeout.Scale(4 * time.Second)): // less than a statement waits for a lock
		t.Error("nobody looks")
	}
}
