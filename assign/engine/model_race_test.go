package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"pgregory.net/rapid"

	"getwork/assign"
	"getwork/schema/schematest"
	"getwork/schema/schematest/timeout"
)

// TestModelOnThreeNodes makes three nodes do random operations at the same time. The answers can't be predicted. But every
// call ends with an answer or a refusal, every request ends, and the invariants hold in the rows, which are a history of who
// held what from when to when.
func TestModelOnThreeNodes(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	url := schematest.URL(t)
	db := pool(t, url)
	execute(t, db, `create table model_places (item text primary key, places int, exclusive text)`)
	execute(t, db, `insert into model_places values ('1', 1, null), ('2', 1, null), ('3', 2, null), ('4', 3, null), ('5', 1, 'g'), ('6', 1, 'g')`)
	nodes := []*node{}
	for range 3 {
		nodes = append(nodes, startNode(t, url, nodeOptions{Look: 300 * time.Millisecond, Log: io.Discard}))
	}
	cases := 0
	checkCases(t, 8, func(r *rapid.T) {
		cases++
		c := newModelRace(r, nodes, db, cases)
		defer c.clear()
		c.race()
		c.end()
	})
}

// modelCall is an operation, with the numbers that choose its arguments when its turn comes.
type modelCall struct {
	what    string
	task    int
	who     string
	a, b, c int
}

type modelRace struct {
	*rapid.T
	nodes []*node
	db    *pgxpool.Pool
	tasks []string
	ids   []int64
	calls [][]modelCall

	mu    sync.Mutex
	wrong []string
	stays []int64 // work that blocks its item for good, and that nobody redrives
}

func newModelRace(r *rapid.T, nodes []*node, db *pgxpool.Pool, n int) *modelRace {
	c := &modelRace{T: r, nodes: nodes, db: db}
	for i, kind := range []string{"inbox", "query", "shelf"} {
		s := assign.DefaultSettings()
		s.Name, s.RerunAfter, s.Backoff = fmt.Sprintf("race-%s-%d", kind, n), assign.Duration(time.Second), assign.Duration(time.Millisecond)
		lease, attempts, open := assign.Duration(time.Hour), 2, 3
		s.Lease, s.MaxAttempts = &lease, &attempts
		if i > 0 {
			s.Query = `select item, places as slots, exclusive from model_places order by item`
			s.MaxCandidates = pick(r, "max_candidates", 2, 1000)
			s.ConflictsWith = c.tasks[:1] // four eyes with the inbox
		}
		s.OnAway = pick(r, "on_away", assign.KeepAway, assign.ReleaseAway, assign.PassAway)
		switch kind {
		case "query":
			s.MaxOpen = &open
		case "shelf":
			s.FreshFor = assign.Duration(time.Minute)
		}
		made, err := nodes[0].CreateTask(r.Context(), s, "boss")
		if err != nil {
			r.Fatal(err)
		}
		c.tasks, c.ids = append(c.tasks, s.Name), append(c.ids, made.ID)
	}
	call := rapid.Custom(func(r *rapid.T) modelCall {
		number := rapid.IntRange(0, 11)
		return modelCall{
			what: pick(r, "what", "push", "push", "click", "click", "click", "linger", "dispose", "dispose", "dispose", "dispose all", "extend all", "claim", "claim",
				"reassign", "release", "redrive", "cancel", "away", "back", "back", "pause", "resume", "resume", "expire", "extend", "retain"),
			task: rapid.IntRange(0, 2).Draw(r, "task"), who: pick(r, "who", "ann", "bob", "bot1", "bot2"),
			a: number.Draw(r, "a"), b: number.Draw(r, "b"), c: number.Draw(r, "c"),
		}
	})
	for range 2 * len(nodes) { // two callers on each node
		c.calls = append(c.calls, rapid.SliceOfN(call, 5, 25).Draw(r, "calls"))
	}
	return c
}

// race makes all calls, each caller's one after the other.
func (c *modelRace) race() {
	var callers sync.WaitGroup
	for i, calls := range c.calls {
		callers.Go(func() {
			for _, call := range calls {
				err := c.do(c.nodes[i%len(c.nodes)], call)
				var refusal *assign.Refusal
				if err != nil && !errors.As(err, &refusal) {
					c.mu.Lock()
					c.wrong = append(c.wrong, fmt.Sprintf("%+v: %v", call, err))
					c.mu.Unlock()
				}
			}
		})
	}
	callers.Wait()
	c.none("a call failed", c.wrong)
}

