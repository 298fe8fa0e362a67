package report

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"getwork/assign"
	"getwork/assign/enginetest"
	"getwork/schema/schematest"
)

// chronicle writes a made-up past: everything at so long after its beginning.
type chronicle struct {
	t     *testing.T
	db    *pgxpool.Pool
	from  time.Time
	items int
}

// chronicleOf returns a chronicle for a rig's database; it begins an hour ago, at a full minute.
func chronicleOf(t *testing.T, address string) *chronicle {
	return &chronicle{t: t, db: enginetest.Pool(t, address), from: time.Now().UTC().Add(-time.Hour).Truncate(time.Minute)}
}

// at returns the time so long after the beginning; "" is the beginning.
func (c *chronicle) at(after string) time.Time {
	c.t.Helper()
	if after == "" {
		return c.from
	}
	d, err := time.ParseDuration(after)
	if err != nil {
		c.t.Fatal(err)
	}
	return c.from.Add(d)
}

// request adds a request that was made then, and ended in that state so much later.
func (c *chronicle) request(task assign.Task, made, waited string, state assign.State, lingers bool) {
	c.t.Helper()
	asked, got := 0, 0
	switch state {
	case assign.Assigned:
		asked, got = 2, 2
	case assign.Partial:
		asked, got = 1, 1
	case assign.Pending:
		asked = 2
	}
	var ended, until *time.Time
	if state != assign.Pending {
		e := c.at(made).Add(c.at(waited).Sub(c.from))
		ended = &e
	}
	if lingers {
		u := c.at(made).Add(2 * time.Hour)
		until = &u
	}
	c.items++
	enginetest.Execute(c.t, c.db, `
insert into getwork.work_requested (task_id, user_name, wanted, requested, assigned, state, reason, error, created_at, completed_at, linger_until)
values ($1, $2, 2, $3, $4, $5, case when $5 = 'none' then 'no_match' end, case when $5 = 'failed' then 'oh' end, $6, $7, $8)`,
		task.ID, fmt.Sprint("user ", c.items), asked, got, string(state), c.at(made), ended, until)
}

func (c *chronicle) run(task assign.Task, began, took, state string) {
	c.t.Helper()
	ended := c.at(began).Add(c.at(took).Sub(c.from))
	enginetest.Execute(c.t, c.db, `
insert into getwork.run (task_id, version, node, state, started_at, finished_at, error, seen_until, given, blocked, passed_over, candidates, cut)
values ($1, 1, 'n', $2, $3, case when $2 <> 'running' then $4::timestamptz end, case when $2 = 'failed' then 'oh' end,
  case when $2 = 'finished' then $3::timestamptz end, 1, 0, 0, 1, false)`, task.ID, state, c.at(began), ended)
}

// work is handed out then, and let go of after so long, or held. by: who let go of it, if not its holder; "-": nobody, its lease ran out.
func (c *chronicle) work(task assign.Task, user, item, handed, state, after, by string) {
	c.t.Helper()
	var closed *time.Time
	var closer *string
	if state != "held" {
		e := c.at(handed).Add(c.at(after).Sub(c.from))
		closed = &e
		if closer = &user; by != "" {
			closer = &by
		}
		if by == "-" {
			closer = nil
		}
	}
	enginetest.Execute(c.t, c.db, `
insert into getwork.work (task_id, item, user_name, state, assigned_at, closed_at, closed_by, closed_xid, after, available_at)
values ($1, $2, $3, $4::text, $5, $6::timestamptz, $7, case when $4 <> 'held' then pg_current_xact_id() end,
  case when $4 = 'returned' then interval '0' end, case when $4 in ('returned', 'failed') then $6::timestamptz end)`,
		task.ID, item, user, state, c.at(handed), closed, closer)
}

func (c *chronicle) history(n *rig, step time.Duration, tasks ...string) assign.History {
	c.t.Helper()
	h, err := n.History(c.t.Context(), assign.Span{Tasks: tasks, Since: &c.from, Step: step})
	if err != nil {
		c.t.Fatal(err)
	}
	return h
}

