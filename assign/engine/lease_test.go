package engine

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"getwork/assign"
	"getwork/assign/feed"
	"getwork/assign/pg"
	"getwork/notify"
	"getwork/schema/schematest"
	"getwork/schema/schematest/timeout"
)

var boss = assign.Who{Holder: assign.Holder{User: "boss"}, Anything: true}

// who returns a user without groups.
func who(user string) assign.Who { return assign.Who{Holder: assign.Holder{User: user}} }

// still starts a node that does nothing by itself, like one that is frozen: it does not sweep, check or listen. The test calls
// it.
func still(t testing.TB, url string) *node {
	t.Helper()
	pools, err := pg.OpenPools(pg.PoolsConfig{DatabaseURL: url, MaxRuns: 2, Name: "getwork still"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pools.Close)
	log := slog.New(slog.NewTextHandler(t.Output(), nil)).With("node", "still")
	unsent := func(context.Context, string, string) error { return nil }
	e := New(Config{Node: "still", API: pools.API, Runs: pools.Runs, MaxRuns: 2, Channel: "getwork",
		Announce: notify.NewAnnouncer(unsent, "getwork", "still", log), Log: log})
	f := feed.New(feed.Config{Node: "still", DB: pools.Router(), Records: e.Records, Log: log})
	return &node{Engine: e, Records: e.Records, Feed: f, pools: pools}
}

// newInbox makes a task without a query; change may be nil.
func newInbox(t testing.TB, n *node, name string, change func(*assign.Settings)) assign.Task {
	t.Helper()
	return newTask(t, n, name, "", change)
}

// push pushes items that have only a key.
func (n *node) push(t testing.TB, task string, keys ...string) {
	t.Helper()
	var batch []assign.NewItem
	for _, k := range keys {
		batch = append(batch, assign.NewItem{Item: k})
	}
	n.pushItems(t, task, batch...)
}

func (n *node) pushItems(t testing.TB, task string, batch ...assign.NewItem) assign.Pushed {
	t.Helper()
	p, err := n.Push(t.Context(), task, batch, boss)
	if err != nil {
		t.Fatalf("push: %v", err)
	}
	return p
}

// linger asks for work and lingers for an hour.
func (n *node) linger(t testing.TB, task, user string, count int) assign.Request {
	t.Helper()
	r, err := n.GetWork(t.Context(), task, assign.Click{Holder: assign.Holder{User: user}, Count: count, Linger: assign.Duration(time.Hour)})
	if err != nil {
		t.Fatalf("%s lingers: %v", user, err)
	}
	return r
}

// take asks for one item and must get it.
func (n *node) take(t testing.TB, task, user string) assign.Work {
	t.Helper()
	r := n.endedRequest(t, n.click(t, task, user, 1).ID)
	if len(r.Work) != 1 {
		t.Fatalf("%s's request ended as %s, %v", user, r.State, why(r))
	}
	return r.Work[0]
}

// let closes work in its holder's name.
func (n *node) let(t testing.TB, w assign.Work, d assign.Disposition) assign.Work {
	t.Helper()
	closed, err := n.Dispose(t.Context(), w.ID, d, w.Holder(), false)
	if err != nil {
		t.Fatalf("%s: %s %s: %v", w.User, d.Outcome, w.Item, err)
	}
	return closed
}

func giveBack(after time.Duration) assign.Disposition {
	return assign.Disposition{Outcome: "return", After: lasting(after)}
}

func lasting(d time.Duration) *assign.Duration { l := assign.Duration(d); return &l }

// why returns a request's reason, or "".
func why(r assign.Request) assign.Reason {
	if r.Reason == nil {
		return ""
	}
	return *r.Reason
}

func leased(d time.Duration) func(*assign.Settings) {
	return func(s *assign.Settings) { s.Lease = lasting(d) }
}

// ends makes the leases of a user's held work, which are an hour long, end after this time, and notifies the node. With ten
// minutes left, a lease is about to run out.
func (n *node) ends(t testing.TB, db *pgxpool.Pool, user, in string) {
	t.Helper()
	execute(t, db, `update getwork.work set lease_expires_at = clock_timestamp() + $2::text::interval, warn_at = clock_timestamp() + interval '200 ms'
		where user_name = $1 and state = 'held'`, user, in)
	n.wakeSweep()
}

// workEvents returns the events of a holder's work.
func (n *node) workEvents(t testing.TB, h assign.Holder) <-chan assign.Work {
	t.Helper()
	told := make(chan assign.Work, 100)
	_, end := n.Feed.Subscribe(h, func(events ...assign.Event) {
		for _, e := range events {
			if w, ok := e.Body.(*assign.Work); ok {
				told <- *w
			}
		}
	})
	t.Cleanup(end)
	return told
}

// hear waits for the first event that matches.
func hear(t testing.TB, told <-chan assign.Work, what string, so func(assign.Work) bool) assign.Work {
	t.Helper()
	late := time.NewTimer(timeout.Scale(30 * time.Second))
	defer late.Stop()
	for {
		select {
		case w := <-told:
			if so(w) {
				return w
			}
		case <-late.C:
			t.Fatalf("no event says that %s", what)
		}
	}
}

// A lease that nobody extends: a warning when 20 % are left, then the item goes back with its age and one more attempt, and
// its holder is notified. Whatever they send then is refused.
func TestLeaseRunsOut(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n, db := startNode(t, url, nodeOptions{}), pool(t, url)
	newInbox(t, n, "inbox", leased(time.Hour))
	n.push(t, "inbox", "a", "b", "c")
	told := n.workEvents(t, assign.Holder{User: "ann"})
	w := n.take(t, "inbox", "ann")
	if w.Item != "a" || w.Attempt != 1 || w.LeaseExpiresAt == nil || w.LeaseExpiresAt.Sub(w.AssignedAt).Round(time.Second) != time.Hour {
		t.Fatalf("ann holds %+v", w)
	}
	if got := query[string](t, db, `select extract(epoch from lease_expires_at - warn_at)::integer::text from getwork.work`); got != "720" {
		t.Errorf("ann is warned %s s before the end, want 20 %% of an hour", got)
	}
	if bob := n.take(t, "inbox", "bob"); bob.Item != "b" {
		t.Fatalf("bob has %s", bob.Item)
	}
	// The test can't wait for an hour, and a lease of seconds would be over on a machine that stands still.
	n.ends(t, db, "ann", "10 minutes")
	hear(t, told, "the lease is about to run out", func(w assign.Work) bool { return w.State == "held" && w.Expiring })
	n.ends(t, db, "ann", "200 ms")
	hear(t, told, "it ran out", func(w assign.Work) bool { return w.State == "expired" })

	for _, d := range []assign.Disposition{{Outcome: "complete"}, {Outcome: "fail"}, {Outcome: "never"}, giveBack(0)} {
		_, err := n.Dispose(t.Context(), w.ID, d, w.Holder(), false)
		wantKind(t, err, assign.LeaseLost)
	}
	_, err := n.Extend(t.Context(), w.ID, w.Holder())
	wantKind(t, err, assign.LeaseLost)
	if again := n.take(t, "inbox", "cyd"); again.Item != "a" || again.Attempt != 2 {
		t.Errorf("cyd has %s, attempt %d; want a, its second attempt", again.Item, again.Attempt)
	}
}

// Extending begins the lease anew, even long after it was first given, and the holder is warned again.
func TestExtend(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	db := pool(t, url)
	newInbox(t, n, "inbox", leased(time.Hour))
	newInbox(t, n, "for-good", nil)
	n.push(t, "inbox", "a")
	n.push(t, "for-good", "b")
	told := n.workEvents(t, assign.Holder{User: "ann"})
	w := n.take(t, "inbox", "ann")
	for range 2 {
		n.ends(t, db, "ann", "10 minutes")
		hear(t, told, "the lease is about to run out", func(w assign.Work) bool { return w.State == "held" && w.Expiring })
		x, err := n.Extend(t.Context(), w.ID, w.Holder())
		if err != nil {
			t.Fatal(err)
		}
		until := *x.LeaseExpiresAt
		if left := time.Until(until); left < 50*time.Minute || left > time.Hour || x.Expiring {
			t.Errorf("extended to %v from now, expiring %v", left, x.Expiring)
		}
		hear(t, told, "it was extended", func(w assign.Work) bool { return w.LeaseExpiresAt.Equal(until) && !w.Expiring })
	}
	_, err := n.Extend(t.Context(), w.ID, assign.Holder{User: "bob"})
	wantKind(t, err, assign.NotFound)
	_, err = n.Extend(t.Context(), w.ID, assign.Holder{User: "ann", Instance: "2"})
	wantKind(t, err, assign.NotFound)
	_, err = n.Extend(t.Context(), 99999, w.Holder())
	wantKind(t, err, assign.NotFound)
	n.let(t, w, assign.Disposition{Outcome: "complete"})
	_, err = n.Extend(t.Context(), w.ID, w.Holder())
	wantKind(t, err, assign.LeaseLost)

	g := n.take(t, "for-good", "ann")
	if x, err := n.Extend(t.Context(), g.ID, g.Holder()); err != nil || x.State != "held" || x.LeaseExpiresAt != nil {
		t.Errorf("without a lease: %+v, %v", x, err)
	}
	if n := query[int](t, db, `select count(*) from getwork.work where state = 'expired'`); n != 0 {
		t.Errorf("%d expired", n)
	}
}

// Every node may sweep: rows are locked with skip locked, and each lease runs out once.
func TestThreeNodesExpireOnce(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	db := pool(t, url)
	var nodes []*node
	for range 3 {
		nodes = append(nodes, still(t, url))
	}
	task := newTask(t, nodes[0], "task", numbers, leased(time.Second))
	const held = 3000
	execute(t, db, `insert into getwork.work (task_id, item, user_name, lease, lease_expires_at)
		select $1, i, 'user ' || i % 7, '1s', clock_timestamp() + i % 2 * interval '1 hour' from generate_series(1, $2::integer) i`, task.ID, 2*held)
	var all sync.WaitGroup
	expired := make([][]int64, len(nodes))
	for i, n := range nodes {
		all.Go(func() {
			for {
				found, err := n.sweepOnce(t.Context(), expireWork)
				if err != nil {
					t.Error(err)
				}
				for _, f := range found {
					expired[i] = append(expired[i], f.id)
				}
				if len(found) == 0 {
					return
				}
			}
		})
	}
	all.Wait()
	once := map[int64]int{}
	for _, ids := range expired {
		for _, id := range ids {
			once[id]++
		}
	}
	for id, times := range once {
		if times != 1 {
			t.Errorf("work %d ran out %d times", id, times)
		}
	}
	if n := query[int](t, db, `select count(*) from getwork.work where state = 'expired'`); n != held || len(once) != held {
		t.Errorf("%d expired, %d events; want %d", n, len(once), held)
	}
}

// A node that froze in the middle of its sweep keeps only the rows that it had locked, until PostgreSQL ends its transaction.
// The other nodes go on without it, and do not spin on those rows.
func TestFrozenNode(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	url := schematest.URL(t)
	db := pool(t, url)
	frozen := still(t, url)
	newInbox(t, frozen, "inbox", leased(time.Hour))
	frozen.push(t, "inbox", "a", "b")
	a := frozen.serve(t, "inbox", "ann", 1)
	execute(t, db, `update getwork.work set lease_expires_at = clock_timestamp() where item = 'a'`)
	tx, err := frozen.pools.API.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if tag, err := tx.Exec(t.Context(), expireWork, sweepBatch); err != nil || tag.RowsAffected() != 1 {
		t.Fatalf("the frozen node's sweep: %s, %v", tag, err)
	}
	frozen.serve(t, "inbox", "bob", 1)
	execute(t, db, `update getwork.work set lease_expires_at = clock_timestamp() + interval '1 second' where item = 'b'`)

	var sweeps atomic.Int64
	began := time.Now()
	n := counting(t, url, nextLease, &sweeps)
	await(t, "the other row runs out", func() bool {
		return query[string](t, db, `select state from getwork.work where item = 'b'`) == "expired"
	})
	if s, took := sweeps.Load(), time.Since(began); s > 4*int64(took/sweepPause)+4 { // one every 50 ms, and each asks twice
		t.Errorf("%d questions in %v", s, took)
	}
	if s := query[string](t, db, `select state from getwork.work where item = 'a'`); s != "held" {
		t.Errorf("the frozen node's row is %s", s)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	await(t, "its row runs out", func() bool {
		return query[string](t, db, `select state from getwork.work where item = 'a'`) == "expired"
	})
	_, err = n.Dispose(t.Context(), a.Work[0].ID, assign.Disposition{Outcome: "complete"}, assign.Holder{User: "ann"}, false)
	wantKind(t, err, assign.LeaseLost)
}

// counting starts a node that counts how often it sends a statement.
func counting(t testing.TB, url, statement string, times *atomic.Int64) *node {
	t.Helper()
	n := still(t, url)
	c := n.Config
	c.LookEvery = time.Hour
	c.SQL = func(s string) string {
		if s == statement {
			times.Add(1)
		}
		return s
	}
	n.Engine = New(c)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := n.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	await(t, "the engine runs", func() bool { return n.Running() })
	return n
}

// serve records a click on an inbox or a fresh shelf and serves it at once, even on a node that is still.
func (n *node) serve(t testing.TB, task, user string, count int) assign.Request {
	t.Helper()
	r, err := n.tryServe(t.Context(), task, assign.Click{Holder: assign.Holder{User: user}, Count: count})
	if err != nil {
		t.Fatalf("%s: %v", user, err)
	}
	return r
}

func (n *node) tryServe(ctx context.Context, name string, c assign.Click) (assign.Request, error) {
	k := &click{Click: c, holder: c.Holder, done: make(chan struct{})}
	n.recordBatch(ctx, name, []*click{k})
	if k.err != nil {
		return assign.Request{}, k.err
	}
	return n.Request(ctx, k.id, c.Holder, false)
}

// The next expiry wakes the sweep, not a tight poll; and not every one of many leases wakes it.
func TestSweepSleeps(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	url := schematest.URL(t)
	db := pool(t, url)
	var sweeps atomic.Int64
	n := counting(t, url, nextLease, &sweeps)
	newInbox(t, n, "inbox", leased(time.Second))
	newInbox(t, n, "long", leased(24*time.Hour)) // the sweep wakes by itself within an hour and a half
	n.push(t, "inbox", "a")
	n.take(t, "inbox", "ann")
	await(t, "the lease runs out", func() bool {
		return query[int](t, db, `select count(*) from getwork.work where state = 'expired'`) == 1
	})
	if s := sweeps.Load(); s > 6 { // at the start, when it was given, to warn, and to expire; some a moment too early
		t.Errorf("%d sweeps for one lease", s)
	}
	before := sweeps.Load()
	var keys []string
	for i := range 200 {
		keys = append(keys, fmt.Sprint(i))
	}
	n.push(t, "long", keys...)
	for i := range keys {
		n.take(t, "long", fmt.Sprint("user ", i))
	}
	if s := sweeps.Load() - before; s > 1 { // the sweep that ended the lease asks once more
		t.Errorf("%d sweeps for %d leases that are not due", s, len(keys))
	}
}

// A round, a claim and a reassignment wake the sweep for a lease that calls for it before it wakes by itself, which it does every 1 to
// 3 s, and for no other.
func TestBriefLeasesAloneWakeTheSweep(t *testing.T) {
	t.Parallel()
	n := still(t, schematest.URL(t))
	for _, c := range []struct {
		name  string
		lease time.Duration // 0: none
		wakes bool
	}{{"none", 0, false}, {"hour", time.Hour, false}, {"long", 3750 * time.Millisecond, false}, {"brief", 3700 * time.Millisecond, true}} {
		newInbox(t, n, c.name, func(s *assign.Settings) {
			if c.lease > 0 {
				s.Lease = lasting(c.lease)
			}
		})
		n.push(t, c.name, "a", "b")
		woken := func(what string) {
			t.Helper()
			if got := len(n.leases) > 0; got != c.wakes {
				t.Errorf("a lease of %v: %s wakes the sweep: %v, want %v", c.lease, what, got, c.wakes)
			}
			select {
			case <-n.leases:
			default:
			}
		}
		n.serve(t, c.name, "ann", 1)
		woken("a round")
		w, _, err := n.Claim(t.Context(), c.name, "b", who("ann"))
		if err != nil {
			t.Fatal(err)
		}
		woken("a claim")
		if _, err := n.Reassign(t.Context(), w.ID, assign.Reassignment{User: "bob", Force: true}, "boss"); err != nil {
			t.Fatal(err)
		}
		woken("a reassignment")
	}
}

// One node's clock says that it is the year 2000 and stands still: time in a synctest bubble passes only while everything
// waits in the bubble, and the node's listener always waits for the network. The node serves, extends, puts off and sweeps as
// well as the other, whose clock is right, because only the database's clock counts.
func TestStoppedClock(t *testing.T) {
	t.Parallel()
	if os.Getenv("GETWORK_TEST_MODE") == "pooled" {
		t.Skip("where the clock stands still nobody can wait for the pooler to start")
	}
	url := schematest.URL(t)
	good := startNode(t, url, nodeOptions{Look: 500 * time.Millisecond})
	newInbox(t, good, "inbox", leased(time.Hour))
	later := query[time.Time](t, pool(t, url), `select clock_timestamp() + interval '1 hour'`)
	synctest.Test(t, func(t *testing.T) {
		db := pool(t, url) // a connection from outside would wake the bubble by its timer for slow writes, which is fatal
		clock := func() time.Time { return query[time.Time](t, db, `select clock_timestamp()`) }
		n := startNode(t, url, nodeOptions{Look: 500 * time.Millisecond})
		began := time.Now()
		if began.Year() != 2000 {
			t.Fatalf("it is %v", began)
		}
		n.push(t, "inbox", "a", "b", "c")
		n.pushItems(t, "inbox", assign.NewItem{Item: "later", NotBefore: &later, Priority: 1})
		asked := clock()
		r := n.click(t, "inbox", "ann", 3)
		if got := fmt.Sprint(items(r)); got != "[a b c]" {
			t.Fatalf("ann got %s", got)
		}
		w := r.Work[0]
		x, err := n.Extend(t.Context(), w.ID, w.Holder())
		if by := x.LeaseExpiresAt.Sub(*w.LeaseExpiresAt); err != nil || by <= 0 || by > clock().Sub(asked) {
			t.Errorf("extended by %v, %v after the click: %v", by, clock().Sub(asked), err)
		}
		back := n.let(t, r.Work[1], giveBack(time.Hour))
		if d := back.AvailableAt.Sub(*back.ClosedAt).Round(time.Second); d != time.Hour {
			t.Errorf("put off for %v", d)
		}
		execute(t, db, `update getwork.work set lease_expires_at = clock_timestamp() where state = 'held'`)
		execute(t, db, `update getwork.item set due_at = clock_timestamp() where item = 'later'`)
		good.wakeSweep()
		// No timer fires here, so the test polls the database.
		for query[int](t, db, `select count(*) from getwork.work where state = 'expired'`) < 2 {
		}
		_, err = n.Dispose(t.Context(), w.ID, assign.Disposition{Outcome: "complete"}, w.Holder(), false)
		wantKind(t, err, assign.LeaseLost)
		if r := n.click(t, "inbox", "bob", 5); fmt.Sprint(items(r)) != "[later a c]" || r.Work[1].Attempt != 2 {
			t.Errorf("bob got %v", items(r))
		}
		if _, err := n.sweep(t.Context()); err != nil {
			t.Error(err)
		}
		if held := query[int](t, db, `select count(*) from getwork.work where state = 'held'`); held != 3 {
			t.Errorf("%d are held after the sweep of a node that is years behind, want 3", held)
		}
		if !time.Now().Equal(began) {
			t.Errorf("its clock went on by %v", time.Since(began))
		}
	})
}

// A program that is gone is not given its item again: with its lease its pending request ends, too. A person's request goes
// on waiting, and so does that of a living program of the same name.
func TestWhatASilentProgramWaitsForEndsWithItsLease(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	db := pool(t, url)
	newTask(t, n, "inbox", "", leased(time.Hour))
	if _, err := n.Push(t.Context(), "inbox", []assign.NewItem{{Item: "a"}}, assign.Who{Holder: assign.Holder{User: "boss"}, Anything: true}); err != nil {
		t.Fatal(err)
	}
	ask := func(h assign.Holder) assign.Request {
		r, err := n.GetWork(t.Context(), "inbox", assign.Click{Holder: h, Count: 1, Linger: assign.Duration(time.Hour)})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	dead, alive := assign.Holder{User: "robot", Instance: "1"}, assign.Holder{User: "robot", Instance: "2"}
	if r := ask(dead); r.State != assign.Assigned {
		t.Fatalf("the first is %s", r.State)
	}
	silent, next, person := ask(dead), ask(alive), ask(assign.Holder{User: "robot"})
	n.idle(t) // a round that has locked the dead program's request would keep it
	execute(t, db, `update getwork.work set lease_expires_at = clock_timestamp()`)
	n.wakeSweep()
	if r := n.endedRequest(t, next.ID); r.State != assign.Assigned || r.Work[0].Attempt != 2 {
		t.Errorf("the living one is %s, with %v", r.State, r.Work)
	}
	if r := n.endedRequest(t, silent.ID); r.State != assign.Cancelled {
		t.Errorf("the dead one's request is %s, want cancelled", r.State)
	}
	if r, err := n.Request(t.Context(), person.ID, person.Holder(), false); err != nil || r.State != assign.Pending {
		t.Errorf("the person's is %s (%v), want pending", r.State, err)
	}
}

// Work whose lease has run out is the sweep's, even before it has come: neither release nor reassign takes it for held.
func TestReleaseLeavesExpiredWork(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := still(t, url)
	db := pool(t, url)
	newInbox(t, n, "inbox", leased(time.Hour))
	n.push(t, "inbox", "a", "b")
	late := n.serve(t, "inbox", "ann", 2).Work[0]
	d, err := n.Release(t.Context(), assign.Release{User: "ann", DryRun: true}, "boss")
	if err != nil || d.Count != 2 {
		t.Fatalf("%+v, %v", d, err)
	}
	execute(t, db, `update getwork.work set lease_expires_at = clock_timestamp() where id = $1`, late.ID)
	_, err = n.Release(t.Context(), assign.Release{User: "ann", Token: d.Token}, "boss")
	wantKind(t, err, assign.ChangedSet)
	d, err = n.Release(t.Context(), assign.Release{User: "ann", DryRun: true}, "boss")
	if err != nil || d.Count != 1 {
		t.Fatalf("%+v, %v", d, err)
	}
	if got, err := n.Release(t.Context(), assign.Release{User: "ann", Token: d.Token}, "boss"); err != nil || got.Count != 1 {
		t.Fatalf("%+v, %v", got, err)
	}
	for _, to := range []string{"ann", "bob"} {
		_, err = n.Reassign(t.Context(), late.ID, assign.Reassignment{User: to}, "boss")
		wantKind(t, err, assign.AlreadyClosed)
	}
	if _, err := n.sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := query[string](t, db, `select string_agg(item || ' ' || state, ', ' order by id) from getwork.work`); got != "a expired, b returned" {
		t.Error(got)
	}
}
