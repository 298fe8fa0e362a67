package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
	"getwork/assign/audit"
	"getwork/assign/pg"
	"getwork/assign/records"
)

// A node has a limited number of slots for running queries. A slot that becomes free goes to the task whose requests have waited
// longest, by the database's account. A task that has just run queues behind all that waited by then, on any node. Otherwise it
// would take the slot again, and a few busy tasks would make the others wait for ever. Previews, explanations and claims have
// a slot of their own (askSlot, below).

// runSlots are a node's run slots. Engine.mu guards the fields, because a task's serve loop and its slot change together.
type runSlots struct {
	*Engine
	passing sync.Mutex // one slot at a time is passed on, so that no two go to one task; locked before Engine.mu

	free   int            // free slots
	parked map[int64]bool // tasks that wait for a slot, and whether their lingering requests are to be served, too
}

type serveLoopKey struct{}

// takeFreeSlot takes a slot if one was handed to ctx's serve loop, or one is free. The caller gives it back by leaveSlot, and then
// giveSlot or passSlotOn; a slot that is not given back is lost until the node restarts.
func (s *runSlots) takeFreeSlot(ctx context.Context) bool {
	l, _ := ctx.Value(serveLoopKey{}).(*serveLoop)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case l != nil && l.slotHanded:
		l.slotHanded = false
	case s.free > 0:
		s.free--
	default:
		return false
	}
	if l != nil {
		l.hasSlot = true
	}
	return true
}

// freeSlots returns the number of free slots.
func (s *runSlots) freeSlots() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.free
}

// leaveSlot records that ctx's serve loop no longer has a slot.
func (s *runSlots) leaveSlot(ctx context.Context) {
	if l, _ := ctx.Value(serveLoopKey{}).(*serveLoop); l != nil {
		s.mu.Lock()
		l.hasSlot = false
		s.mu.Unlock()
	}
}

// park records that a task waits for a slot, and whether to serve its lingering requests, too. It notifies the other nodes,
// which may have a free slot.
func (s *runSlots) park(task int64, lingering bool) {
	s.mu.Lock()
	was, known := s.parked[task]
	s.parked[task] = was || lingering
	free := s.free > 0 // a slot was given back after the caller had found none
	if free {
		s.free--
	}
	s.mu.Unlock()
	if !known {
		s.Announce.Waiting(task)
	}
	if free {
		s.giveSlot()
	}
}

// giveSlot gives back a slot that no run has used. It does not block.
func (s *runSlots) giveSlot() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.parked) > 0 && s.spawn(func(ctx context.Context) { s.passSlotOn(ctx, false) }) {
		return
	}
	s.free++
}

// selectFirstInLine finds the task that has waited longest: since its first servable request became due, or since its last
// run ended, whichever is later. It leaves out a task whose run is under way, because its lock is taken. It finds the tasks
// one after another by index, since thousands of requests may wait for one.
const selectFirstInLine = `
with recursive waiting as (
  (select r.task_id from getwork.work_requested r where r.state = 'pending' order by r.task_id limit 1)
  union all
  select (select r.task_id from getwork.work_requested r where r.state = 'pending' and r.task_id > w.task_id order by r.task_id limit 1)
  from waiting w where w.task_id is not null
)
select s.task_id
from waiting w
join getwork.task_state s on s.task_id = w.task_id
join getwork.task_version v on v.task_id = s.task_id and v.version = s.version
cross join lateral (
  select least(
    (select r.created_at from getwork.work_requested r where r.task_id = s.task_id and r.state = 'pending' and r.look_after is null order by r.id limit 1),
    (select min(r.look_after) from getwork.work_requested r where r.task_id = s.task_id and r.state = 'pending' and r.look_after <= (select clock_timestamp()))) as at
) due
left join lateral (
  select u.state, u.backend, u.started_at, u.finished_at from getwork.run u where u.task_id = s.task_id order by u.id desc limit 1
) last on true
where due.at is not null and ($1 or s.task_id = any($2::bigint[])) and s.task_id <> all ($3::bigint[])
  and (s.deleted_at is not null or v.query is not null and not s.paused and (` + records.ShelfFresh + `
    or not ` + records.HeldBack + `))
  and (last.state is distinct from 'running' or not exists (
    select from pg_stat_activity a
    where a.pid = last.backend and a.datname = current_database() and a.xact_start < last.started_at))
order by greatest(due.at, last.finished_at), s.task_id
limit 1`

