package engine

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"getwork/assign"
	"getwork/schema/schematest"
)

// patient makes a task whose lingering requests alone start no run for an hour: only an event can serve them before.
func patient(s *assign.Settings) { s.RerunAfter = assign.Duration(time.Hour) }

// idle waits until a node serves no task and records nothing.
func (n *node) idle(t testing.TB) {
	t.Helper()
	await(t, "the node looks at nothing", func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return len(n.loops) == 0 && len(n.dispatches) == 0
	})
}

// wantServed waits until a request that lingers on a patient task has got that item.
func (n *node) wantServed(t testing.TB, r assign.Request, item string) {
	t.Helper()
	r = n.endedRequest(t, r.ID)
	if len(r.Work) != 1 || r.Work[0].Item != item {
		t.Errorf("%s's request ended as %s %v with %v, want %s", r.User, r.State, why(r), items(r), item)
	}
}

// An item that becomes free between the read and the commit of the round that records a lingering click serves that click at
// once, although the session that freed the item could not see it.
func TestFreedBesideTheRoundOfAClick(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	for name, free := range map[string]func(*testing.T, *node, assign.Work){
		"pushed":    func(t *testing.T, n *node, _ assign.Work) { n.push(t, "jobs", "a") },
		"let go of": func(t *testing.T, n *node, w assign.Work) { n.let(t, w, giveBack(0)) },
	} {
		t.Run(name, func(t *testing.T) {
			url := schematest.URL(t)
			read := newGate(StepRead)
			other := startNode(t, url, nodeOptions{})
			newInbox(t, other, "jobs", patient)
			var w assign.Work
			if name != "pushed" {
				other.push(t, "jobs", "a")
				w = other.take(t, "jobs", "ann")
			}
			n := startNode(t, url, nodeOptions{Steps: read.hold})
			recorded := make(chan assign.Request, 1)
			go func() {
				r, err := n.GetWork(context.Background(), "jobs", assign.Click{Holder: assign.Holder{User: "lee"}, Count: 1, Linger: assign.Duration(time.Hour)})
				if err != nil {
					t.Error(err)
				}
				recorded <- r
			}()
			<-read.reached
			free(t, other, w)
			other.idle(t) // it has seen no waiting request
			close(read.open)
			n.wantServed(t, <-recorded, "a")
		})
	}
}

// The same beside the round of a run: the shelf that it leaves did not exist yet for the session that freed a place on it.
func TestFreedBesideTheRoundOfARun(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	url := schematest.URL(t)
	db := pool(t, url)
	other := startNode(t, url, nodeOptions{})
	newTask(t, other, "jobs", `select 'a' as item, 2 as slots`, func(s *assign.Settings) {
		s.FreshFor, s.RerunAfter = assign.Duration(time.Hour), assign.Duration(time.Hour)
	})
	w := other.take(t, "jobs", "ann")
	other.take(t, "jobs", "bob")
	other.idle(t)
	execute(t, db, `update getwork.task_state set fresh_until = clock_timestamp()`)
	written := newGate(StepWritten)
	n := startNode(t, url, nodeOptions{Steps: written.hold})
	lee := n.linger(t, "jobs", "lee", 1)
	<-written.reached
	other.let(t, w, giveBack(0))
	other.idle(t) // it has seen no shelf, and found the run lock taken
	close(written.open)
	n.wantServed(t, lee, "a")
}

