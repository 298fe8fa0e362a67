package report

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"getwork/assign"
	"getwork/assign/enginetest"
	"getwork/schema/schematest"
)

// The sums of hours say what the rows say, also after those were removed, and however many nodes sum up at once.
func TestSums(t *testing.T) {
	t.Parallel()
	address := schematest.URL(t)
	n := start(t, address)
	a, b := n.newTask(t, "a", enginetest.Numbers), n.newTask(t, "b", enginetest.Numbers)
	c := chronicleOf(t, address)
	c.from = time.Now().UTC().Truncate(time.Hour).Add(-5 * time.Hour)
	c.request(a, "10m", "1s", assign.Assigned, false)
	c.request(a, "70m", "3s", assign.None, false)
	c.run(a, "10m", "2s", "finished")
	c.run(a, "71m", "1s", "failed")
	c.work(a, "ann", "1", "10m", "completed", "20m", "")
	c.work(a, "ann", "2", "10m", "returned", "70m", "")
	c.work(a, "bob", "3", "90m", "held", "", "")
	c.work(b, "bob", "1", "200m", "completed", "1m", "")
	before := c.history(n, time.Hour)
	sum := func() {
		t.Helper()
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				if err := n.Sum(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	}
	days := func(zone string) assign.History {
		t.Helper()
		h, err := n.History(t.Context(), assign.Span{Days: true, Zone: zone, Since: &c.from})
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	live := days("UTC")
	sum()
	rows := func() int64 { return enginetest.Query[int64](t, n.db, `select count(*) from getwork.task_hour`) }
	summed := rows()
	if diff := cmp.Diff(live.Tasks, days("UTC").Tasks); diff != "" {
		t.Errorf("days, before and after: %s", diff)
	}
	// Everything is removed that the retention lets go, and the hours are counted again.
	enginetest.Execute(t, n.db, `delete from getwork.work where state <> 'held'`)
	enginetest.Execute(t, n.db, `delete from getwork.work_requested`)
	enginetest.Execute(t, n.db, `delete from getwork.task_hour where task_id = 0`)
	sum()
	if again := rows(); again != summed {
		t.Errorf("%d rows, and %d after they were counted again", summed, again)
	}
	if diff := cmp.Diff(live.Tasks, days("UTC").Tasks); diff != "" {
		t.Errorf("days, after the rows were removed: %s", diff)
	}
	var completed, requests int64
	for _, task := range before.Tasks {
		for _, bucket := range task.Buckets {
			completed, requests = completed+bucket.Completed, requests+bucket.Requests
		}
	}
	if completed != 2 || requests != 2 {
		t.Fatalf("the hours have %d completed and %d requests", completed, requests)
	}
	// What is much older is found in hours and days, and forgotten after thirteen months.
	old := time.Now().UTC().Truncate(time.Hour)
	for _, at := range []time.Time{old.AddDate(0, 0, -40), old.AddDate(0, -14, 0)} {
		enginetest.Execute(t, n.db, `insert into getwork.task_hour (hour, task_id, completed, held, requests, wait_p50, wait_p90, wait_max) values ($1, $2, 7, 2, 4, 10, 20, 30)`, at, a.ID)
	}
	enginetest.Execute(t, n.db, `delete from getwork.task_hour where task_id = 0`)
	sum()
	if left := enginetest.Query[int64](t, n.db, `select count(*) from getwork.task_hour where hour < now() - interval '13 months'`); left != 0 {
		t.Errorf("%d rows are older than thirteen months", left)
	}
	since := old.AddDate(0, 0, -40)
	h, err := n.History(t.Context(), assign.Span{Tasks: []string{"a"}, Since: &since, Step: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	first := h.Tasks[0].Buckets[0]
	want := assign.Bucket{At: since, Completed: 7, Held: 2, Requests: 4, WaitMS: &assign.Waits{P50: 10, P90: 20, Max: 30}}
	if diff := cmp.Diff(want, first); diff != "" || len(h.Tasks[0].Buckets) != 40*24+1 {
		t.Errorf("%d hours, the first: %s", len(h.Tasks[0].Buckets), diff)
	}
}

// How much is left at the end of each hour outlives the lists that said so, and what came in follows from it.
func TestLeftAndCame(t *testing.T) {
	t.Parallel()
	address := schematest.URL(t)
	n := start(t, address)
	listed, unlisted := n.newTask(t, "listed", enginetest.Numbers), n.newTask(t, "unlisted", enginetest.Numbers)
	inbox := n.newTask(t, "inbox", "")
	n.node.PushKeys(t, "inbox", "a", "b", "c")
	hour := time.Now().UTC().Truncate(time.Hour)
	for at, free := range map[int]int{4: 1, 3: 10, 2: 12} { // hours ago in which there were so many at the end
		enginetest.Execute(t, n.db, `insert into getwork.task_hour (hour, task_id, free) values ($1, $2, $3)`, hour.Add(-time.Duration(at)*time.Hour), listed.ID, free)
	}
	c := chronicleOf(t, address)
	c.from = hour
	c.run(listed, "-30m", "1s", "finished")
	enginetest.Execute(t, n.db, `update getwork.run set given = 20, passed_over = 1, blocked = 2 where task_id = $1`, listed.ID)
	enginetest.Execute(t, n.db, `update getwork.task_state s set last_run = (select id from getwork.run r where r.task_id = s.task_id) where task_id = $1`, listed.ID)
	c.work(listed, "ann", "1", "-170m", "completed", "5m", "")
	c.work(listed, "ann", "2", "-160m", "returned", "5m", "")
	c.work(listed, "ann", "3", "-110m", "held", "", "")
	c.work(listed, "ann", "4", "-29m", "returned", "5m", "")
	c.work(listed, "ann", "5", "-28m", "completed", "5m", "")
	c.work(listed, "ann", "6", "-27m", "held", "", "")
	told := func() map[string]string {
		t.Helper()
		h, err := n.History(t.Context(), assign.Span{Since: new(hour.Add(-3 * time.Hour)), Step: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		number := func(v *int64) string {
			if v == nil {
				return "-"
			}
			return fmt.Sprint(*v)
		}
		all := map[string]string{}
		for _, task := range h.Tasks {
			var steps []string
			for _, b := range task.Buckets {
				steps = append(steps, number(b.Left)+" "+number(b.Came))
			}
			all[task.Task] = strings.Join(steps, ", ")
		}
		return all
	}
	want := map[string]string{"listed": "10 10, 12 3, - -, 15 -", "unlisted": "- -, - -, - -, - -", "inbox": "- -, - -, - -, 3 -"}
	if diff := cmp.Diff(want, told()); diff != "" {
		t.Errorf("before the hour is summed up: %s", diff)
	}
	if err := n.Sum(t.Context()); err != nil {
		t.Fatal(err)
	}
	n.node.PushKeys(t, "inbox", "d", "e")
	want["listed"], want["inbox"] = "10 10, 12 3, 15 5, 15 0", "- -, - -, 3 -, 5 2"
	if diff := cmp.Diff(want, told()); diff != "" {
		t.Errorf("after it: %s", diff)
	}
	if free := enginetest.Query[int64](t, n.db, `select count(*) from getwork.task_hour where task_id = any($1) and free is not null`, []int64{unlisted.ID, inbox.ID}); free != 1 {
		t.Errorf("%d hours of the inbox and of the task without a list have what is left, not 1", free)
	}
	h, err := n.History(t.Context(), assign.Span{Since: new(hour.Add(-time.Hour)), Step: 10 * time.Minute})
	if err != nil || h.Tasks[0].Buckets[0].Left != nil || h.Tasks[0].Buckets[0].Came != nil {
		t.Errorf("steps of ten minutes: %+v, %v", h.Tasks[0].Buckets[0], err)
	}
}

// Days are those of the zone: the one on which clocks are set has 23 or 25 hours.
func TestDaysOfAZone(t *testing.T) {
	t.Parallel()
	address := schematest.URL(t)
	n := start(t, address)
	n.newTask(t, "a", enginetest.Numbers)
	since := time.Now().AddDate(-1, 0, 0)
	h, err := n.History(t.Context(), assign.Span{Days: true, Zone: "Europe/Zurich", Since: &since})
	if err != nil {
		t.Fatal(err)
	}
	lengths := map[time.Duration]int{}
	days := h.Tasks[0].Buckets
	for i := range days[1:] {
		lengths[days[i+1].At.Sub(days[i].At)]++
	}
	if lengths[23*time.Hour] != 1 || lengths[25*time.Hour] != 1 || len(lengths) != 3 {
		t.Errorf("lengths of days: %v", lengths)
	}
	ago := func(d time.Duration) *time.Time { return new(time.Now().Add(-d)) }
	for name, s := range map[string]assign.Span{
		"no zone":            {Days: true, Zone: "Nowhere/Never"},
		"a zone without day": {Step: time.Hour, Zone: "UTC"},
		"before the sums":    {Days: true, Since: ago(400 * 24 * time.Hour)},
		"the future":         {Days: true, Since: ago(-time.Hour)},
		"half hours":         {Step: 90 * time.Minute, Since: ago(30 * 24 * time.Hour)},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := n.History(t.Context(), s)
			enginetest.WantKind(t, err, assign.Invalid)
		})
	}
}
