package engine

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"getwork/assign"
	"getwork/schema/schematest"
)

// Jitter spreads items that failed together, upwards only.
func TestJitter(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	url := schematest.URL(t)
	n := still(t, url)
	db := pool(t, url)
	newInbox(t, n, "inbox", func(s *assign.Settings) { s.Backoff, s.MaxRequest = assign.Duration(100*time.Second), 100 })
	var keys []string
	for i := range 100 {
		keys = append(keys, fmt.Sprint(i))
	}
	n.push(t, "inbox", keys...)
	for _, w := range n.serve(t, "inbox", "ann", 100).Work {
		n.let(t, w, assign.Disposition{Outcome: "fail"})
	}
	const waits = `extract(epoch from available_at - closed_at)`
	if !query[bool](t, db, `select min(`+waits+`) >= 99.9 and max(`+waits+`) <= 120.1 and max(`+waits+`) - min(`+waits+`) > 10 from getwork.work`) {
		t.Errorf("they wait %s", query[string](t, db, `select min(`+waits+`) || ' to ' || max(`+waits+`) from getwork.work`))
	}
	// However often it failed, it comes back within a day or so.
	n.push(t, "inbox", "often")
	w := n.serve(t, "inbox", "ann", 1).Work[0]
	execute(t, db, `update getwork.work set attempt = 2000000 where id = $1`, w.ID)
	if w = n.let(t, w, assign.Disposition{Outcome: "fail"}); w.AvailableAt.Sub(*w.ClosedAt) > 29*time.Hour {
		t.Errorf("it waits %v", w.AvailableAt.Sub(*w.ClosedAt))
	}
}

