package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"getwork/assign"
	"getwork/assign/pg"
	"getwork/schema/schematest"
)

// wire is the network between a node and the database. It counts round trips, and can lose a message or the answer to it.
type wire struct {
	trips atomic.Int64
	lose  atomic.Int32 // what it does to the next COMMIT
	until func()       // returns when an answer may be lost
}

const (
	loseNothing = iota
	loseMessage
	loseAnswer
)

func (w *wire) dial(under pgconn.DialFunc) pgconn.DialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := under(ctx, network, address)
		return &wired{Conn: conn, wire: w}, err
	}
}

type wired struct {
	net.Conn
	wire    *wire
	waiting atomic.Bool // something was sent, and nothing has come since
	dead    atomic.Bool // nothing comes any more
}

func (c *wired) Write(b []byte) (int, error) {
	if !c.waiting.Swap(true) {
		c.wire.trips.Add(1)
	}
	if !bytes.Contains(b, []byte("commit\x00")) { // visible where nothing is prepared
		return c.Conn.Write(b)
	}
	switch c.wire.lose.Swap(loseNothing) {
	case loseMessage:
		_ = c.Conn.Close()
		return 0, net.ErrClosed
	case loseAnswer:
		c.dead.Store(true)
		n, err := c.Conn.Write(b)
		c.wire.until()
		_ = c.Conn.Close()
		return n, err
	}
	return c.Conn.Write(b)
}

func (c *wired) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.dead.Load() {
		return 0, io.ErrUnexpectedEOF
	}
	c.waiting.Store(false)
	return n, err
}

// A click on a fresh shelf or an inbox is two round trips: lock and reads, writes and COMMIT. With a key it is as many.
func TestClickTakesTwoRoundTrips(t *testing.T) {
	t.Parallel()
	w := &wire{}
	n := startNode(t, schematest.URL(t), nodeOptions{Dial: w.dial})
	newInbox(t, n, "inbox", nil)
	newTask(t, n, "shelf", numbers, func(s *assign.Settings) { s.FreshFor = assign.Duration(time.Hour) })
	n.endedRequest(t, n.click(t, "shelf", "first", 1).ID)
	var keys []string
	for i := range 60 {
		keys = append(keys, fmt.Sprint("item ", i))
	}
	n.push(t, "inbox", keys...)
	n.idle(t)
	least := func(what string, want int64, click func(i int)) {
		t.Helper()
		best := int64(100)
		for i := range 12 { // other work of the node may fall into some of them; the first ones prepare statements and connections
			before := w.trips.Load()
			click(i)
			best = min(best, w.trips.Load()-before)
		}
		if best != want {
			t.Errorf("%s: %d round trips, want %d", what, best, want)
		}
	}
	least("from the shelf", 2, func(i int) { n.click(t, "shelf", fmt.Sprint("user ", i), 2) })
	least("with a key", 2, func(i int) {
		c := assign.Click{Holder: assign.Holder{User: fmt.Sprint("agent ", i)}, Count: 2, Key: "key"}
		if r, err := n.GetWork(t.Context(), "shelf", c); err != nil || r.Assigned != 2 {
			t.Errorf("got %+v (%v)", r, err)
		}
	})
	least("from an inbox", 4, func(i int) { n.click(t, "inbox", fmt.Sprint("user ", i), 2) })
}

