//go:build unix

package story

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"getwork/assign"
	"getwork/cmd/internal/cluster"
	"getwork/cmd/internal/e2e"
)

const things = 300

// A thing is a background job, with a number. Every fifth belongs to one of six groups, of which one member runs at a
// time. Of the others some are not due yet, some fail once, some always, and some are put off once.
type thing int

func thingOf(item string) (n thing) {
	_, _ = fmt.Sscanf(item, "thing-%d", &n)
	return n
}

func (n thing) key() string { return fmt.Sprintf("thing-%03d", int(n)) }

func (n thing) group() string {
	if n%5 != 0 {
		return ""
	}
	return fmt.Sprint("group-", n/5%6)
}

func (n thing) isLate() bool   { return n%10 == 6 }
func (n thing) isFlaky() bool  { return n%10 == 3 }
func (n thing) isPutOff() bool { return n%20 == 9 }
func (n thing) isPoison() bool { return n%50 == 7 }

// crew is the programs that do the jobs, with their own records, to find the database's errors.
type crew struct {
	*site
	due time.Time // when the later jobs are due

	mu    sync.Mutex
	done  map[string]int // how often a program heard that the job is complete
	put   map[string]bool
	spans map[string][]span // by group
	cured bool
}

type span struct{ from, to time.Time }

// Programs on three nodes empty an inbox two by two. A host dies while it holds work, and so does a node; nothing is
// lost, and nothing is done twice.
func TestClusteredPoller(t *testing.T) {
	t.Parallel()
	c := &crew{site: newSite(t, 3, ""), done: map[string]int{}, put: map[string]bool{}, spans: map[string][]span{}}
	c.Create(map[string]any{"name": "things", "query": nil, "lease": "15s", "max_request": 2, "max_attempts": 4, "backoff": "300ms"})
	c.fill()
	host := e2e.StartAgent(t, c.Nodes[0].URL, "things", "--concurrency", "2", "--", "sleep", "60")
	c.Await("the host has work in its hands", 40*time.Second, `select count(*) = 2 from getwork.work where user_name = 'crawler' and state = 'held'`)

	ctx, retire := context.WithCancel(t.Context())
	var working sync.WaitGroup
	for i := range 6 {
		working.Go(func() { c.poll(ctx, fmt.Sprint("poller-", i), i%3) })
	}
	defer working.Wait()
	defer retire()
	c.finished(60)
	_ = host.Cmd.Process.Kill()
	c.finished(120)
	c.Nodes[2].Kill()
	poisons := 0
	for n := range thing(things) {
		if n.isPoison() {
			poisons++
		}
	}
	c.finished(things - poisons)
	c.deadLetters(poisons)
	c.finished(things)
	retire()
	working.Wait()
	c.SendHome()
	c.review()
	c.Promises()
}

// fill pushes everything from all three nodes at once: each key is accepted once.
func (c *crew) fill() {
	c.T.Helper()
	c.due = time.Now().Add(4 * time.Second).UTC().Truncate(time.Microsecond)
	var batches [][]assign.NewItem
	for n := range thing(things) {
		if n%50 == 0 {
			batches = append(batches, nil)
		}
		item := assign.NewItem{Item: n.key(), Priority: int32(n % 4)}
		if group := n.group(); group != "" {
			item.Exclusive = &group
		}
		if n.isLate() {
			item.NotBefore = &c.due
		}
		batches[len(batches)-1] = append(batches[len(batches)-1], item)
	}
	var mu sync.Mutex
	var sum assign.Pushed
	var pushing sync.WaitGroup
	for node := range c.Nodes {
		pushing.Go(func() {
			for i := range batches {
				pushed, err := c.As("importer", node).Push(c.T.Context(), "things", batches[(i+2*node)%len(batches)]...)
				if err != nil {
					c.T.Errorf("push: %v", err)
				}
				mu.Lock()
				sum.Accepted, sum.Duplicates = sum.Accepted+pushed.Accepted, sum.Duplicates+pushed.Duplicates
				mu.Unlock()
			}
		})
	}
	pushing.Wait()
	if want := (assign.Pushed{Accepted: things, Duplicates: 2 * things}); sum != want {
		c.T.Fatalf("three pushed the same: %+v; want %+v", sum, want)
	}
}

// finished waits until that many jobs are done.
func (c *crew) finished(n int) {
	c.T.Helper()
	c.Await(fmt.Sprint(n, " are done"), 2*time.Minute, `select count(*) >= $1 from getwork.item where done_at is not null`, n)
}

// poll is one program: it takes two jobs, does both at the same time, and waits for more. When its node is gone it goes
// to the next, and reads what it holds.
func (c *crew) poll(ctx context.Context, instance string, node int) {
	me := c.As("poller", node)
	me.Role, me.Instance = "agent", instance
	for ctx.Err() == nil {
		r, a, err := me.Linger(c.T.Context(), "things", 2, "1m", "Prefer", "wait=2") // waits to the end, so that no work is assigned without its knowledge
		var work []assign.Work
		switch {
		case err != nil:
			node++
			me.URL = c.Nodes[node%3].URL
			p, _ := me.Pipeline(c.T.Context())
			work = p.Work
		case a.Status >= 300:
			c.T.Errorf("%s asks: %d %s", instance, a.Status, a.Body)
			return
		default:
			work = r.Work
		}
		var doing sync.WaitGroup
		for _, w := range work {
			doing.Go(func() { c.do(me, w) })
		}
		doing.Wait()
	}
}

