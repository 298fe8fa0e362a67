package assign

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/notify"
)

// Feed is the node's one reader of what happened. NOTIFY names what changed; the feed reads it from the tables,
// once for all who follow it on this node, and hands each his own. Its one loop reads, then delivers, then reads
// again, so a later event is never older than an earlier one.
type Feed struct {
	engine *Engine
	wake   chan struct{}

	mu      sync.Mutex
	holders map[Holder]map[*Subscription]bool
	all     int
	news    news
	state   NodeState // Lagging, or Live; empty before the listener first said
	deaf    bool      // there is no listener: look at everything every few seconds
	later   *time.Timer

	told time.Time // when tasks were last told; the loop's alone
}

// Subscription is one follower: a socket, an event stream, or a held answer.
type Subscription struct {
	feed    *Feed
	holder  Holder
	deliver func(Event)
	tasks   map[string]bool // whose task and run events it follows
	quiet   bool            // it wants request events only
}

// news is what was heard and not yet read.
type news struct {
	rounds, requests, work, runs map[int64]bool
	tasks                        map[int64]bool
	resync                       bool
}

func newNews() news {
	return news{map[int64]bool{}, map[int64]bool{}, map[int64]bool{}, map[int64]bool{}, map[int64]bool{}, false}
}

// Subscribe delivers to a holder what concerns him, until the returned function is called. deliver must not block.
// Whoever shows state should subscribe first and read it then, so that nothing falls between.
func (f *Feed) Subscribe(holder Holder, deliver func(Event)) (*Subscription, func()) {
	s := &Subscription{feed: f, holder: holder, deliver: deliver, tasks: map[string]bool{}}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.holders[holder] == nil {
		f.holders[holder] = map[*Subscription]bool{}
	}
	f.holders[holder][s] = true
	f.all++
	return s, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if !f.holders[holder][s] {
			return
		}
		delete(f.holders[holder], s)
		if len(f.holders[holder]) == 0 {
			delete(f.holders, holder)
		}
		f.all--
	}
}

// Follow adds tasks whose task and run events are delivered, too; their present state comes at once.
func (s *Subscription) Follow(tasks ...Task) {
	s.feed.mu.Lock()
	defer s.feed.mu.Unlock()
	for _, t := range tasks {
		s.tasks[t.Name] = true
		s.feed.hear(func(n *news) { n.tasks[t.ID] = true })
	}
}

// Unfollow ends that; names that are not followed are left out.
func (s *Subscription) Unfollow(tasks ...string) {
	s.feed.mu.Lock()
	defer s.feed.mu.Unlock()
	for _, name := range tasks {
		delete(s.tasks, name)
	}
}

// RequestsOnly spares a subscription all but request events.
func (s *Subscription) RequestsOnly() *Subscription {
	s.feed.mu.Lock()
	defer s.feed.mu.Unlock()
	s.quiet = true
	return s
}

// heard notes what a NOTIFY said.
func (f *Feed) heard(m notify.Message) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.all == 0 {
		return // who subscribes later reads the tables first
	}
	f.hear(func(n *news) {
		if m.Round != nil {
			n.rounds[m.Round.ID] = true
			n.tasks[m.Round.Task] = true
			if m.Round.Run != 0 {
				n.runs[m.Round.Run] = true
			}
		}
		for _, c := range m.Changes {
			n.tasks[c.Task] = true
			n.resync = n.resync || c.Many
			for ids, into := range map[*[]int64]map[int64]bool{&c.Requests: n.requests, &c.Work: n.work, &c.Runs: n.runs} {
				for _, id := range *ids {
					into[id] = true
				}
			}
		}
		n.resync = n.resync || m.All
	})
}

// hear changes what is to be read, and wakes the reader; f.mu is held.
func (f *Feed) hear(change func(*news)) {
	if f.news.rounds == nil {
		f.news = newNews()
	}
	change(&f.news)
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// Connected tells the feed that the listener has its connection (back): everybody is read again, and told that
// the node is live when that is done.
func (f *Feed) Connected() { f.listening(Live) }

// Disconnected tells the feed that nothing is heard any more.
func (f *Feed) Disconnected() { f.listening(Lagging) }

// Deaf tells the feed that there is no listener, so that it looks for itself.
func (f *Feed) Deaf() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.deaf = true
}

// Listening reports whether what happens is heard at once.
func (f *Feed) Listening() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state == Live && !f.deaf
}

func (f *Feed) listening(state NodeState) {
	f.mu.Lock()
	first := f.state == ""
	changed := f.state != state
	f.state = state
	if state == Live {
		f.hear(func(n *news) { n.resync = true })
	}
	f.mu.Unlock()
	if changed && state == Lagging && !first {
		f.Broadcast(Event{Type: "node", Body: NodeEvent{Lagging}})
	}
}