// A disposition that makes no sense for the work is refused, and changes nothing.
func TestRefusedDispositions(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := still(t, url)
	newInbox(t, n, "inbox", nil)
	n.push(t, "inbox", "a")
	w := n.serve(t, "inbox", "ann", 1).Work[0]
	text := func(s string) *string { return &s }
	for name, d := range map[string]assign.Disposition{
		"none":            {},
		"unknown":         {Outcome: "done"},
		"no after":        {Outcome: "return"},
		"negative":        giveBack(-time.Second),
		"too long":        giveBack(72*time.Hour + time.Microsecond),
		"after complete":  {Outcome: "complete", After: lasting(0)},
		"after fail":      {Outcome: "fail", After: lasting(time.Second)},
		"to of never":     {Outcome: "never", To: text("others")},
		"to nobody":       {Outcome: "return", After: lasting(0), To: text("me")},
		"error of return": {Outcome: "return", After: lasting(0), Error: text("x")},
		"long note":       {Outcome: "complete", Note: text(strings.Repeat("x", 4097))},
		"NUL":             {Outcome: "complete", Note: text("\x00")},
		"no text":         {Outcome: "fail", Error: text("\xff")},
	} {
		_, err := n.Dispose(t.Context(), w.ID, d, w.Holder(), false)
		if !assign.IsRefusal(err, assign.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := n.Dispose(t.Context(), w.ID, assign.Disposition{Outcome: "complete"}, assign.Holder{User: "bob"}, false)
	wantKind(t, err, assign.NotFound)
	if got := n.let(t, w, assign.Disposition{Outcome: "return", After: lasting(72 * time.Hour), Note: text(strings.Repeat("x", 4096))}); got.State != "returned" {
		t.Errorf("it is %s", got.State)
	}
}

// latch stops every statement that changes work after its change and before its transaction commits, as long as the latch is
// closed. The first session then holds the row, and the second waits for it.
type latch struct {
	db   *pgxpool.Pool
	conn *pgxpool.Conn
}

// Triggers for each row, unlike those for each statement, do not stop a statement that finds no row to change. At the latch a
// transaction waits for as long as it takes, though it gives up other locks after a while.
const latchWork = `
create function hold() returns trigger language plpgsql set lock_timeout = 0 as $$ begin perform pg_advisory_xact_lock_shared(1); return null; end $$;
create trigger hold after insert or update on getwork.work for each row execute function hold()`

// selectHeldByLatch counts the sessions at the latch, and none that waits for another lock for a moment.
const selectHeldByLatch = `
select count(*) from pg_locks
where locktype = 'advisory' and not granted and database = (select oid from pg_database where datname = current_database())`

func newLatch(t testing.TB, db *pgxpool.Pool) *latch {
	t.Helper()
	execute(t, db, latchWork)
	conn, err := db.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Release)
	return &latch{db, conn}
}

// race begins the first action. When it has changed its row and waits before its commit, race begins the second. When the
// second has ended, or waits for the first, both go on. between is called before the second begins. The test fails if the first
// ends without being held, because then the two did not meet.
func (l *latch) race(t testing.TB, first, second func() error, between func()) (error, error) {
	t.Helper()
	if _, err := l.conn.Exec(t.Context(), `select pg_advisory_lock(1)`); err != nil {
		t.Fatal(err)
	}
	ended := [2]chan error{make(chan error, 1), make(chan error, 1)}
	go func() { ended[0] <- first() }()
	await(t, "the first waits before its commit, or is over", func() bool { return len(ended[0]) == 1 || query[int](t, l.db, selectHeldByLatch) == 1 })
	if between != nil {
		between()
	}
	if len(ended[0]) == 1 {
		err := <-ended[0]
		_, _ = l.conn.Exec(t.Context(), `select pg_advisory_unlock(1)`)
		t.Fatalf("the first ended, and was not held before its commit: %v", err)
	}
	go func() { ended[1] <- second() }()
	await(t, "the second is over, or waits", func() bool { return len(ended[1]) == 1 || schematest.LockWaits(t, l.db) >= 2 })
	if _, err := l.conn.Exec(t.Context(), `select pg_advisory_unlock(1)`); err != nil {
		t.Fatal(err)
	}
	return <-ended[0], <-ended[1]
}

// atEachLevel runs a test on databases with each default isolation level; an explicit level must not depend on it. Without
// GETWORK_TEST_ALL only PostgreSQL's own default is tested.
func atEachLevel(t *testing.T, test func(t *testing.T, url string)) {
	for i, level := range []string{"read committed", "repeatable read", "serializable"} {
		t.Run(level, func(t *testing.T) {
			t.Parallel()
			if i > 0 {
				schematest.Thorough(t)
			}
			url := schematest.URL(t)
			first := pool(t, url)
			execute(t, first, fmt.Sprintf(`do $$ begin execute format('alter database %%I set default_transaction_isolation = %%L', current_database(), '%s'); end $$`, level))
			first.Reset()
			if got := query[string](t, first, `show transaction_isolation`); got != level {
				t.Fatalf("the level is %q", got)
			}
			test(t, url)
		})
	}
}

// errNothing is the error of a sweep that expired nothing.
var errNothing = errors.New("nothing ran out")

// Two actions meet on one row of work. One of them wins, by row count, and the other reads so. The first is held after its
// write and before its commit; the second finds the row locked.
func TestTwoOnOneRow(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	const none = assign.Kind("")
	tests := []struct {
		first, second string
		ends          assign.Kind // how the second ends; none: it succeeds
		state         string      // of the row
		held          int         // of the item, in the end
	}{
		{"complete", "expire", "nothing", "completed", 0},
		{"expire", "complete", assign.LeaseLost, "expired", 0},
		{"complete", "reassign", assign.AlreadyClosed, "completed", 0},
		{"reassign", "complete", assign.AlreadyClosed, "reassigned", 1},
		{"extend", "expire", "nothing", "held", 1},
		{"expire", "extend", assign.LeaseLost, "expired", 0},
		{"reassign", "release", assign.ChangedSet, "reassigned", 1},
		{"release", "reassign", assign.AlreadyClosed, "returned", 0},
		{"release", "release", assign.ChangedSet, "returned", 0},
		{"complete", "never", assign.AlreadyClosed, "completed", 0},
		{"fail", "complete", assign.AlreadyClosed, "failed", 0},
		{"complete", "complete", none, "completed", 0},
		{"complete", "extend", assign.LeaseLost, "completed", 0},
		{"extend", "complete", none, "completed", 0},
		{"expire", "expire", "nothing", "expired", 0},
		{"later", "expire", "nothing", "held", 1},
		{"expire", "later", assign.LeaseLost, "expired", 0},
		{"later", "complete", none, "completed", 0},
		{"later", "reassign", none, "reassigned", 1},
		{"reassign", "later", assign.LeaseLost, "reassigned", 1},
		{"reassign", "reassign", assign.AlreadyClosed, "reassigned", 1},
		{"reassign", "extend", assign.LeaseLost, "reassigned", 1},
		{"expire", "release", assign.ChangedSet, "expired", 0},
		{"expire", "reassign", assign.AlreadyClosed, "expired", 0},
	}
	atEachLevel(t, func(t *testing.T, url string) {
		db := pool(t, url)
		a, b := still(t, url), still(t, url)
		newInbox(t, a, "inbox", leased(time.Hour))
		l := newLatch(t, db)
		for i, test := range tests {
			t.Run(test.first+" against "+test.second, func(t *testing.T) {
				user := fmt.Sprint("user ", i)
				a.push(t, "inbox", user)
				w := a.serve(t, "inbox", user, 1).Work[0]
				dry, err := a.Release(t.Context(), assign.Release{User: user, DryRun: true}, "boss")
				if err != nil || dry.Count != 1 {
					t.Fatal(dry, err)
				}
				act := func(n *node, what, other string) func() error {
					return func() error {
						var err error
						ctx := t.Context()
						switch what {
						case "expire":
							var found []swept
							if found, err = n.sweepOnce(ctx, expireWork); err == nil && len(found) == 0 {
								err = errNothing
							}
						case "extend":
							_, err = n.Extend(ctx, w.ID, w.Holder())
						case "later":
							_, err = n.Later(ctx, w.ID, new(time.Now().Add(time.Hour)), w.Holder())
						case "reassign":
							_, err = n.Reassign(ctx, w.ID, assign.Reassignment{User: other, Force: true}, "boss")
						case "release":
							_, err = n.Release(ctx, assign.Release{User: user, Token: dry.Token}, "boss")
						default:
							_, err = n.Dispose(ctx, w.ID, assign.Disposition{Outcome: what}, w.Holder(), false)
						}
						return err
					}
				}
				over := func() {
					await(t, "the lease is over", func() bool {
						return query[bool](t, db, `select lease_expires_at < clock_timestamp() from getwork.work where id = $1`, w.ID)
					})
				}
				var between func()
				switch {
				case test.first == "expire":
					execute(t, db, `update getwork.work set lease_expires_at = clock_timestamp() where id = $1`, w.ID)
				case test.second == "expire":
					execute(t, db, `update getwork.work set lease_expires_at = clock_timestamp() + interval '3 seconds' where id = $1`, w.ID) // the first comes before the end
					between = over
				}
				one, two := l.race(t, act(a, test.first, user+" one"), act(b, test.second, user+" two"), between)
				// An extension reads the work once more, and may then see that the second action has closed it.
				if one != nil && !((test.first == "extend" || test.first == "later") && test.state != "held" && assign.IsRefusal(one, assign.LeaseLost)) {
					t.Errorf("the first: %v", one)
				}
				switch {
				case test.ends == "nothing":
					if !errors.Is(two, errNothing) {
						t.Errorf("the second: %v, want nothing", two)
					}
				case test.ends != none:
					if !assign.IsRefusal(two, test.ends) {
						t.Errorf("the second: %v, want %s", two, test.ends)
					}
				case two != nil:
					t.Errorf("the second: %v", two)
				}
				if got := query[string](t, db, `select state from getwork.work where id = $1`, w.ID); got != test.state {
					t.Errorf("the row is %s, want %s", got, test.state)
				}
				if got := query[int](t, db, `select count(*) from getwork.work where item = $1 and state = 'held'`, user); got != test.held {
					t.Errorf("%d hold it, want %d", got, test.held)
				}
				if _, err := a.sweepOnce(t.Context(), expireWork); err != nil {
					t.Error(err)
				}
				if got := query[string](t, db, `select state from getwork.work where id = $1`, w.ID); got != test.state {
					t.Errorf("after another sweep the row is %s, want %s", got, test.state)
				}
				execute(t, db, `update getwork.work set state = 'completed', closed_at = clock_timestamp(), closed_xid = pg_current_xact_id() where state = 'held'`)
				execute(t, db, `update getwork.item set done_at = clock_timestamp() where done_at is null`)
			})
		}
	})
}
