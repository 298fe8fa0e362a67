package story

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"getwork/assign"
	"getwork/cmd/internal/cluster"
	"getwork/cmd/internal/e2e"
	"getwork/schema/schematest"
)

// sharedPages is the length of the list that the agents share.
const sharedPages = 500

const sharedLease = 10 * time.Second

// sharing is the list and everybody who works on it.
type sharing struct {
	*site
	mu   sync.Mutex
	done map[string]string // for each page, the instance that heard that it is complete
}

// Agents on three nodes share a list of pages in pieces of at most five. Editors keep theirs for longer than the lease,
// and renew it; some agents die, and others get their pieces; and the node that gave some leases dies.
func TestAgentsShareAList(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	l := &sharing{site: newSite(t, 3, ""), done: map[string]string{}}
	l.Exec(fmt.Sprintf(`
create table page (id integer primary key, checked_by text);
insert into page (id) select generate_series(1, %d)`, sharedPages))
	l.Create(map[string]any{"name": "check", "query": "select id as item from page where checked_by is null order by id",
		"lease": sharedLease.String(), "fresh_for": "1s"})
	if _, a, err := l.agent("greedy", 0).GetWork(t.Context(), "check", 6); err != nil || a.Status != 400 {
		t.Errorf("six at once: %d %s, %v", a.Status, a.Body, err)
	}
	before := e2e.Overslept.Load()
	still := func() time.Duration { return time.Duration(e2e.Overslept.Load() - before) } // the waits of threads add up to too much until the end
	orphaned := l.takes(l.agent("orphaned", 2))
	l.Nodes[2].Kill() // it gave the only leases, and no other node knows of them
	l.Await("others end them", sharedLease+20*time.Second, `select count(*) = 5 from getwork.work where state = 'expired'`)
	sleeper, ear := l.agent("sleeper", 0), l.listens("sleeper", 1)
	slept := l.takes(sleeper)
	dead := l.takes(l.agent("dead", 0))
	editor := l.agent("editor", 1)
	edited := l.takes(editor)

	ctx, retire := context.WithCancel(t.Context())
	var working, editing sync.WaitGroup
	defer working.Wait()
	defer retire()
	editing.Go(func() { l.edit(editor, edited) })
	l.hears(ear, slept, still)
	l.refuses(sleeper, slept)
	l.Await("what the dead had is over", sharedLease+20*time.Second, `select count(*) = 15 from getwork.work where state = 'expired'`)
	late := still() // standstills from here on don't count
	for i := range 6 {
		working.Go(func() { l.checkPages(ctx, l.agent(fmt.Sprint("agent-", i), i%2)) })
	}
	l.Nodes[2].Restart()
	for i := range 3 {
		working.Go(func() { l.checkPages(ctx, l.agent(fmt.Sprint("agent-", 6+i), 2)) })
	}
	editing.Wait()
	l.Await("all pages are checked", time.Minute, `select not exists (select from page where checked_by is null)`)
	retire()
	working.Wait()
	l.Await("all was let go of", e2e.Soon, `select not exists (select from getwork.work where state = 'held')`)
	l.expiries(slices.Concat(slept, dead, orphaned), late)
	l.eachOnce()
	l.Promises()
}

// agent returns one of the crawler's instances, at a node.
func (l *sharing) agent(instance string, node int) cluster.Client {
	c := l.As("crawler", node)
	c.Role, c.Instance = "agent", instance
	return c
}

// listens opens an agent's live channel, on another node than the one it takes its work from.
func (l *sharing) listens(instance string, node int) *cluster.Socket {
	l.T.Helper()
	socket, _, err := l.agent(instance, node).Dial(l.T.Context())
	if err != nil {
		l.T.Fatal(err)
	}
	l.T.Cleanup(socket.Close)
	return socket
}

// takes gets five pages.
func (l *sharing) takes(me cluster.Client) []assign.Work {
	l.T.Helper()
	r := l.Got(me, "check", 5)
	if len(r.Work) != 5 {
		l.T.Fatalf("%s got %+v", me.Instance, r)
	}
	for _, w := range r.Work {
		if left := w.LeaseExpiresAt.Sub(w.AssignedAt); left < sharedLease-time.Second || left > sharedLease+time.Second {
			l.T.Errorf("the lease of %s is %v", w.Item, left)
		}
	}
	return r.Work
}

// hears waits, on one node, for the news of each page that its lease is about to end, and then that it has ended.
func (l *sharing) hears(ear *cluster.Socket, work []assign.Work, still func() time.Duration) {
	l.T.Helper()
	if e2e.ModeNow == e2e.Polling {
		over, gone := *work[0].LeaseExpiresAt, e2e.Without(work)
		l.Hear(ear, "that they are gone", sharedLease+20*time.Second, func(e cluster.Event) bool { return time.Now().After(over) && gone(e) })
		return
	}
	ctx, cancel := context.WithTimeout(l.T.Context(), sharedLease+20*time.Second)
	defer cancel()
	stage := map[int64]string{}
	for _, w := range work {
		stage[w.ID] = ""
	}
	for over := 0; over < len(work); {
		e, err := ear.Until(ctx, func(e cluster.Event) bool { return e.Work != nil })
		if err != nil {
			l.T.Fatalf("heard of %v: %v", stage, err)
		}
		before, mine := stage[e.Work.ID]
		switch {
		case !mine:
			l.T.Errorf("heard of work %d, which is somebody else's", e.Work.ID)
		case e.Work.State == "held" && e.Work.Expiring && before == "":
			stage[e.Work.ID] = "warned"
		case e.Work.State == "expired" && (before == "warned" || still() > sharedLease/5): // or no node could warn in time
			stage[e.Work.ID] = "expired"
			over++
		case e.Work.State == "held" && before == "": // it was assigned
		default:
			l.T.Errorf("heard %+v after %q", e.Work, before)
		}
	}
}