// A task that was changed on another node, between a click's arrival and its lock, is read again: this node remembers the task
// as it was, and hears nothing.
func TestRememberedTaskIsConfirmed(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	const name = "task"
	alice := assign.Click{Holder: assign.Holder{User: "alice"}, Groups: []string{"desk"}, Count: 3}
	change := func(change func(*assign.Settings)) func(*testing.T, *node, assign.Task) error {
		return func(t *testing.T, b *node, task assign.Task) error {
			_, err := b.UpdateTask(t.Context(), task.Name, task.Version, "a manager", func(s *assign.Settings) error { change(s); return nil })
			return err
		}
	}
	for what, tt := range map[string]struct {
		change func(*testing.T, *node, assign.Task) error
		click  assign.Click
		refuse assign.Kind // empty: answered with want
		want   string
		before bool // what the node remembers would refuse the click, so it reads the task
	}{
		"nothing":        {change(func(*assign.Settings) {}), alice, "", "assigned [3 4 5]", false},
		"its groups":     {change(func(s *assign.Settings) { s.Groups = []string{"loans"} }), alice, assign.NotFound, "", false},
		"no groups":      {change(func(s *assign.Settings) { s.Groups = nil }), assign.Click{Holder: assign.Holder{User: "bob"}, Count: 1}, "", "assigned [3]", true},
		"a smaller most": {change(func(s *assign.Settings) { s.MaxRequest = 2 }), alice, assign.Invalid, "", false},
		"a larger most":  {change(func(s *assign.Settings) { s.MaxRequest = 9 }), assign.Click{Holder: alice.Holder, Groups: alice.Groups, Count: 7}, "", "assigned [3 4 5 6 7 8 9]", true},
		"its name":       {change(func(s *assign.Settings) { s.Name = "other" }), alice, assign.NotFound, "", false},
		"paused":         {change(func(s *assign.Settings) { s.Paused = true }), alice, "", "none []", false},
		"deleted": {func(t *testing.T, b *node, task assign.Task) error { return b.DeleteTask(t.Context(), task.Name, 0) },
			alice, assign.NotFound, "", false},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			url := schematest.URL(t)
			db := pool(t, url)
			a, b := startNode(t, url, nodeOptions{Deaf: true}), startNode(t, url, nodeOptions{Deaf: true})
			task := newTask(t, a, name, numbers, func(s *assign.Settings) {
				s.FreshFor, s.Groups = assign.Duration(time.Hour), []string{"desk"}
			})
			first := assign.Click{Holder: assign.Holder{User: "first"}, Groups: []string{"desk"}, Count: 1}
			for range 2 { // the first makes the shelf, and the second remembers the task
				r, err := a.GetWork(t.Context(), name, first)
				if err != nil {
					t.Fatal(err)
				}
				for _, w := range a.endedRequest(t, r.ID).Work { // a task is not deleted while work is held
					if _, err := a.Dispose(t.Context(), w.ID, assign.Disposition{Outcome: "never"}, w.Holder(), false); err != nil {
						t.Fatal(err)
					}
				}
			}
			release, until := holdTask(t, db, task.ID)
			changed, answered := make(chan error, 1), make(chan error, 1)
			go func() { changed <- tt.change(t, b, task) }()
			until(1)
			if tt.before { // the change is committed before the click comes
				release()
				if err := <-changed; err != nil {
					t.Fatal(err)
				}
			}
			var r assign.Request
			go func() {
				var err error
				r, err = a.GetWork(t.Context(), name, tt.click)
				answered <- err
			}()
			if !tt.before {
				until(2)
				release()
				if err := <-changed; err != nil {
					t.Fatal(err)
				}
			}
			err := <-answered
			if tt.refuse != "" {
				wantKind(t, err, tt.refuse)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprint(r.State, " ", items(r)); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

// holdTask takes a task's assign lock. during returns when that many sessions wait for it, in the order in which they came;
// release lets them go on.
func holdTask(t *testing.T, db *pgxpool.Pool, task int64) (release func(), during func(waiting int)) {
	t.Helper()
	tx, err := db.Begin(t.Context())
	if err == nil {
		_, err = tx.Exec(t.Context(), `select from getwork.task_state where task_id = $1 for update`, task)
	}
	if err != nil {
		t.Fatal(err)
	}
	release = func() { _ = tx.Rollback(context.Background()) }
	t.Cleanup(release)
	return release, func(waiting int) {
		t.Helper()
		await(t, fmt.Sprint(waiting, " sessions wait for the task"), func() bool {
			return schematest.LockWaits(t, db) >= waiting
		})
	}
}

// A user whose log-in has ended is refused by the task's settings as they are, too: the task is compared first.
func TestRememberedTaskOfAnEndedLogIn(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	db := pool(t, url)
	a, b := startNode(t, url, nodeOptions{Deaf: true}), startNode(t, url, nodeOptions{Deaf: true})
	task := newInbox(t, a, "inbox", func(s *assign.Settings) { s.Groups = []string{"desk"} })
	session := logIn(t, db, "ann")
	ann := once("ann", session)
	ann.Groups = []string{"desk"}
	a.ask(t, "inbox", ann)
	if _, err := b.UpdateTask(t.Context(), "inbox", task.Version, "a manager", func(s *assign.Settings) error { s.Groups = []string{"loans"}; return nil }); err != nil {
		t.Fatal(err)
	}
	logOut(t, db, session)
	_, err := a.GetWork(t.Context(), "inbox", ann)
	wantKind(t, err, assign.NotFound)
}

// A task that was deleted and made again on another node, under the same name, is the new one.
func TestRememberedTaskMadeAgain(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	a, b := startNode(t, url, nodeOptions{Deaf: true}), startNode(t, url, nodeOptions{Deaf: true})
	newInbox(t, a, "inbox", nil)
	a.push(t, "inbox", "old")
	old := a.click(t, "inbox", "ann", 1)
	if _, err := a.Dispose(t.Context(), old.Work[0].ID, assign.Disposition{Outcome: "complete"}, old.Holder(), false); err != nil {
		t.Fatal(err)
	}
	if err := b.DeleteTask(t.Context(), "inbox", 0); err != nil {
		t.Fatal(err)
	}
	again := newInbox(t, b, "inbox", nil)
	b.push(t, "inbox", "new")
	if r := a.click(t, "inbox", "ann", 1); r.TaskID != again.ID || fmt.Sprint(items(r)) != "[new]" {
		t.Errorf("the click is on task %d and got %v, want %d and [new]", r.TaskID, items(r), again.ID)
	}
}

// sent is an inbox with the items a and b, and a click of ann's on it, held between its two round trips.
type sent struct {
	*node
	db       *pgxpool.Pool
	wire     *wire
	read     atomic.Pointer[gate]
	task     assign.Task
	click    assign.Click
	answered chan error
	answer   assign.Request
}

func send(t *testing.T) *sent {
	t.Helper()
	url := schematest.URL(t)
	s := &sent{wire: &wire{}, db: pool(t, url), answered: make(chan error, 1),
		click: assign.Click{Holder: assign.Holder{User: "ann"}, Count: 1, Key: "once"}}
	s.node = startNode(t, url, nodeOptions{Dial: s.wire.dial, Pooled: true, Steps: func(ctx context.Context, step Step) {
		if g := s.read.Load(); g != nil {
			g.hold(ctx, step)
		}
	}})
	s.read.Store(newGate(StepRead))
	s.task = newInbox(t, s.node, "inbox", nil)
	s.push(t, "inbox", "a", "b")
	s.idle(t)
	go func() {
		var err error
		s.answer, err = s.GetWork(t.Context(), "inbox", s.click)
		s.answered <- err
	}()
	<-s.read.Load().reached
	return s
}

// written returns what ann has.
func (s *sent) written(t *testing.T) string {
	t.Helper()
	return query[string](t, s.db, `
select format('%s requests, %s keys, %s', (select count(*) from getwork.work_requested), (select count(key) from getwork.work_requested),
  (select coalesce(array_agg(item order by item), '{}') from getwork.work where state = 'held'))`)
}

// again asks once more with the same key.
func (s *sent) again(t *testing.T, want string) {
	t.Helper()
	r, err := s.GetWork(t.Context(), "inbox", s.click)
	if err != nil || fmt.Sprint(items(r)) != "[a]" {
		t.Errorf("asked again: %v (%v), want [a]", items(r), err)
	}
	if got := s.written(t); got != want {
		t.Errorf("asked again: %s, want %s", got, want)
	}
}

const (
	nothing = "0 requests, 0 keys, {}"
	served  = "1 requests, 1 keys, {a}"
)

// The connection breaks between the two round trips of a click, or loses the second one's message or its answer. In the last
// case alone the click was recorded and served; the caller can't know, asks again with the same key, and gets the same.
func TestClickWhoseConnectionBreaks(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	for what, tt := range map[string]struct {
		breaks func(*sent)
		want   string
	}{
		"between": {func(s *sent) {
			execute(t, s.db, `select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and state = 'idle in transaction'`)
		}, nothing},
		"before COMMIT arrives": {func(s *sent) { s.wire.lose.Store(loseMessage) }, nothing},
		"after COMMIT arrived": {func(s *sent) {
			s.wire.until = func() { await(t, "the click is recorded", func() bool { return s.written(t) == served }) }
			s.wire.lose.Store(loseAnswer)
		}, served},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := send(t)
			tt.breaks(s)
			close(s.read.Load().open)
			if err := <-s.answered; !pg.Away(err) {
				t.Errorf("the click is answered %v, want an error that the database is away", err)
			}
			if got := s.written(t); got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
			s.again(t, served)
		})
	}
}

// Another session takes the item, without any lock, between the two round trips of a click. The index refuses the write, and
// COMMIT with it. The round plans again, and hands out the next.
func TestClickWhosePlanIsRefused(t *testing.T) {
	t.Parallel()
	s := send(t)
	execute(t, s.db, `insert into getwork.work (task_id, item, user_name, details) values ($1, 'a', 'mallory', '{}')`, s.task.ID)
	close(s.read.Load().open)
	if err := <-s.answered; err != nil || fmt.Sprint(items(s.answer)) != "[b]" {
		t.Fatalf("got %v (%v), want [b]", items(s.answer), err)
	}
	if got := s.written(t); got != "1 requests, 1 keys, {a,b}" {
		t.Error(got)
	}
}

// A click's round has one transaction id: with a savepoint it would have another, and lock the task's row by a multixact of both.
func TestClickSetsNoSavepoint(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	db := pool(t, url)
	task := newInbox(t, n, "inbox", nil)
	n.push(t, "inbox", "a", "b")
	n.idle(t)
	for range 2 { // the second by what the node remembers
		r := n.click(t, "inbox", "ann", 1)
		if same := query[bool](t, db, `select s.xmax::text = r.xmin::text from getwork.task_state s, getwork.work_requested r where s.task_id = $1 and r.id = $2`, task.ID, r.ID); !same {
			t.Error("a click is written in another transaction than the one that locks the task")
		}
	}
}

// A click whose plan is refused begins again behind those who have waited for its lock meanwhile. Nobody gets what another has, and
// requests get the items in the order of their ids.
func TestRefusedClickBeginsAgain(t *testing.T) {
	t.Parallel()
	s := send(t)
	s.push(t, "inbox", "c")
	second := startNode(t, s.db.Config().ConnString(), nodeOptions{})
	waits := make(chan assign.Request, 1)
	go func() {
		r, err := second.GetWork(t.Context(), "inbox", assign.Click{Holder: assign.Holder{User: "ben"}, Count: 1})
		if err != nil {
			t.Error(err)
		}
		waits <- r
	}()
	await(t, "ben's click waits for the lock", func() bool { return schematest.LockWaits(t, s.db) == 1 })
	execute(t, s.db, `insert into getwork.work (task_id, item, user_name, details) values ($1, 'a', 'mallory', '{}')`, s.task.ID)
	close(s.read.Load().open)
	if err := <-s.answered; err != nil {
		t.Fatal(err)
	}
	ann, ben := s.answer, <-waits
	first, last := fmt.Sprint(items(ann)), fmt.Sprint(items(ben))
	if ben.ID < ann.ID {
		first, last = last, first
	}
	if first != "[b]" || last != "[c]" {
		t.Errorf("request %d of ann got %v, and %d of ben %v", ann.ID, items(ann), ben.ID, items(ben))
	}
	if n := query[int](t, s.db, `select count(*) from getwork.work_requested where key is not null`); n != 1 {
		t.Errorf("ann's key is used %d times", n)
	}
}

// A write that touches another number of rows than planned takes COMMIT with it, though PostgreSQL finds nothing wrong. Here a
// trigger hides a waiting request from its round's write: once, and then for good.
func TestClickWhoseWriteTouchesTooLittle(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	db := pool(t, url)
	n := startNode(t, url, nodeOptions{})
	task := newInbox(t, n, "inbox", nil)
	cyd := assign.Click{Holder: assign.Holder{User: "cyd"}, Count: 1, Linger: assign.Duration(time.Hour)}
	waiting, err := n.GetWork(t.Context(), "inbox", cyd)
	if err != nil || waiting.State != assign.Pending {
		t.Fatalf("%+v (%v)", waiting, err)
	}
	n.idle(t)
	execute(t, db, `create sequence hidden; grant usage on sequence hidden to public`)
	execute(t, db, `create function hide() returns trigger language plpgsql as $$
begin if new.state = 'assigned' and nextval('public.hidden') <> 2 then return null; end if; return new; end $$`)
	execute(t, db, `create trigger hide before update on getwork.work_requested for each row execute function hide()`)
	execute(t, db, `insert into getwork.item (task_id, item, pushed_by) select $1, i, 'somebody' from unnest('{a,b,c,d}'::text[]) i`, task.ID)
	ann := n.click(t, "inbox", "ann", 1)
	if r := n.endedRequest(t, waiting.ID); fmt.Sprint(items(r), items(ann)) != "[a] [b]" {
		t.Errorf("cyd and ann got %v and %v, want [a] and [b]", items(r), items(ann))
	}
	execute(t, db, `insert into getwork.work_requested (task_id, user_name, wanted, requested) values ($1, 'dee', 1, 1)`, task.ID)
	if r, err := n.GetWork(t.Context(), "inbox", assign.Click{Holder: assign.Holder{User: "eve"}, Count: 1}); !errors.Is(err, pg.ErrMoved) {
		t.Errorf("eve got %+v (%v), want an error", r, err)
	}
	if held := query[int](t, db, `select count(*) from getwork.work`); held != 2 {
		t.Errorf("%d items are held, want 2", held)
	}
	if asked := query[int](t, db, `select count(*) from getwork.work_requested where user_name = 'eve'`); asked != 0 {
		t.Error("eve's click is recorded")
	}
}

// A client that leaves, or a call that takes too long, does not cancel a COMMIT that travels with its writes: the guard of
// commits covers the whole message.
func TestCommitWithWritesIsNotCancelled(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	db := pool(t, url)
	n := startNode(t, url, nodeOptions{})
	execute(t, db, `create table slow (n int)`)
	ctx, leave := context.WithCancel(t.Context())
	begun := make(chan struct{})
	go func() {
		<-begun
		await(t, "the write is under way", func() bool {
			return schematest.LockWaits(t, db) > 0
		})
		leave()
	}()
	lock, err := db.Begin(t.Context())
	if err == nil {
		_, err = lock.Exec(t.Context(), `select pg_advisory_xact_lock(1)`)
	}
	if err != nil {
		t.Fatal(err)
	}
	err = pg.Transact(ctx, n.DB, func(tx pgx.Tx) error {
		close(begun)
		var wrote pg.Writes
		wrote.Queue(pg.AnyNumber, `select pg_advisory_xact_lock(1)`)
		wrote.Queue(1, `insert into public.slow values (1)`)
		return wrote.SendLast(ctx, tx)
	})
	if err == nil {
		t.Error("the call was not given up")
	}
	if err := lock.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	await(t, "the write commits", func() bool { return query[int](t, db, `select count(*) from public.slow`) == 1 })
}