// Broadcast delivers to everybody.
func (f *Feed) Broadcast(e Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, subs := range f.holders {
		for s := range subs {
			if !s.quiet {
				s.deliver(e)
			}
		}
	}
}

const (
	mergeFor    = 250 * time.Millisecond // the least time between two events of one task
	rereadEvery = 10 * time.Second       // an announcement may be lost with its node: tasks that are followed are read anyway
	deafEvery   = 2 * time.Second
)

// run reads and delivers until ctx ends.
func (f *Feed) run(ctx context.Context) error {
	again := time.NewTicker(deafEvery)
	defer again.Stop()
	reread := time.Now()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-f.wake:
		case <-again.C:
			f.mu.Lock()
			if f.all > 0 && (f.deaf || f.state == Lagging) {
				f.hear(func(n *news) { n.resync = true })
			}
			f.mu.Unlock()
			if time.Since(reread) < rereadEvery {
				continue
			}
			reread = time.Now()
			f.followed(ctx)
		}
		if err := f.catchUp(ctx); err != nil && ctx.Err() == nil {
			f.engine.Log.Warn("tell what happened; it is tried again", "error", err)
			f.mu.Lock()
			f.hear(func(n *news) { n.resync = true })
			f.mu.Unlock()
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	}
}

// followed marks every task that somebody follows as news.
func (f *Feed) followed(ctx context.Context) {
	f.mu.Lock()
	names := map[string]bool{}
	for _, subs := range f.holders {
		for s := range subs {
			maps.Copy(names, s.tasks)
		}
	}
	f.mu.Unlock()
	if len(names) == 0 {
		return
	}
	tasks, err := f.engine.Tasks(ctx)
	if err != nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, t := range tasks {
		if names[t.Name] {
			f.hear(func(n *news) { n.tasks[t.ID] = true })
		}
	}
}