func (c *modelRace) none(what string, wrong []string) {
	if len(wrong) > 0 { // the whole text, since only that is shown of a failure that does not repeat
		c.Fatalf("%s: %s", what, strings.Join(wrong, "; "))
	}
}

// redriven are the items that callers redrive: work that was closed as never blocks them until then.
var redriven = []string{"5", "6"}

func (c *modelRace) do(n *node, call modelCall) error {
	ctx, task, who := c.Context(), c.tasks[call.task], modelPeople[call.who]
	item := fmt.Sprint(1 + call.a%6)
	var err error
	switch call.what {
	case "push":
		places, exclusive := []int{1, 1, 2, 3, 1, 1}, []string{"", "", "", "", "g", "g"}
		_, err = n.Push(ctx, c.tasks[0], []assign.NewItem{{Item: item, Priority: int32(call.b), Slots: &places[call.a%6], Exclusive: &exclusive[call.a%6]},
			{Item: fmt.Sprint(1 + call.b%2)}}, modelPeople["boss"])
	case "click", "linger":
		k := assign.Click{Holder: who.Holder, Groups: who.Groups, Count: 1 + call.a%5}
		if call.what == "linger" {
			k.Linger = assign.Duration(time.Second)
		}
		_, err = n.GetWork(ctx, task, k)
	case "claim":
		_, _, err = n.Claim(ctx, task, item, who)
	case "release":
		what := assign.Release{User: who.Holder.User, Task: task, DryRun: true}
		what.Token = func() string { r, _ := n.Release(ctx, what, "boss"); return r.Token }()
		what.DryRun = false
		_, err = n.Release(ctx, what, "boss")
	case "away":
		var what assign.AbsenceWish
		if other := []string{"ann", "bob", "bot"}[call.a%3]; other != who.Holder.User && call.b%2 == 0 {
			what.Substitute = &other // unless they have not been seen yet, which is refused
		}
		_, err = Above.EnterAbsence(ctx, n.Engine, who.Holder.User, what, "boss")
	case "back":
		var all []assign.Absence
		if all, err = n.Absences(ctx, who.Holder.User, 0, 100); err == nil && len(all) > 0 {
			_, err = Above.EndAbsence(ctx, n.Engine, all[call.a%len(all)].ID, who.Holder.User, false)
		}
	case "redrive":
		_, err = n.Redrive(ctx, task, redriven, "boss")
	case "pause", "resume":
		err = c.pause(ctx, n, task, call.what == "pause")
	case "retain":
		err = Above.RetainWork(ctx, n.Engine, 0)
	default:
		err = c.doMine(ctx, n, call, who.Holder)
	}
	return err
}