// passSlotOn gives a slot to the one that has waited longest. After a run that may be any task, whether or not this node
// knows that it waits. Otherwise it is one of the parked tasks; a task whose lock another session holds would be tried
// without end. Until the slot is given nobody has it: a task that asks for one meanwhile is parked, and served in the end.
func (s *runSlots) passSlotOn(ctx context.Context, ran bool) {
	if ctx.Err() != nil { // the node is shutting down
		s.mu.Lock()
		defer s.mu.Unlock()
		s.free++
		return
	}
	s.passing.Lock()
	defer s.passing.Unlock()
	s.mu.Lock()
	parked, served := slices.Collect(maps.Keys(s.parked)), []int64{}
	for task, l := range s.loops {
		if l.hasSlot || l.slotHanded {
			served = append(served, task)
		}
	}
	s.mu.Unlock()
	task, err := s.firstInLine(ctx, ran, parked, served)
	if err != nil && ctx.Err() == nil && !pg.Away(err) { // the slot is then given in any order; other statements report a database that is away
		s.Log.Warn("read the order of waiting tasks", "error", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if task != 0 && s.handTo(task) {
		return
	}
	s.free++
	all := maps.Clone(s.parked)
	clear(s.parked)
	for task, lingering := range all {
		s.wakeLocked(task, lingering)
	}
}

// firstInLine returns the task that is to have the slot; 0: none waits.
func (s *runSlots) firstInLine(ctx context.Context, ran bool, parked, served []int64) (task int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, rescueWithin)
	defer cancel()
	err = s.DB.QueryRow(ctx, s.SQL(selectFirstInLine), ran, parked, served).Scan(&task)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return 0, fmt.Errorf("read the tasks that wait for a run slot: %w", err)
	}
	return task, nil
}

// handTo wakes the task with a slot in hand. It returns false if the task's loop has a slot already, or if the node is
// shutting down. e.mu must be held.
func (s *runSlots) handTo(task int64) bool {
	if l := s.loops[task]; l != nil && (l.slotHanded || l.hasSlot) {
		return false
	}
	s.wakeLocked(task, s.parked[task])
	l := s.loops[task]
	if l == nil {
		return false
	}
	delete(s.parked, task)
	l.slotHanded = true
	return true
}

// serveWithSlot calls serveOnce for a loop that may have a slot in hand. If serveOnce does not use the slot, the next in line
// gets it.
func (s *runSlots) serveWithSlot(ctx context.Context, task int64, l *serveLoop, lingering bool) (p taskView, moved bool, err error) {
	s.mu.Lock()
	had := l.slotHanded
	s.mu.Unlock()
	p, moved, err = s.serveOnce(context.WithValue(ctx, serveLoopKey{}, l), task, lingering)
	s.mu.Lock()
	unused := had && l.slotHanded
	if unused {
		l.slotHanded = false
	}
	s.mu.Unlock()
	if unused {
		s.giveSlot()
	}
	return p, moved, err
}

// withRunSlot calls f with one of the node's run slots, so that runs and rechecks together never use more connections than
// --max-runs. If none is free f is not called, and the caller is refused with [assign.Busy]; by a draining node, which also
// ends f's context, with [assign.Unavailable].
func (s *runSlots) withRunSlot(ctx context.Context, f func(context.Context) error) error {
	base, done := s.join()
	if base == nil {
		return errEnding
	}
	defer done()
	if !s.takeFreeSlot(ctx) {
		return assign.Refuse(assign.Busy, "all run slots of this node are taken")
	}
	defer func() { // after the connection was given back, so that the slot's next user finds one
		s.leaveSlot(ctx)
		s.giveSlot()
	}()
	ctx, cancel := s.untilEnding(ctx)
	defer cancel()
	return f(ctx)
}