// A request that a rule keeps from all of a cut shelf waits for a run; while a back-off delays the run, rounds do not follow
// one another.
func TestBarredDuringABackOffWaitsQuietly(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	url := schematest.URL(t)
	db := pool(t, url)
	var rounds atomic.Int64
	n := startNode(t, url, nodeOptions{Steps: func(_ context.Context, s Step) {
		if s == StepCommitted {
			rounds.Add(1)
		}
	}})
	execute(t, db, `create table loans as select generate_series(1, 10) as n`)
	execute(t, db, `create table bad (n integer)`)
	newTask(t, n, "check", `select n as item from loans order by n`, fresh(time.Hour))
	newTask(t, n, "approve", `select n as item, 1 / case when exists (select from bad) then 0 else 1 end as one from loans order by n`, func(s *assign.Settings) {
		s.FreshFor, s.MaxCandidates, s.ConflictsWith = assign.Duration(time.Hour), 4, []string{"check"}
	})
	if r := n.endedRequest(t, n.click(t, "check", "ann", 5).ID); r.Assigned != 5 {
		t.Fatalf("ann has %v", items(r))
	}
	n.take(t, "approve", "bob") // leaves 2, 3 and 4 on the shelf, and ann has checked them all
	execute(t, db, `insert into bad values (1)`)
	if r := n.endedRequest(t, n.click(t, "approve", "ann", 1).ID); r.State != assign.Failed {
		t.Fatalf("ann's request ended as %s", r.State)
	}
	execute(t, db, `delete from bad`)
	execute(t, db, `delete from loans where n <= 5`)
	n.idle(t)
	over := query[time.Time](t, db, `update getwork.task_state set failed_until = clock_timestamp() + interval '1.5 s' where name = 'approve' returning failed_until`)
	rounds.Store(0)
	r := n.endedRequest(t, n.click(t, "approve", "ann", 1).ID)
	if got := strings.Join(items(r), " "); got != "6" || r.CompletedAt.Before(over) {
		t.Errorf("ann's request ended as %s with %s at %v, want 6 after %v", r.State, got, r.CompletedAt, over)
	}
	if got := rounds.Load(); got > 3 {
		t.Errorf("%d rounds until the back-off was over, want at most 3", got)
	}
}

// said is a log that reports when a line contains some text.
type said struct {
	text  string
	once  sync.Once
	heard chan struct{}
}

func (s *said) Write(line []byte) (int, error) {
	if strings.Contains(string(line), s.text) {
		s.once.Do(func() { close(s.heard) })
	}
	return len(line), nil
}

// The pass that is due with an item meets an error of the database. Nothing else announces the item again, so the node tries
// again by itself.
func TestDueWhileTheDatabaseFails(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	url := schematest.URL(t)
	db := pool(t, url)
	failed := &said{text: "round failed", heard: make(chan struct{})}
	n := startNode(t, url, nodeOptions{Log: failed})
	newInbox(t, n, "jobs", patient)
	lee := n.linger(t, "jobs", "lee", 1)
	due := time.Now().Add(time.Hour)
	n.pushItems(t, "jobs", assign.NewItem{Item: "a", NotBefore: &due})
	n.idle(t)
	execute(t, db, `alter table getwork.item rename to away`)
	execute(t, db, `update getwork.away set due_at = clock_timestamp()`)
	n.Wake(lee.TaskID) // as its timer does
	<-failed.heard
	execute(t, db, `alter table getwork.away rename to item`)
	n.wantServed(t, lee, "a")
}

// A request that lingers under one of two conflicting tasks is served when the work that barred its user is over under the
// other.
func TestConflictThatEndsServesWhoLingers(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	for name, end := range map[string]func(*testing.T, *node, assign.Work){
		"the holder lets go": func(t *testing.T, n *node, w assign.Work) { n.let(t, w, giveBack(time.Hour)) },
		"the rule is taken back": func(t *testing.T, n *node, _ assign.Work) {
			if _, err := n.change(t, "approve", func(s *assign.Settings) { s.ConflictsWith = []string{} }); err != nil {
				t.Fatal(err)
			}
		},
		"the other task is deleted": func(t *testing.T, n *node, w assign.Work) {
			n.let(t, w, assign.Disposition{Outcome: "complete"})
			if err := n.DeleteTask(t.Context(), "approve", 0); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			url := schematest.URL(t)
			n := startNode(t, url, nodeOptions{})
			newInbox(t, n, "check", patient)
			newInbox(t, n, "approve", func(s *assign.Settings) { s.ConflictsWith = []string{"check"} })
			n.push(t, "check", "a")
			n.push(t, "approve", "a")
			w := n.take(t, "approve", "ann")
			r := n.linger(t, "check", "ann", 1)
			n.idle(t)
			if now, err := n.Request(t.Context(), r.ID, r.Holder(), false); err != nil || now.State != assign.Pending {
				t.Fatalf("before: %s, %v", now.State, err)
			}
			end(t, n, w)
			n.wantServed(t, r, "a")
		})
	}
}