// catchUp reads all that was heard, and delivers it.
func (f *Feed) catchUp(ctx context.Context) error {
	f.mu.Lock()
	n := f.news
	f.news = news{}
	live := f.state == Live
	nobody := f.all == 0
	f.mu.Unlock()
	if nobody || n.rounds == nil {
		return nil
	}
	if n.resync {
		if err := f.resync(ctx); err != nil {
			return err
		}
		if live {
			f.Broadcast(Event{Type: "node", Body: NodeEvent{Live}})
		}
	}
	for _, tell := range []func(context.Context, news) error{f.tellRequests, f.tellWork, f.tellRuns, f.tellTasks} {
		if err := tell(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

// here are the holders who follow on this node.
func (f *Feed) here() []Holder {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Collect(maps.Keys(f.holders))
}

// to delivers to one holder's subscriptions.
func (f *Feed) to(h Holder, e Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for s := range f.holders[h] {
		if !s.quiet || e.Request != nil {
			s.deliver(e)
		}
	}
}

// resync reads everybody's pipeline again and delivers it as a snapshot; held answers get their requests.
func (f *Feed) resync(ctx context.Context) error {
	holders := f.here()
	for part := range slices.Chunk(holders, 1000) {
		pipelines, err := f.engine.pipelines(ctx, part)
		if err != nil {
			return err
		}
		for h, p := range pipelines {
			f.to(h, Event{Type: "snapshot", Body: p})
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, subs := range f.holders {
		for s := range subs {
			if s.quiet {
				s.deliver(Event{Type: "snapshot"}) // read again
			}
		}
	}
	return nil
}

// selectNews reads the requests of some rounds, and some by id, of the users who follow here: all that were
// answered would be too many where ten nodes share ten thousand people.
const selectNews = `
select ` + requestColumns + `
from getwork.work_requested r join getwork.task_state s using (task_id)
where (r.round_id = any($1::bigint[]) or r.id = any($2::bigint[])) and r.user_name = any($3::text[])
order by r.id`

func (f *Feed) tellRequests(ctx context.Context, n news) error {
	if len(n.rounds) == 0 && len(n.requests) == 0 {
		return nil
	}
	holders := f.here()
	users := make([]string, len(holders))
	for i, h := range holders {
		users[i] = h.User
	}
	rows, err := f.engine.api.Query(ctx, f.engine.SQL(selectNews), keys(n.rounds), keys(n.requests), users)
	if err != nil {
		return fmt.Errorf("read what rounds answered: %w", err)
	}
	requests, err := pgx.CollectRows(rows, scanRequest)
	if err != nil {
		return fmt.Errorf("read what rounds answered: %w", err)
	}
	if err := f.engine.addWork(ctx, requests); err != nil {
		return err
	}
	for i := range requests {
		r := &requests[i]
		f.to(r.Holder(), Event{Type: "request", Body: r, Request: r})
	}
	return nil
}

const selectWorkNews = `
select ` + workColumns + `
from getwork.work w join getwork.task_state s using (task_id)
where w.id = any($1::bigint[])
order by w.id`

func (f *Feed) tellWork(ctx context.Context, n news) error {
	if len(n.work) == 0 {
		return nil
	}
	rows, err := f.engine.api.Query(ctx, f.engine.SQL(selectWorkNews), keys(n.work))
	if err != nil {
		return fmt.Errorf("read what became of work: %w", err)
	}
	works, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (Work, error) { return scanWork(row) })
	if err != nil {
		return fmt.Errorf("read what became of work: %w", err)
	}
	for i := range works {
		f.to(works[i].Holder(), Event{Type: "work", Body: &works[i]})
	}
	return nil
}

const (
	selectRunNews = `
select ` + runColumns + `, s.name
from getwork.run u join getwork.task_state s using (task_id)
where u.id = any($1::bigint[])
order by u.id`

	selectWaitingHolders = `
select r.task_id, r.user_name, r.instance
from getwork.work_requested r
where r.task_id = any($1::bigint[]) and r.state = 'pending' and r.user_name = any($2::text[])`
)

// phases maps a run's state to what its event says.
var phases = map[string]string{"running": "started", "finished": "finished", "failed": "failed", "cancelled": "cancelled", "lost": "failed"}

// tellRuns tells of runs whoever waits on the task and whoever follows it.
func (f *Feed) tellRuns(ctx context.Context, n news) error {
	if len(n.runs) == 0 {
		return nil
	}
	events := map[int64][]RunEvent{}
	rows, err := f.engine.api.Query(ctx, f.engine.SQL(selectRunNews), keys(n.runs))
	if err != nil {
		return fmt.Errorf("read runs: %w", err)
	}
	runs, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (r Run, err error) {
		var name string
		if r, err = scanRun(runAndName{row, &name}); err != nil {
			return r, err
		}
		events[r.TaskID] = append(events[r.TaskID], RunEvent{ID: r.ID, Task: name, Phase: phases[r.State], Candidates: r.Candidates, DurationMS: r.DurationMS})
		return r, nil
	})
	if err != nil || len(runs) == 0 {
		return err
	}
	waiting, err := f.waitingHere(ctx, slices.Collect(maps.Keys(events)))
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for task, told := range events {
		for h, subs := range f.holders {
			for s := range subs {
				for _, e := range told {
					if !s.quiet && (s.tasks[e.Task] || waiting[taskHolder{task, h}]) {
						s.deliver(Event{Type: "run", Body: e})
					}
				}
			}
		}
	}
	return nil
}

// runAndName lets scanRun read a row that has a name behind the run's columns.
type runAndName struct {
	pgx.CollectableRow
	name *string
}

func (r runAndName) Scan(into ...any) error { return r.CollectableRow.Scan(append(into, r.name)...) }

type taskHolder struct {
	task   int64
	holder Holder
}

// waitingHere are the holders who wait on one of the tasks, and follow on this node.
func (f *Feed) waitingHere(ctx context.Context, tasks []int64) (map[taskHolder]bool, error) {
	holders := f.here()
	users := make([]string, len(holders))
	for i, h := range holders {
		users[i] = h.User
	}
	rows, err := f.engine.api.Query(ctx, f.engine.SQL(selectWaitingHolders), tasks, users)
	if err != nil {
		return nil, fmt.Errorf("read who waits: %w", err)
	}
	waiting := map[taskHolder]bool{}
	_, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (struct{}, error) {
		var w taskHolder
		err := row.Scan(&w.task, &w.holder.User, &w.holder.Instance)
		waiting[w] = true
		return struct{}{}, err
	})
	if err != nil {
		return nil, fmt.Errorf("read who waits: %w", err)
	}
	return waiting, nil
}

// tellTasks delivers the present state of tasks to who follows them. However many changes came, each task has at
// most one event in mergeFor, and the last state always comes.
func (f *Feed) tellTasks(ctx context.Context, n news) error {
	if len(n.tasks) == 0 || !f.anybodyFollows() {
		return nil
	}
	if wait := mergeFor - time.Since(f.told); wait > 0 {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.news.rounds == nil {
			f.news = newNews()
		}
		maps.Copy(f.news.tasks, n.tasks)
		if f.later == nil {
			f.later = time.AfterFunc(wait, func() {
				f.mu.Lock()
				defer f.mu.Unlock()
				f.later = nil
				f.hear(func(*news) {})
			})
		}
		return nil
	}
	f.told = time.Now()
	tasks, err := f.engine.tasks(ctx, nil, keys(n.tasks))
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range tasks {
		e := Event{Type: "task", Body: &tasks[i]}
		for _, subs := range f.holders {
			for s := range subs {
				if !s.quiet && s.tasks[tasks[i].Name] {
					s.deliver(e)
				}
			}
		}
	}
	return nil
}

func (f *Feed) anybodyFollows() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, subs := range f.holders {
		for s := range subs {
			if len(s.tasks) > 0 {
				return true
			}
		}
	}
	return false
}

func keys(set map[int64]bool) []int64 { return slices.Sorted(maps.Keys(set)) }