// join makes the engine wait for the caller when it ends, until done is called. The returned context ends when the engine
// begins to end; it is nil if the engine has ended or not begun.
func (e *Engine) join() (base context.Context, done func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.base == nil || e.base.Err() != nil {
		return nil, nil
	}
	e.working.Add(1)
	return e.base, e.working.Done
}

// untilEnding returns a copy of ctx that is cancelled when the engine begins to end: a draining node waits for nobody's
// query.
func (e *Engine) untilEnding(ctx context.Context) (context.Context, context.CancelFunc) {
	e.mu.Lock()
	base := e.base
	e.mu.Unlock()
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(base, func() { cancel(errEnding) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// askWait is the longest time that a preview, an explanation or a claim waits for its slot.
const askWait = 10 * time.Second

// askSlot is the node's slot for previews, explanations and claims, whose queries are executed one at a time. They take no
// run slot, or one user's previews would make everybody's clicks wait. The slot goes to the waiting user who has not had it
// for longest, so that a user who asks for much makes others wait for one query.
type askSlot struct {
	mu    sync.Mutex
	taken bool
	line  []*asker       // those who wait, in the order in which they came
	turns int            // how often the slot was taken
	last  map[string]int // by user: the turn in which they last had it; emptied when nobody waits
}

// asker is a call that waits for the slot.
type asker struct {
	user  string
	given chan struct{} // closed when the call has the slot
}

// withAskSlot calls f with the node's slot for previews, explanations and claims, and waits for it at most askWait. Without
// it f is not called: the caller is refused with [assign.Busy], and by a draining node with [assign.Unavailable]. When the node
// drains, f's context ends.
func (e *Engine) withAskSlot(ctx context.Context, f func(context.Context) error) error {
	base, done := e.join()
	if base == nil {
		return errEnding
	}
	defer done()
	ctx, cancel := e.untilEnding(ctx)
	defer cancel()
	if err := e.asks.take(ctx, audit.ActorOf(ctx).User); err != nil {
		return err
	}
	defer e.asks.giveBack()
	return f(ctx)
}

// take takes the slot for a user, and waits for it.
func (s *askSlot) take(ctx context.Context, user string) error {
	mine := &asker{user: user, given: make(chan struct{})}
	s.mu.Lock()
	s.line = append(s.line, mine)
	if !s.taken {
		s.pass()
	}
	s.mu.Unlock()
	ctx, cancel := context.WithTimeoutCause(ctx, askWait, errNoAskSlot)
	defer cancel()
	select {
	case <-mine.given:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if at := slices.Index(s.line, mine); at >= 0 {
		s.line = slices.Delete(s.line, at, at+1)
	} else { // it was given just now
		s.pass()
	}
	if err := context.Cause(ctx); !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return errNoAskSlot // the caller's own deadline is shorter
}

func (s *askSlot) giveBack() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pass()
}

// pass gives the slot to the next in line, if there is one. mu must be held.
func (s *askSlot) pass() {
	if s.taken = len(s.line) > 0; !s.taken {
		clear(s.last)
		return
	}
	next := slices.MinFunc(s.line, func(a, b *asker) int { return cmp.Compare(s.last[a.user], s.last[b.user]) })
	s.line = slices.DeleteFunc(s.line, func(a *asker) bool { return a == next })
	s.turns++
	s.last[next.user] = s.turns
	close(next.given)
}

var errNoAskSlot = assign.Refuse(assign.Busy, "previews, explanations and claims of others keep this node busy; try again in a moment")
