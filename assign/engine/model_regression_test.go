package engine

import (
	"fmt"
	"slices"
	"testing"

	"getwork/assign"
	"getwork/schema/schematest"
)

// Cases that the model found, shrunk, as named tests.

// regress starts a still engine with an inbox, or, with a query, a task whose items are in the table model_rows.
func regress(t *testing.T, query string, change func(*assign.Settings)) *Engine {
	t.Helper()
	url := schematest.URL(t)
	execute(t, pool(t, url), `create table model_rows (item text primary key, places int); insert into model_rows select i, 1 from generate_series(1, 2) i`)
	e := stillEngine(t, url)
	newTask(t, &node{Engine: e, Records: e.Records}, "task", query, change)
	return e
}

var regressBoss = assign.Who{Holder: assign.Holder{User: "boss"}, Anything: true}

// regressClick asks for work and returns what it got, once everything that this woke is over.
func regressClick(t *testing.T, e *Engine, user string, count int, linger assign.Duration) assign.Request {
	t.Helper()
	r, err := e.GetWork(t.Context(), "task", assign.Click{Holder: assign.Holder{User: user}, Count: count, Linger: linger})
	if err != nil {
		t.Fatal(err)
	}
	e.Wait(t.Context())
	return regressNow(t, e, r)
}

func regressNow(t *testing.T, e *Engine, r assign.Request) assign.Request {
	t.Helper()
	r, err := e.Records.Request(t.Context(), r.ID, r.Holder(), false)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func regressPush(t *testing.T, e *Engine, accepted int, items ...assign.NewItem) {
	t.Helper()
	p, err := e.Push(t.Context(), "task", items, regressBoss)
	if err != nil || p.Accepted != accepted {
		t.Fatalf("pushed %+v, %v; want %d accepted", p, err, accepted)
	}
	e.Wait(t.Context())
}

func regressDispose(t *testing.T, e *Engine, w assign.Work, d assign.Disposition) {
	t.Helper()
	if _, err := e.Dispose(t.Context(), w.ID, d, w.Holder(), false); err != nil {
		t.Fatal(err)
	}
	e.Wait(t.Context())
}

func regressChange(t *testing.T, e *Engine, change func(*assign.Settings)) {
	t.Helper()
	task, err := e.Records.Task(t.Context(), "task")
	if err == nil {
		_, err = e.UpdateTask(t.Context(), "task", task.Version, "boss", func(s *assign.Settings) error { change(s); return nil })
	}
	if err != nil {
		t.Fatal(err)
	}
	e.Wait(t.Context())
}

// The reason why a lingering request had found nothing stayed when the request was cancelled.
func TestACancelledRequestHasNoReason(t *testing.T) {
	t.Parallel()
	e := regress(t, "", nil)
	r := regressClick(t, e, "ann", 1, assign.MaxLinger)
	r, err := e.Cancel(t.Context(), r.ID, r.Holder(), false)
	if err != nil || r.State != assign.Cancelled || r.Reason != nil {
		t.Errorf("cancelled: %+v, %v", r, err)
	}
}

// Work that was put off or never to return at the only place bound all users for good when the places became more.
func TestMorePlacesForWhatOneHasPutOff(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	hour := assign.MaxLinger
	for _, d := range []assign.Disposition{{Outcome: "return", After: &hour}, {Outcome: "never"}} {
		t.Run(d.Outcome, func(t *testing.T) {
			e := regress(t, "", nil)
			regressPush(t, e, 1, assign.NewItem{Item: "a"})
			regressDispose(t, e, regressClick(t, e, "ann", 1, 0).Work[0], d)
			regressChange(t, e, func(s *assign.Settings) { s.Slots = 2 })
			if r := regressClick(t, e, "ann", 1, 0); r.State != assign.None {
				t.Errorf("ann got %v, which she put off", items(r))
			}
			if r := regressClick(t, e, "bob", 1, 0); !slices.Equal(items(r), []string{"a"}) {
				t.Errorf("bob got %v, %s", items(r), r.State)
			}
		})
	}
}

// An item of several places that one holder had completed while another held it could be pushed again. The other's completion
// of the old item then removed the new one, which nobody had worked on.
func TestAKeyIsADuplicateWhileSomebodyHoldsIt(t *testing.T) {
	t.Parallel()
	e := regress(t, "", func(s *assign.Settings) { s.Slots = 2 })
	regressPush(t, e, 1, assign.NewItem{Item: "a"})
	ann, bob := regressClick(t, e, "ann", 1, 0), regressClick(t, e, "bob", 1, 0)
	regressDispose(t, e, ann.Work[0], assign.Disposition{Outcome: "complete"})
	regressPush(t, e, 0, assign.NewItem{Item: "a"})
	regressDispose(t, e, bob.Work[0], assign.Disposition{Outcome: "complete"})
	regressPush(t, e, 1, assign.NewItem{Item: "a"})
	if r := regressClick(t, e, "cleo", 1, 0); !slices.Equal(items(r), []string{"a"}) {
		t.Errorf("cleo got %v, %s", items(r), r.State)
	}
}

// Two requests linger, and have heard that there is nothing. The first one's look_after comes; the run's result is cut, and
// the first request takes all of it. The second does not wait for its own look_after: the next run is for it.
func TestWhoLingersWaitsForTheNextRunOfACutResult(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	e := regress(t, `select item from model_rows order by item`, func(s *assign.Settings) { s.MaxCandidates = 1; s.RerunAfter = assign.MaxLinger })
	execute(t, e.API, `delete from model_rows`)
	ann, bob := regressClick(t, e, "ann", 1, assign.MaxLinger), regressClick(t, e, "bob", 1, assign.MaxLinger)
	execute(t, e.API, `insert into model_rows select i, 1 from generate_series(1, 3) i`)
	execute(t, e.API, `update getwork.work_requested set look_after = clock_timestamp() where user_name = 'ann'`)
	e.Wake(ann.TaskID)
	e.Wait(t.Context())
	for i, r := range []assign.Request{ann, bob} {
		if got := regressNow(t, e, r); !slices.Equal(items(got), []string{fmt.Sprint(i + 1)}) {
			t.Errorf("%s got %v, %s", got.User, items(got), got.State)
		}
	}
}

// A request lingers that a rule keeps from what is left on a cut shelf. Each time that something came back to the shelf it
// alone started a run. Lingering requests alone may do that once per rerun_after.
func TestAShelfThatIsWokenRunsNothingForLingeringRequests(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	e := regress(t, `select item, places as slots from model_rows order by item`, func(s *assign.Settings) {
		s.MaxCandidates, s.FreshFor, s.RerunAfter = 1, assign.MaxLinger, assign.MaxLinger
	})
	execute(t, e.API, `update model_rows set places = 3`)
	others, zero := "others", assign.Duration(0)
	regressDispose(t, e, regressClick(t, e, "ann", 1, 0).Work[0], assign.Disposition{Outcome: "return", After: &zero, To: &others})
	ann := regressClick(t, e, "ann", 1, assign.MaxLinger)
	runs := func() int64 { return query[int64](t, e.API, `select count(*) from getwork.run`) }
	before := runs()
	for range 3 {
		regressDispose(t, e, regressClick(t, e, "bob", 1, 0).Work[0], assign.Disposition{Outcome: "return", After: &zero})
	}
	if got := regressNow(t, e, ann); got.State != assign.Pending || runs() != before {
		t.Errorf("ann's request is %s; %d runs, %d before", got.State, runs(), before)
	}
}