// Every number of this past is known, minute by minute.
func TestHistory(t *testing.T) {
	t.Parallel()
	address := schematest.URL(t)
	n := start(t, address)
	a, b := n.newTask(t, "a", enginetest.Numbers), n.newTask(t, "b", enginetest.Numbers)
	c := chronicleOf(t, address)

	c.request(a, "-1us", "5s", assign.Assigned, false) // before
	c.request(a, "0s", "1s", assign.Assigned, false)   // the border belongs to what begins there
	c.request(a, "59.999999s", "3s", assign.Partial, false)
	c.request(a, "30s", "2s", assign.None, false)
	c.request(a, "31s", "40m", assign.Assigned, true) // waited long, as it wished
	c.request(a, "60s", "4s", assign.Failed, false)
	c.request(a, "61s", "1500ms", assign.Cancelled, false)
	c.request(a, "62s", "", assign.Pending, false)
	c.request(a, "2m", "", assign.Pending, true)
	c.request(a, "121s", "10m", assign.None, true)
	for i := range 10 {
		c.request(b, "1m", fmt.Sprintf("%ds", i+1), assign.Assigned, false)
	}
	c.run(a, "-1s", "90s", "finished") // before
	c.run(a, "1s", "20s", "finished")
	c.run(a, "2s", "30s", "finished")
	c.run(a, "3s", "40s", "finished")
	c.run(a, "4s", "120s", "failed")
	c.run(a, "5s", "121s", "lost")
	c.run(a, "6s", "122s", "cancelled")
	c.run(a, "60s", "", "running")
	c.work(a, "ann", "long", "-20m", "held", "", "")
	c.work(a, "ann", "over", "-20m", "completed", "1m", "")
	c.work(a, "ann", "1", "-10m", "completed", "10m", "") // closed at the border
	c.work(a, "ann", "2", "0s", "returned", "59.999999s", "")
	c.work(a, "ann", "3", "1s", "never", "59s", "")
	c.work(a, "ann", "4", "2s", "failed", "60s", "")
	c.work(a, "ann", "5", "3s", "expired", "2m", "-")
	c.work(a, "ann", "6", "70s", "reassigned", "1m", "boss")
	c.work(a, "bob", "6", "130s", "held", "", "")
	c.work(a, "bob", "7", "10s", "completed", "20m", "")

	h := c.history(n, time.Minute, "a")
	if h.From != c.from || h.Step != assign.Duration(time.Minute) || h.To.Before(c.from.Add(time.Hour)) || len(h.Tasks) != 1 || h.Tasks[0].Task != "a" {
		t.Fatalf("%+v", h)
	}
	got := h.Tasks[0].Buckets
	if n := int(h.To.Sub(c.from)/time.Minute) + 1; len(got) != n && h.To != c.from.Add(time.Duration(n-1)*time.Minute) {
		t.Errorf("%d buckets, want %d", len(got), n)
	}
	want := make([]assign.Bucket, len(got))
	for i := range want {
		want[i] = assign.Bucket{At: c.from.Add(time.Duration(i) * time.Minute), Held: 2}
	}
	for i, held := range []int64{5, 4, 3} {
		want[i].Held = held
	}
	for i := 3; i < 20; i++ {
		want[i].Held = 3 // "7" goes in the 21st
	}
	w := &want[0]
	w.Requests, w.Given, w.Empty, w.WaitMS = 4, 3, 1, &assign.Waits{P50: 2000, P90: 3000, Max: 3000}
	w.Runs, w.RunsFailed, w.RunMS = 6, 2, &assign.RunTimes{P50: 30000, Max: 40000}
	w.Assigned, w.Completed, w.Returned = 5, 1, 1
	w = &want[1]
	w.Requests, w.Failed, w.Cancelled, w.WaitMS, w.Runs = 3, 1, 1, &assign.Waits{P50: 1500, P90: 4000, Max: 4000}, 1
	w.Assigned, w.Never, w.FailedWork = 1, 1, 1
	w = &want[2]
	w.Requests, w.Empty = 2, 1
	w.Assigned, w.Expired, w.Reassigned = 1, 1, 1
	want[20].Completed = 1
	if diff := cmp.Diff(want[:22], got[:22]); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want[22:], got[22:]); diff != "" {
		t.Errorf("later (-want +got):\n%s", diff)
	}

	h = c.history(n, time.Minute)
	if len(h.Tasks) != 2 || h.Tasks[1].Task != "b" {
		t.Fatalf("all are %+v", h.Tasks)
	}
	if diff := cmp.Diff(assign.Bucket{At: c.at("1m"), Requests: 10, Given: 10, WaitMS: &assign.Waits{P50: 5000, P90: 9000, Max: 10000}}, h.Tasks[1].Buckets[1]); diff != "" {
		t.Error(diff)
	}
	if h := c.history(n, time.Minute, "b", "a", "b"); len(h.Tasks) != 2 || h.Tasks[0].Task != "a" {
		t.Errorf("two by name are %d", len(h.Tasks))
	}
}