// do works on one job for a moment, and lets go of it as the job's kind requires.
func (c *crew) do(me cluster.Client, w assign.Work) {
	n, began := thingOf(w.Item), time.Now()
	<-time.After(time.Duration(2+n%5) * time.Millisecond)
	ended := time.Now()
	c.mu.Lock()
	outcome := "complete"
	switch {
	case n.isPoison() && !c.cured, n.isFlaky() && w.Attempt == 1:
		outcome = "fail"
	case n.isPutOff() && !c.put[w.Item]:
		outcome, c.put[w.Item] = "return", true
	}
	c.mu.Unlock()
	a := c.letGo(me, w, outcome)
	if a.Status == 200 && outcome == "complete" {
		c.mu.Lock()
		c.done[w.Item]++
		if group := n.group(); group != "" {
			c.spans[group] = append(c.spans[group], span{began, ended})
		}
		c.mu.Unlock()
	}
}

// letGo sends it to any node that answers. Repeating that changes nothing.
func (c *crew) letGo(me cluster.Client, w assign.Work, outcome string) (a cluster.Answer) {
	var err error
	for node := range 2 * len(c.Nodes) {
		switch outcome {
		case "fail":
			_, a, err = me.Fail(c.T.Context(), w.ID, "it did not work")
		case "return":
			_, a, err = me.Dispose(c.T.Context(), w.ID, outcome, "0s")
		default:
			_, a, err = me.Dispose(c.T.Context(), w.ID, outcome, "")
		}
		if err == nil && a.Status != 503 {
			if a.Status != 200 && a.Problem.Type != "/problems/lease-lost" {
				c.T.Errorf("%s lets go of %s: %d %s", me.Instance, w.Item, a.Status, a.Body)
			}
			return a
		}
		me.URL = c.Nodes[node%3].URL
	}
	c.T.Errorf("%s can't let go of %s: %d %s, %v", me.Instance, w.Item, a.Status, a.Body, err)
	return a
}

// deadLetters are jobs that failed too often; once they are cured and a manager has put them back, they are done.
func (c *crew) deadLetters(poisons int) {
	c.T.Helper()
	c.Await("all that always fails was given up", time.Minute, `
select count(*) = $1 from getwork.work where state = 'never' and exhausted`, poisons)
	if x, err := c.As("mary", 1).Explain(c.T.Context(), "things", thing(7).key()); err != nil || x.Available || len(x.History) != 4 || x.History[0].State != "never" {
		c.T.Errorf("explain a dead letter: %+v, %v", x, err)
	}
	c.mu.Lock()
	c.cured = true
	c.mu.Unlock()
	if n, err := c.As("mary", 1).Redrive(c.T.Context(), "things"); err != nil || n != poisons {
		c.T.Errorf("put back %d, %v; want %d", n, err, poisons)
	}
}

// review compares the crew's records with the tables.
func (c *crew) review() {
	c.T.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for n := range thing(things) {
		if c.done[n.key()] != 1 {
			c.T.Errorf("%s was done %d times", n.key(), c.done[n.key()])
		}
	}
	for group, spans := range c.spans {
		slices.SortFunc(spans, func(a, b span) int { return a.from.Compare(b.from) })
		for i := range len(spans) - 1 {
			if spans[i].to.After(spans[i+1].from) {
				c.T.Errorf("two of %s ran at the same time", group)
			}
		}
	}
	if len(c.spans) != 6 {
		c.T.Errorf("groups %v; want 6", slices.Sorted(maps.Keys(c.spans)))
	}
	for what, sql := range map[string]string{
		"done twice, or handed out when done": `
select b.item from getwork.work a join getwork.work b using (task_id, item) where a.id < b.id and a.state = 'completed'`,
		"an attempt that was burnt, or was not": `
select item from (
  select item, attempt, state, redriven_by, lead(attempt) over (partition by item order by id) as next from getwork.work
) w where next <> case when redriven_by is not null then 1 when state in ('failed', 'expired') then attempt + 1 else attempt end`,
		"handed out before its time": fmt.Sprintf(`
select item from getwork.work where substr(item, 9) = '6' and assigned_at < '%s'`, c.due.Format(time.RFC3339Nano)),
		"failed often enough, and was not given up": `
select item from getwork.work where attempt > 4 or state = 'failed' and attempt = 4`,
	} {
		if wrong := column[string](c.site, sql); len(wrong) > 0 {
			c.T.Errorf("%s: %v", what, wrong)
		}
	}
	next := column[string](c.site, `
select w.state || ' and then ' || n.user_name || ' ' || n.attempt from getwork.work w join getwork.work n using (task_id, item)
where w.user_name = 'crawler' and n.id = (select min(id) from getwork.work l where l.item = w.item and l.id > w.id)`)
	if want := "expired and then poller 2"; !cmp.Equal(next, []string{want, want}) {
		c.T.Errorf("the work that the dead host held: %q", next)
	}
	c.priorities()
}

// priorities compares the order in which jobs were first handed out with that of the inbox, for all jobs that were
// available from the beginning.
func (c *crew) priorities() {
	c.T.Helper()
	const plain = `substr(item, 9) not in ('0', '5', '6')`
	want := column[string](c.site, `select item from getwork.item where `+plain+` order by priority desc, id`)
	got := column[string](c.site, `select item from getwork.work where `+plain+` group by item order by min(id)`)
	if diff := cmp.Diff(want, got); diff != "" {
		c.T.Errorf("not by priority and age (-want +got):\n%s", diff)
	}
}