// doMine acts on what the caller holds or waits for. Other callers under the same name may be faster.
func (c *modelRace) doMine(ctx context.Context, n *node, call modelCall, me assign.Holder) error {
	p, err := n.Pipeline(ctx, me)
	if err != nil {
		return err
	}
	if call.what == "cancel" {
		if len(p.Requests) > 0 {
			_, err = n.Cancel(ctx, p.Requests[call.a%len(p.Requests)].ID, me, false)
		}
		return err
	}
	if len(p.Work) == 0 {
		return nil
	}
	w := p.Work[call.a%len(p.Work)]
	switch call.what {
	case "dispose", "dispose all":
		var zero, hour assign.Duration = 0, assign.Duration(time.Hour)
		others := "others"
		dispositions := []assign.Disposition{{Outcome: "complete"}, {Outcome: "return", After: &zero}, {Outcome: "return", After: &hour},
			{Outcome: "return", After: &zero, To: &others}, {Outcome: "never"}, {Outcome: "fail"}}
		var all []assign.Disposal
		for i, w := range p.Work {
			all = append(all, assign.Disposal{ID: w.ID, Disposition: dispositions[(call.b+i)%6]})
		}
		results := make([]assign.Result, 1)
		if call.what == "dispose" {
			all = all[call.a%len(all):][:1]
			if w, err = n.Dispose(ctx, w.ID, all[0].Disposition, me, false); err == nil {
				results[0].Work = &w
			}
		} else {
			results, err = n.DisposeMany(ctx, all, me, false, false)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		for i, r := range results {
			if d := all[i]; r.Work != nil && (d.Outcome == "never" && !slices.Contains(redriven, r.Work.Item) || d.After != nil && *d.After > 0) {
				c.stays = append(c.stays, d.ID)
			}
		}
	case "extend all":
		var ids []int64
		for _, w := range p.Work {
			ids = append(ids, w.ID)
		}
		_, err = n.ExtendMany(ctx, ids, me)
	case "reassign":
		_, err = n.Reassign(ctx, w.ID, assign.Reassignment{User: []string{"ann", "bob", "cleo"}[call.b%3], Force: true}, "boss")
	case "extend":
		_, err = n.Extend(ctx, w.ID, me)
	case "expire":
		if _, err = c.db.Exec(ctx, `update getwork.work set lease_expires_at = clock_timestamp() where id = $1 and state = 'held'`, w.ID); err == nil {
			_, err = n.sweep(ctx)
		}
	}
	return err
}

// pause changes the task as it is now; another caller may be faster.
func (c *modelRace) pause(ctx context.Context, n *node, name string, paused bool) error {
	t, err := n.Task(ctx, name)
	if err == nil {
		_, err = n.UpdateTask(ctx, name, t.Version, "boss", func(s *assign.Settings) error { s.Paused = paused; return nil })
	}
	return err
}

// modelAlways are the invariants; each statement returns what breaks one. $1 are the tasks. A closing is stamped a little
// before its commit: until then another program of the same user may get another place of the item.
var modelAlways = map[string]string{
	"an item has a place at a time for each of its holders": `
select w.item from getwork.work w join model_places p using (item) where w.task_id = any($1) and w.slot > p.places`,
	"a place is held once at a time": `
select w.item from getwork.work w join getwork.work l on l.task_id = w.task_id and l.item = w.item and l.id > w.id
where w.task_id = any($1) and (l.slot = w.slot or (l.user_name, l.instance) = (w.user_name, w.instance))
  and l.assigned_at < coalesce(w.closed_at, 'infinity')`,
	"of an exclusive group one member is held at a time": `
select w.item from getwork.work w join getwork.work l on l.task_id = w.task_id and l.exclusive = w.exclusive and l.id > w.id
where w.task_id = any($1) and l.assigned_at < coalesce(w.closed_at, 'infinity')`,
	"items that are put off or never to return are not handed out": `
select w.item from getwork.work w join getwork.work l on l.task_id = w.task_id and l.item = w.item and l.id > w.id join model_places p on p.item = w.item
where w.task_id = any($1) and w.state in ('returned', 'failed', 'never') and (p.places = 1 or (l.user_name, l.instance) = (w.user_name, w.instance))
  and l.assigned_at > w.closed_at and l.assigned_at < coalesce(w.available_at, 'infinity')`,
	"not to the same user again": `
select w.item from getwork.work w join getwork.work l on l.task_id = w.task_id and l.item = w.item and l.user_name = w.user_name and l.id > w.id join model_places p on p.item = w.item
where w.task_id = any($1) and w.to_others and l.assigned_at > w.closed_at and (p.places = 1 or l.instance = w.instance)`,
	"four eyes": `
select w.item from getwork.work w join getwork.task_conflict c using (task_id) join getwork.work o on o.task_id = c.other_id and o.item = w.item and o.user_name = w.user_name
where w.task_id = any($1) and w.state in ('held', 'completed') and o.state in ('held', 'completed')`,
	"max_open": `
select w.user_name from getwork.work w join getwork.task_state s using (task_id) join getwork.task_version v using (task_id, version)
where w.task_id = any($1) and w.state = 'held' group by w.user_name, w.task_id, v.max_open having count(*) > v.max_open`,
	"a request ends": `select r.user_name from getwork.work_requested r where r.task_id = any($1) and r.state = 'pending'`,
	"a request has what it says": `
select r.user_name from getwork.work_requested r
where r.task_id = any($1) and r.assigned < (select count(*) from getwork.work w where w.request_id = r.id)`,
	"one run at a time": `
select r.id::text from getwork.run r where r.task_id = any($1) and r.state = 'lost'`, // as the next run calls one that is not over
	"due_at says what work says": `
select i.item from getwork.item i join model_places p using (item)
where i.task_id = any($1) and i.done_at is null and p.places = 1 and i.due_at is distinct from (
  select max(coalesce(w.available_at, 'infinity')) from getwork.work w
  where w.task_id = i.task_id and w.item = i.item and w.state in ('held', 'never', 'returned', 'failed')
    and (w.available_at is null or w.available_at > clock_timestamp()))
  and (i.due_at is null or i.due_at > clock_timestamp())`,
	"an item of several places waits for nobody": `
select i.item from getwork.item i join model_places p using (item)
where i.task_id = any($1) and i.done_at is null and p.places > 1 and i.due_at is not null`,
}

// end waits until everything is over, and examines what is left.
func (c *modelRace) end() {
	ctx := c.Context()
	for i, name := range c.tasks {
		for err := c.pause(ctx, c.nodes[i], name, false); err != nil; err = c.pause(ctx, c.nodes[i], name, false) {
			if !assign.IsRefusal(err, assign.StaleVersion) {
				c.Fatal(err)
			}
		}
	}
	c.awaitEnd(ctx)
	c.always(ctx)
	var there []int64
	if err := c.db.QueryRow(ctx, `select coalesce(array_agg(id), '{}') from getwork.work where id = any($1)`, c.stays).Scan(&there); err != nil {
		c.Fatal(err)
	}
	for _, id := range c.stays {
		if !slices.Contains(there, id) {
			c.Fatal("what blocks its item was removed")
		}
	}
	c.takeAll(ctx)
	c.always(ctx)
}

// awaitEnd waits until no request is pending; lingering ones linger for a second. A run that is given up may be called lost until its
// node has recorded that.
func (c *modelRace) awaitEnd(ctx context.Context) {
	deadline := time.NewTimer(timeout.Scale(20 * time.Second))
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	const left = `
select (select count(*) from getwork.work_requested where task_id = any($1) and state = 'pending'),
  (select count(*) from getwork.run where task_id = any($1) and state = 'lost'),
  (select count(*) from getwork.work w join getwork.task_version v using (task_id) where task_id = any($1) and w.state = 'held' and v.on_away <> 'keep'
    and exists (select from getwork.absence a where a.user_name = w.user_name and a.ended_at is null))`
	for {
		var pending, lost, kept int
		if err := c.db.QueryRow(ctx, left, c.ids).Scan(&pending, &lost, &kept); err != nil {
			c.Fatal(err)
		}
		if pending+lost+kept == 0 {
			return
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			if pending > 0 {
				c.Fatal("a request waits in vain")
			}
			if kept > 0 {
				c.Fatal("whoever is away holds what they may not keep")
			}
			return // what is lost for good is found below
		}
	}
}

func (c *modelRace) always(ctx context.Context) {
	for _, what := range slices.Sorted(maps.Keys(modelAlways)) {
		var broken []string
		if err := c.db.QueryRow(ctx, `select coalesce(array_agg(b::text), '{}') from (`+modelAlways[what]+`) b`, c.ids).Scan(&broken); err != nil {
			c.Fatalf("%s: %v", what, err)
		}
		c.none(what+" is broken", broken)
	}
}

// takeAll lets a new user take everything from the inbox: what is left then is held, put off, or never to return.
func (c *modelRace) takeAll(ctx context.Context) {
	for {
		r, err := c.nodes[0].GetWork(ctx, c.tasks[0], assign.Click{Holder: assign.Holder{User: "dora"}, Count: 5})
		if err != nil {
			c.Fatal(err)
		}
		if r.State == assign.None {
			break
		}
	}
	var lost []string
	err := c.db.QueryRow(ctx, `
select coalesce(array_agg(i.item), '{}')
from getwork.item i join model_places p using (item)
where i.task_id = $1 and i.done_at is null and p.exclusive is null and not exists (
  select from getwork.work w
  where w.task_id = i.task_id and w.item = i.item and (w.state = 'held' or p.places = 1 and w.state in ('never', 'returned', 'failed'))
    and (w.available_at is null or w.available_at > clock_timestamp()))`, c.ids[0]).Scan(&lost)
	if err != nil {
		c.Fatal(err)
	}
	c.none("an item is lost", lost)
}

func (c *modelRace) clear() {
	if _, err := c.db.Exec(context.Background(), `delete from getwork.absence`); err != nil {
		c.Fatal(err)
	}
	for _, statement := range []string{`delete from getwork.work where task_id = any($1)`, `delete from getwork.item where task_id = any($1)`} {
		if _, err := c.db.Exec(context.Background(), statement, c.ids); err != nil {
			c.Fatal(err)
		}
	}
}