// The last bucket ends now, and a history without a given beginning begins at a full step.
func TestHistoryBegins(t *testing.T) {
	t.Parallel()
	address := schematest.URL(t)
	n := start(t, address)
	n.newTask(t, "a", enginetest.Numbers)
	h, err := n.History(t.Context(), assign.Span{})
	if err != nil {
		t.Fatal(err)
	}
	all := h.Tasks[0].Buckets
	last := all[len(all)-1].At
	if h.Step != assign.Duration(5*time.Minute) || h.From != h.From.Truncate(5*time.Minute) || h.To.Sub(h.From) < 6*time.Hour || h.To.Sub(h.From) > 6*time.Hour+5*time.Minute {
		t.Errorf("from %v to %v in steps of %v", h.From, h.To, h.Step)
	}
	if all[0].At != h.From || last.After(h.To) || h.To.Sub(last) > 5*time.Minute {
		t.Errorf("buckets from %v to %v, now is %v", all[0].At, last, h.To)
	}
	since := now(t, n.db)
	if h, err = n.History(t.Context(), assign.Span{Since: &since}); err != nil || len(h.Tasks[0].Buckets) != 1 {
		t.Errorf("since now: %+v, %v", h, err)
	}
}

// An event while the history is counted is in all of it or in none.
func TestHistoryIsOfOneMoment(t *testing.T) {
	t.Parallel()
	address := schematest.URL(t)
	n := start(t, address)
	n.newTask(t, "inbox", "")
	keys := make([]string, 300)
	for i := range keys {
		keys[i] = fmt.Sprint(i)
	}
	pushed := make([]assign.NewItem, len(keys))
	for i, key := range keys {
		pushed[i].Item = key
	}
	if _, err := n.node.Push(t.Context(), "inbox", pushed, assign.Who{Anything: true}); err != nil {
		t.Fatal(err)
	}
	since := time.Now().Add(-time.Minute)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range keys {
			r, err := n.node.GetWork(t.Context(), "inbox", assign.Click{Holder: assign.Holder{User: "ann"}, Count: 1})
			if err == nil {
				_, err = n.node.Dispose(t.Context(), r.Work[0].ID, assign.Disposition{Outcome: "complete"}, r.Holder(), false)
			}
			if err != nil {
				t.Error(err)
				return
			}
		}
	}()
	for working := true; working; {
		select {
		case <-done:
			working = false
		default:
		}
		h, err := n.History(t.Context(), assign.Span{Since: &since, Step: 10 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		var sum int64
		for _, b := range h.Tasks[0].Buckets {
			sum += b.Assigned - b.Completed
			if b.Held != sum || sum > 1 {
				t.Fatalf("%d held, handed out but not let go of: %d", b.Held, sum)
			}
			if b.Requests != b.Given {
				t.Fatalf("%d requests, %d given", b.Requests, b.Given)
			}
		}
	}
}

// The closed requests and work of a user who worked through so many items.
const (
	endedRequests = `
insert into getwork.work_requested (task_id, user_name, wanted, requested, assigned, state, created_at, completed_at)
select $1, 'ann', 1, 1, 1, 'assigned', clock_timestamp() - i * interval '1 second', clock_timestamp() - i * interval '1 second'
from generate_series($2::integer, 1, -1) i`
	finishedWork = `
insert into getwork.work (task_id, item, user_name, lease, lease_expires_at, assigned_at, state, closed_at, closed_by, closed_xid)
select $1, 'done ' || i, 'ann', '1 minute', clock_timestamp() - i * interval '1 second', clock_timestamp() - i * interval '1 second',
  'completed', clock_timestamp() - i * interval '1 second', 'ann', pg_current_xact_id()
from generate_series(1, $2::integer) i`
)

// However long the past is, the counted rows are found by time, whether or not the tables were ever analyzed.
func TestHistoryIsFoundByTime(t *testing.T) {
	schematest.Long(t)
	t.Parallel()
	address := schematest.URL(t)
	n := start(t, address)
	task := n.newTask(t, "a", enginetest.Numbers)
	db := enginetest.Pool(t, address)
	for _, statement := range []string{endedRequests, finishedWork} {
		enginetest.Execute(t, db, statement, task.ID, 100_000)
	}
	hour := now(t, db).Add(-time.Hour)
	counting := []any{hour, time.Minute.Microseconds(), []int64{task.ID}, hour.Add(59 * time.Minute)}
	returning := []any{hour, []int64{task.ID}}
	for range 2 {
		for _, one := range []struct {
			statement, index string
			args             []any
		}{
			{countRequests, "work_requested_created", counting}, {countRuns, "run_started", counting}, {countWork, "work_closed", counting},
			{selectPeople, "work_closed", returning}, {selectReturned, "work_closed", returning}, {selectCodes, "work_closed", append(returning, []string{"ann"})},
		} {
			var plan []string
			err := n.begin(t.Context(), func(tx pgx.Tx) error {
				rows, err := tx.Query(t.Context(), "explain "+one.statement, one.args...)
				if err == nil {
					plan, err = pgx.CollectRows(rows, pgx.RowTo[string])
				}
				return err
			})
			if text := strings.Join(plan, "\n"); err != nil || !strings.Contains(text, one.index) || strings.Contains(text, "Seq Scan") {
				t.Errorf("%v, want by %s:\n%s", err, one.index, text)
			}
		}
		enginetest.Execute(t, db, `vacuum analyze getwork.work, getwork.work_requested`)
	}
}

// Times of a clock that was set back are counted: a negative duration as 0, a time in the future as now.
func TestHistoryOfAClockThatWasSetBack(t *testing.T) {
	t.Parallel()
	address := schematest.URL(t)
	n := start(t, address)
	a := n.newTask(t, "a", enginetest.Numbers)
	c := chronicleOf(t, address)
	c.request(a, "1m", "-30m", assign.Assigned, false)
	c.request(a, "1m", "-20m", assign.Assigned, false)
	c.run(a, "1m", "-30m", "finished")
	for _, later := range []string{"2h", "3h", "3h5m"} {
		c.request(a, later, "1s", assign.Assigned, false)
		c.run(a, later, "1s", "finished")
	}
	c.work(a, "ann", "1", "30m", "completed", "-20m", "")
	c.work(a, "ann", "2", "3h", "completed", "-1h", "")
	h := c.history(n, time.Minute)
	buckets := h.Tasks[0].Buckets
	last := buckets[len(buckets)-1]
	if last.Requests != 3 || last.Given != 3 || last.Runs != 3 || last.Assigned != 1 || last.Completed != 1 {
		t.Errorf("the last bucket has %+v", last)
	}
	if b := buckets[1]; *b.WaitMS != (assign.Waits{}) || *b.RunMS != (assign.RunTimes{}) {
		t.Errorf("waits %+v, runs %+v; want none below 0", *b.WaitMS, *b.RunMS)
	}
	for i, b := range buckets {
		if b.Held < 0 {
			t.Errorf("at the end of minute %d %d are held", i, b.Held)
		}
	}
}