// refuses checks that nodes refuse whatever a holder sends after the lease is over.
func (l *sharing) refuses(me cluster.Client, work []assign.Work) {
	l.T.Helper()
	for i, w := range work[:3] {
		me.URL = l.Nodes[i%2].URL
		_, extended, err := me.Extend(l.T.Context(), w.ID)
		_, completed, err2 := me.Dispose(l.T.Context(), w.ID, "complete", "")
		for _, a := range []cluster.Answer{extended, completed} {
			if err != nil || err2 != nil || a.Status != 409 || a.Problem.Type != "/problems/lease-lost" {
				l.T.Errorf("after the lease: %d %s, %v %v", a.Status, a.Body, err, err2)
			}
		}
	}
}

// edit keeps work for three leases by renewing it, on any node, and then completes it.
func (l *sharing) edit(me cluster.Client, work []assign.Work) {
	renew := time.NewTicker(sharedLease / 8)
	defer renew.Stop()
	began := time.Now()
	for turn := 0; time.Since(began) < 3*sharedLease; turn++ {
		<-renew.C
		me.URL = l.Nodes[turn%2].URL
		for i := range work {
			w, a, err := me.Extend(l.T.Context(), work[i].ID)
			if err != nil || a.Status != 200 || !w.LeaseExpiresAt.After(*work[i].LeaseExpiresAt) {
				l.T.Errorf("renew %s: %d %s, %v", work[i].Item, a.Status, a.Body, err)
				return
			}
			work[i] = w
		}
	}
	for _, w := range work {
		l.check(me, w)
	}
}

// checkPages takes five pages, checks them, and takes the next.
func (l *sharing) checkPages(ctx context.Context, me cluster.Client) {
	for ctx.Err() == nil {
		r, a, err := me.GetWork(l.T.Context(), "check", 1+len(me.Instance)%5, "Prefer", "wait=60")
		if err != nil || a.Status != 201 {
			l.T.Errorf("%s: %d %s, %v", me.Instance, a.Status, a.Body, err)
			return
		}
		for _, w := range r.Work {
			l.check(me, w)
		}
		if len(r.Work) == 0 { // others have the rest, for a lease at most
			select {
			case <-ctx.Done():
			case <-time.After(sharedLease / 10):
			}
		}
	}
}

// check writes down that a page was checked, and completes it. An agent that has lost the page learns that, and deletes
// its entry.
func (l *sharing) check(me cluster.Client, w assign.Work) {
	if _, err := l.DB.Exec(l.T.Context(), `update page set checked_by = $1 where id = $2::integer`, strconv.FormatInt(w.ID, 10), w.Item); err != nil {
		l.T.Error(err)
	}
	_, a, err := me.Dispose(l.T.Context(), w.ID, "complete", "")
	switch {
	case err == nil && a.Problem.Type == "/problems/lease-lost":
		if _, err := l.DB.Exec(l.T.Context(), `update page set checked_by = null where checked_by = $1`, strconv.FormatInt(w.ID, 10)); err != nil {
			l.T.Error(err)
		}
	case err == nil && a.Status == 200:
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.done[w.Item] != "" {
			l.T.Errorf("%s and %s were told that page %s is complete", l.done[w.Item], me.Instance, w.Item)
		}
		l.done[w.Item] = me.Instance
	default:
		l.T.Errorf("%s completes page %s: %d %s, %v", me.Instance, w.Item, a.Status, a.Body, err)
	}
}

// expiries checks that lost work expired soon after its time, apart from standstills, whichever node had given it, and
// was done by others.
func (l *sharing) expiries(lost []assign.Work, still time.Duration) {
	l.T.Helper()
	ids := make([]int64, len(lost))
	for i, w := range lost {
		ids[i] = w.ID
	}
	if states := column[string](l.site, `select distinct state from getwork.work where id = any($1)`, ids); !slices.Equal(states, []string{"expired"}) {
		l.T.Errorf("lost work is %v", states)
	}
	late := column[float64](l.site, `
select extract(epoch from max(closed_at - lease_expires_at))::float8 from getwork.work where id = any($1)
group by instance order by instance`, ids) // dead, orphaned, sleeper
	l.T.Logf("expired after their time, in s: %.3f", late)
	for i, most := range []float64{1.5, 3, 1.5} {
		if late[i]-still.Seconds() > most {
			l.T.Errorf("work expired %v s after its lease ran out", late[i])
		}
	}
	again := column[string](l.site, `
select n.item from getwork.work w join getwork.work n using (task_id, item)
where w.id = any($1) and n.id > w.id and n.attempt > w.attempt and n.state = 'completed'`, ids)
	if len(again) != len(lost) {
		l.T.Errorf("of %d lost pages %v were done later", len(lost), again)
	}
}

// eachOnce checks that each page was completed once, by its holder at that time.
func (l *sharing) eachOnce() {
	l.T.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.done) != sharedPages {
		l.T.Errorf("%d pages are done", len(l.done))
	}
	if n := column[int64](l.site, `select count(*) from getwork.work where state = 'completed'`)[0]; n != sharedPages {
		l.T.Errorf("%d completions; want %d", n, sharedPages)
	}
	if wrong := column[int32](l.site, `
select p.id from page p join getwork.work w on w.id = p.checked_by::bigint where w.item <> p.id::text`); len(wrong) > 0 {
		l.T.Errorf("checked under somebody else's name: %v", wrong)
	}
}
