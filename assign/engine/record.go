package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
	"getwork/assign/pg"
	"getwork/assign/ranking"
	"getwork/assign/records"
	"getwork/notify"
)

// GetWork records a click and returns its request. The request is complete if the shelf or the inbox could answer it, or if it
// ended as it was recorded (paused, in back-off). Otherwise it is pending; its result is pushed, or found by asking again. A holder who has a
// pending request for the task gets that one. [assign.NotFound]: no such task is open to the user. [assign.KeyReused]: the key belongs to
// another body. [assign.Unauthenticated]: the credential has ended. [assign.Busy], [assign.Unavailable]: ask again. If ctx ends, its
// error is returned, and the click may still be recorded.
func (e *Engine) GetWork(ctx context.Context, task string, c assign.Click) (assign.Request, error) {
	k := &click{Click: c, holder: c.Holder, done: make(chan struct{}), gone: ctx.Done()}
	if err := e.dispatch(task, k); err != nil {
		return assign.Request{}, err
	}
	select {
	case <-k.done:
	case <-ctx.Done(): // if the click is being recorded, asking again finds its request
		return assign.Request{}, ctx.Err()
	}
	if k.err != nil {
		return assign.Request{}, k.err
	}
	return *k.answer, nil
}

// click is an assign.Click on its way through a dispatcher.
type click struct {
	assign.Click
	holder assign.Holder
	done   chan struct{}   // closed when there is an answer or an error
	gone   <-chan struct{} // closed when the caller no longer waits for the answer

	// Only recordBatch and what it calls write what follows. The caller reads it when done is closed.
	recorded assign.Click // what is recorded for its holder, if that is this click's
	id       int64        // the id of the request that answers it
	lost     bool         // its key has made that request before
	inserted assign.State // the state of the request recorded for this click; empty: another request answers it
	targets  []int64      // of a click over several tasks: theirs, and their names. It is recorded in a round that has something for it
	names    []string
	answer   *assign.Request
	err      error
}

// dispatcher gathers the clicks on one task that come while this node's last transaction for it is in flight, and records
// them together. On an idle system a click is alone in its batch, and waits for nobody.
type dispatcher struct {
	queue  []*click
	enough int           // full is closed when the queue has so many
	full   chan struct{} // nil: nobody waits for that
}

// use is how a task was in use on this node when its last batch was over. A round costs much the same for one click as for ten, so
// while a task is in hot use its batches wait for those who are about to click; see gather and joined.
type use struct {
	at     time.Time
	active int  // clicks that were just answered, or came meanwhile
	waited bool // the batch waited for its assign lock
}

const (
	hotFor       = 100 * time.Millisecond // how long the use of a task says something about its next batch
	longWait     = 2 * time.Millisecond   // for a lock; a free one is taken in less
	gatherFor    = time.Millisecond       // how long a batch waits for clicks at most
	gatherEnough = 8                      // with so many it waits for no more
)

// hot reports whether several clicks were about a moment ago.
func (u use) hot() bool { return u.active > 1 && time.Since(u.at) < hotFor }

// expects returns for how many clicks the next batch waits: for whoever was just answered may click again at once. If the last batch
// waited for its lock, so will the next, and others join it then.
func (u use) expects() int {
	if !u.hot() || u.waited {
		return 0
	}
	return min(u.active, gatherEnough)
}

// recordWithin is how long a batch may take.
const recordWithin = 15 * time.Second

// maxBatch bounds one transaction, and so the time for which it holds the assign lock. The feed expects no more answers of a round
// that the announcer announces.
const maxBatch = notify.MaxQuickRound

// maxQueued bounds a dispatcher's queue, and so the wait of the last click in it.
const maxQueued = 4000

// dispatch queues a click, and starts recording. [assign.Busy]: the queue is full. [assign.Unavailable]: the node drains. After an
// error the click's done is never closed.
func (e *Engine) dispatch(task string, k *click) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if d := e.dispatches[task]; d != nil {
		if len(d.queue) >= maxQueued {
			d.queue = slices.DeleteFunc(d.queue, (*click).left) // clicks whose callers have gone take no room
		}
		if len(d.queue) >= maxQueued {
			return assign.Refuse(assign.Busy, "clicks on this task come faster than they can be recorded; ask again in a moment")
		}
		d.queue = append(d.queue, k)
		if d.full != nil && len(d.queue) >= d.enough {
			close(d.full)
			d.full = nil
		}
		return nil
	}
	d := &dispatcher{queue: []*click{k}}
	if !e.spawn(func(context.Context) { e.recordAll(task, d) }) {
		return errEnding
	}
	e.dispatches[task] = d
	return nil
}

// left reports whether the click's caller no longer waits.
func (k *click) left() bool {
	select {
	case <-k.gone:
		return true
	default:
		return false
	}
}

// next takes a batch off the queue, without clicks whose callers no longer wait: they were asked to come again, or have gone.
// After a database has stood still for an hour there would be an hour's worth of them, and each would get work that its user
// does not know of.
func (d *dispatcher) next() (batch []*click) {
	for i, k := range d.queue {
		if k.left() {
			continue
		}
		if batch = append(batch, k); len(batch) == maxBatch {
			d.queue = d.queue[i+1:]
			return batch
		}
	}
	d.queue = nil
	return batch
}

// join takes clicks off the queue that may be in a batch whose task is locked already: those that what the node remembers of the task
// admits. The others are left to a batch that reads first.
func (d *dispatcher) join(t clicksTask, most int) (more []*click) {
	var rest []*click
	for _, k := range d.queue {
		switch {
		case k.left():
		case len(more) < most && k.holder.Instance == "" && t.refuses(k) == nil:
			more = append(more, k)
		default:
			rest = append(rest, k)
		}
	}
	d.queue = rest
	return more
}

// gather waits a moment for others who are about to click, if the task is in hot use.
func (e *Engine) gather(task string, d *dispatcher) {
	e.mu.Lock()
	d.enough = e.clicked[task].last.expects()
	if len(d.queue) == 0 || len(d.queue) >= d.enough {
		e.mu.Unlock()
		return
	}
	full := make(chan struct{})
	d.full = full
	e.mu.Unlock()
	timer := time.NewTimer(gatherFor)
	defer timer.Stop()
	select {
	case <-full:
	case <-timer.C:
		e.mu.Lock()
		d.full = nil
		e.mu.Unlock()
	}
}

// recordAll records until the queue is empty. It is not bound to the engine's context, because clicks in the queue are
// recorded even while the node drains. Each batch ends after recordWithin.
func (e *Engine) recordAll(task string, d *dispatcher) {
	for {
		e.gather(task, d)
		e.mu.Lock()
		batch := d.next()
		if len(batch) == 0 {
			delete(e.dispatches, task)
			e.mu.Unlock()
			return
		}
		e.mu.Unlock()
		ctx, cancel := context.WithTimeout(context.Background(), recordWithin)
		waited := e.recordLate(ctx, task, batch, func(t clicksTask) []*click {
			e.mu.Lock()
			defer e.mu.Unlock()
			more := d.join(t, maxBatch-len(batch))
			batch = append(batch, more...)
			return more
		})
		cancel()
		for _, k := range batch {
			close(k.done)
		}
		e.mu.Lock()
		if t, remembered := e.clicked[task]; remembered {
			t.last = use{time.Now(), len(batch) + len(d.queue), waited}
			e.clicked[task] = t
		}
		e.mu.Unlock()
	}
}

// recheckPatience is how long clicks wait for their task's recheck before they are recorded as waiting requests.
const recheckPatience = 2 * time.Second

// recordBatch records one batch, wakes its task, and gives each click its answer or its error.
func (e *Engine) recordBatch(ctx context.Context, name string, batch []*click) {
	e.recordLate(ctx, name, batch, nil)
}

// recordLate is recordBatch. join returns clicks that join the batch once its task is locked; nil: none do. waited: the batch waited
// for the lock.
func (e *Engine) recordLate(ctx context.Context, name string, batch []*click, join func(clicksTask) []*click) (waited bool) {
	t, batch, err := e.admitInstances(ctx, name, batch)
	if len(batch) == 0 {
		return false
	}
	late := join != nil && t.remembered && t.last.waited && t.last.hot()
	var served *round // nil: the clicks were only recorded
	record := func(found ranking.Matching) (err error) {
		for range attempts {
			err = e.TransactAnnouncing(ctx, func(tx pgx.Tx) (_ []notify.Change, err error) {
				if served = nil; late {
					began := time.Now()
					if _, err := tx.Exec(ctx, e.SQL(lockAssign), t.id); err != nil {
						return nil, fmt.Errorf("take the assign lock: %w", err)
					}
					waited = time.Since(began) > longWait
					if batch = joined(batch, join(t)); len(batch) == 0 {
						return nil, errAllLeft
					}
				}
				served, err = e.recordAndServe(ctx, tx, t, batch, found)
				return []notify.Change{{Task: t.id, Requests: unanswered(batch)}}, err
			})
			switch {
			case errors.Is(err, errAllLeft):
				return nil
			case errors.Is(err, errBeginAgain):
			case errors.Is(err, errOldKeys):
				if err := e.clearKeys(ctx, batch, t.id); err != nil {
					return err
				}
			case errors.Is(err, errSettle):
				var settled error
				if batch = leave(batch); len(batch) == 0 {
					return nil
				}
				if batch, settled = e.settle(ctx, t.id, batch); settled != nil || len(batch) == 0 {
					return settled
				}
			default:
				return err
			}
		}
		return err
	}
	switch {
	case err != nil:
	case t.fresh:
		limited, done := context.WithTimeout(ctx, recheckPatience)
		err = e.withRecheckedShelf(limited, t.id, t.settings, wanted(batch), record)
		done()
		if !errors.Is(err, errNoRecheck) && !errors.Is(err, errTooFewRechecked) {
			break
		}
		fallthrough // the serve loop, which can wait, does the recheck
	default:
		t.fresh = false
		err = record(ranking.Matching{})
	}
	if served == nil {
		e.forget(name)
	}
	if errors.Is(err, errRemembered) { // now they are admitted by what the database says
		return e.recordLate(ctx, name, batch, nil)
	}
	if half := len(batch) / 2; half > 0 && pg.Unheld(err) { // one click's name or key is at fault, and only that click is refused
		e.recordBatch(ctx, name, batch[:half])
		e.recordBatch(ctx, name, batch[half:])
		return waited
	}
	if err != nil {
		if served != nil {
			served.telling.End(false)
		}
		for _, k := range batch {
			k.err = fmt.Errorf("record request: %w", err)
		}
		return waited
	}
	e.countClicks(t.id, batch)
	e.Steps(ctx, StepRecorded)
	if served != nil {
		waited = waited || !late && served.waited > longWait
		e.after(served)
	}
	e.answer(ctx, t.id, batch)
	return waited
}

// errAllLeft says that nobody waits any more for a click of the batch.
var errAllLeft = errors.New("all callers have gone")

// joined returns a batch whose task is locked: with the clicks that came while it waited for the lock, and without those whose callers
// have gone meanwhile. Formed before, the batches of a dozen nodes would have two or three clicks each.
func joined(batch, more []*click) (now []*click) {
	for _, k := range batch {
		if k.left() {
			k.err = errAllLeft // nobody reads it
		} else {
			now = append(now, k)
		}
	}
	return append(now, more...)
}

// clicksTask is a task as clicks find it.
type clicksTask struct {
	id         int64
	name       string
	version    int
	settings   assign.Settings // those that concern a click
	fresh      bool            // the clicks may be served as they are recorded
	remembered bool            // not read, but remembered from earlier clicks
	last       use             // on this node
}

// is reports whether the task that was locked is the remembered one.
func (t clicksTask) is(locked lockedState) bool {
	return locked.version == t.version && locked.Name == t.name && !locked.deleted
}

// errRemembered says that a task is not as the node remembers it: it was changed, renamed or deleted, perhaps on another node.
var errRemembered = errors.New("the task is not as it was")

// remembers returns the task of that name as the last clicks found it, if it had a fresh shelf or an inbox then. A node remembers
// only what makes a new version of the task when it changes, so not whether the task is paused, its back-off or its shelf. The
// round compares name and version under the assign lock, but a refused click comes to no round. So if the remembered settings
// refuse one of the clicks, ok is false, and the task is read.
func (e *Engine) remembers(name string, batch []*click) (t clicksTask, ok bool) {
	e.mu.Lock()
	t, ok = e.clicked[name]
	e.mu.Unlock()
	if !ok {
		return t, false
	}
	return t, !slices.ContainsFunc(batch, func(k *click) bool { return t.refuses(k) != nil })
}

func (e *Engine) remember(t clicksTask) {
	t.remembered = true
	e.mu.Lock()
	defer e.mu.Unlock()
	e.clicked[t.name] = t
}

func (e *Engine) forget(name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.clicked, name)
}

// forgetTask saves clicks on a task that was changed a round trip in vain. Its name may be another by now.
func (e *Engine) forgetTask(id int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	maps.DeleteFunc(e.clicked, func(_ string, t clicksTask) bool { return t.id == id })
}

// refuses returns why the settings don't allow a click; nil: they allow it.
func (t clicksTask) refuses(k *click) error {
	if k.targets != nil {
		if !(assign.Who{Holder: k.Holder, Groups: k.Groups, Anything: k.Anything}).May(t.settings.Groups) {
			return errElsewhere // the task was changed meanwhile
		}
		return nil
	}
	if !(assign.Who{Holder: k.Holder, Groups: k.Groups, Anything: k.Anything}).May(t.settings.Groups) {
		return assign.NoTask(t.name)
	}
	if t.settings.Pick == "next" && !k.Picks {
		return assign.Refuse(assign.Forbidden, "%s", assign.NotByName(t.name))
	}
	return k.Check(t.settings.MaxRequest)
}

// maxWaiting is how many requests of one user may wait before no further instance of their programs gets one. A client may name as
// many instances as it likes, and a run's round reads all requests that wait for its task if the result was cut.
const maxWaiting = 5000

// selectCrowding returns the numbers of those clicks that would add a request to maxWaiting or more of the same user: their instance
// has no request that waits for the task, whose name is $1, and they repeat no call.
var selectCrowding = fmt.Sprintf(`
select c.n
from (select distinct user_name from unnest($2::text[]) u (user_name)) u
join lateral (
  select count(*) as n from (select from getwork.work_requested p where p.user_name = u.user_name and p.state = 'pending' limit %[1]d) p
) waiting on waiting.n >= %[1]d
join unnest($2::text[], $3::text[], $4::text[]) with ordinality c (user_name, instance, key, n) on c.user_name = u.user_name
left join getwork.task_state s on s.name = $1 and s.deleted_at is null
where not exists (
  select from getwork.work_requested p
  where p.user_name = c.user_name and p.instance = c.instance and p.task_id + 0 = coalesce(s.task_id, 0) and p.state = 'pending')
and not exists (
  select from getwork.work_requested p
  where p.user_name = c.user_name and p.key_scope = coalesce(s.task_id, 0) and p.key = c.key and p.created_at > clock_timestamp() - interval '24 hours')`, maxWaiting)

var errCrowding = assign.Refuse(assign.Busy, "you have %d requests waiting; cancel some, or wait until they are answered", maxWaiting)

// admitInstances is admit, and also refuses clicks of instances whose user has maxWaiting requests. It asks the database only if a
// click names an instance, and before the clicks are recorded: those that are recorded meanwhile come on top.
func (e *Engine) admitInstances(ctx context.Context, name string, batch []*click) (t clicksTask, admitted []*click, err error) {
	t, batch, err = e.admit(ctx, name, batch)
	if err != nil {
		return t, batch, err
	}
	var named []*click
	var users, instances, keys []string
	for _, k := range batch {
		if k.holder.Instance != "" && k.targets == nil {
			named, users, instances, keys = append(named, k), append(users, k.holder.User), append(instances, k.holder.Instance), append(keys, k.Key)
		} else {
			admitted = append(admitted, k)
		}
	}
	if len(named) == 0 {
		return t, batch, nil
	}
	rows, err := e.DB.Query(ctx, e.SQL(selectCrowding), name, users, instances, keys)
	if err != nil {
		return t, batch, fmt.Errorf("count the waiting requests: %w", err)
	}
	var n int
	if _, err := pgx.ForEachRow(rows, []any{&n}, func() error {
		named[n-1].err = errCrowding
		return nil
	}); err != nil {
		return t, batch, fmt.Errorf("count the waiting requests: %w", err)
	}
	for _, k := range named {
		if k.err == nil {
			admitted = append(admitted, k)
		}
	}
	return t, admitted, nil
}

// Without any lock, so the fourth column, whether the clicks may be served as they are recorded, is a guess. recordAndServe asks
// again under the assign lock.
const selectForClicks = `
select s.task_id, v.version, v.max_request, (v.query is null or ` + records.ShelfLasts + `) and not s.paused
    and (v.recheck is null or not ` + records.HeldBack + `), v.groups,
  coalesce(v.query, ''), coalesce(v.recheck, ''), (extract(epoch from v.query_timeout) * 1000000)::bigint,
  coalesce(v.pick, 'any')
from getwork.task_state s join getwork.task_version v on v.task_id = s.task_id and v.version = s.version
where s.name = $1 and s.deleted_at is null`

// admit reads the task, unless the node remembers it, and refuses users who may not take it and counts that it does not
// allow; admitted are the other clicks.
func (e *Engine) admit(ctx context.Context, name string, batch []*click) (t clicksTask, admitted []*click, err error) {
	if t, ok := e.remembers(name, batch); ok {
		return t, batch, nil
	}
	t.name = name
	s := &t.settings
	err = e.DB.QueryRow(ctx, e.SQL(selectForClicks), name).Scan(&t.id, &t.version, &s.MaxRequest, &t.fresh, &s.Groups, &s.Query, &s.Recheck, &s.QueryTimeout, &s.Pick)
	missing := errors.Is(err, pgx.ErrNoRows)
	if err != nil && !missing {
		return t, batch, fmt.Errorf("read the task: %w", err)
	}
	for _, k := range batch {
		if k.err = t.refuses(k); missing && k.targets != nil {
			k.err = errElsewhere
		} else if missing {
			k.err = assign.NoTask(name)
		}
	}
	if err := e.admitRepeats(ctx, t.id, batch); err != nil {
		return t, batch, err
	}
	for _, k := range batch {
		if k.err == nil {
			admitted = append(admitted, k)
		}
	}
	if t.fresh && s.Recheck == "" { // a recheck is a round trip itself, and needs the settings
		e.remember(t)
	}
	return t, admitted, nil
}

// wanted returns the number of items that the clicks ask for.
func wanted(batch []*click) (n int) {
	for _, k := range batch {
		n += k.Count
	}
	return n
}

// unanswered returns the requests of the clicks that no round has answered.
func unanswered(batch []*click) (ids []int64) {
	for _, k := range batch {
		if k.err == nil && k.answer == nil && !k.lost {
			ids = append(ids, k.id)
		}
	}
	return ids
}

// answer gives each click its request. Requests that the round recorded are known completely. The others are read all at
// once, and the task is woken if one of them waits.
func (e *Engine) answer(ctx context.Context, task int64, batch []*click) {
	var ids []int64
	for _, k := range batch {
		if k.err == nil && k.answer == nil {
			ids = append(ids, k.id)
		}
	}
	if len(ids) == 0 {
		return
	}
	found, err := e.Records.Requests(ctx, ids)
	byID := make(map[int64]*assign.Request, len(found))
	waits := err != nil
	for i := range found {
		byID[found[i].ID] = &found[i]
		waits = waits || found[i].State == assign.Pending
	}
	for _, k := range batch {
		if k.err != nil || k.answer != nil {
			continue
		}
		k.answer = byID[k.id]
		if k.answer == nil {
			k.err = cmp.Or(err, fmt.Errorf("read requests: request %d is gone", k.id))
		}
	}
	if waits { // a lingering request needs a timer, which the serve loop sets
		e.Wake(task)
	}
}

// recordAndServe is the transaction of a batch. If the shelf serves or the task is an inbox, it is a round: it takes the
// assign lock, and records the batch as it serves all waiting requests. If the shelf has ended, or ends meanwhile,
// it only records; the run lock is the next step, in a transaction of its own. It returns the round, if there was one.
//
// A round is two round trips: the lock and all that is read, and all that is written, with COMMIT. If the round leaves a click
// waiting, others must hear of its request, and COMMIT comes after that.
func (e *Engine) recordAndServe(ctx context.Context, tx pgx.Tx, t clicksTask, batch []*click, found ranking.Matching) (r *round, err error) {
	serves := false
	if t.fresh {
		if r, err = e.openRoundFor(ctx, tx, t.id, batch); err != nil {
			return nil, err
		}
		if t.remembered && !t.is(r.state) {
			return nil, errRemembered
		}
		if r.ahead.ended {
			return nil, errSettle
		}
		e.counts.Store(r.state.counts())
		if e.nexts.Store(r.state.nexts); r.state.nexts && !r.ahead.both { // those may come before the clicks
			return nil, errBeginAgain
		}
		serves = r.state.serves()
	}
	for _, k := range batch { // the transaction may be a repetition
		k.id, k.lost, k.inserted, k.answer, k.err = 0, false, "", nil, nil
	}
	if !serves {
		return nil, e.insertClicks(ctx, tx, t.id, leave(batch))
	}
	r.matching = found
	r.recordInline(batch)
	r.last = func() bool {
		r.share()
		return len(unanswered(batch)) == 0
	}
	err = r.serve(ctx, r.supply())
	r.share()
	if err != nil {
		r.telling.End(false)
		return nil, err
	}
	return r, nil
}

// sortedHolders returns the order in which requests are inserted on every node: two batches with the same holders then wait
// for each other in one direction only.
func sortedHolders(clicks []*click) []*click {
	sorted := slices.Clone(clicks)
	slices.SortStableFunc(sorted, func(a, b *click) int { return a.holder.Compare(b.holder) })
	return sorted
}

// quoted escapes what ends a quoted element of an array.
var quoted = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

// groupsOf returns a user's groups as they are recorded, an array as PostgreSQL writes it; nil: they need none. JSON would cost a
// sub-query for each click.
func groupsOf(c assign.Click) *string {
	if c.Anything {
		return nil
	}
	text := arrayText(c.Groups)
	return &text
}

// arrayText returns an array of texts as PostgreSQL writes it.
func arrayText(texts []string) string {
	var b strings.Builder
	b.WriteByte('{')
	for i, text := range texts {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteByte('"')
		_, _ = quoted.WriteString(&b, text)
		b.WriteByte('"')
	}
	b.WriteByte('}')
	return b.String()
}

// credentialOf returns a click's credential as it is recorded; nil: none.
func credentialOf(c assign.Click) *string {
	credential := c.Credential // a copy: a pointer into c would allocate all of c
	if credential == "" {
		return nil
	}
	return &credential
}

// withText adds a text of a row's click that few clicks have, such as the traceparent, to a column. unnest pads a column that is too
// short with nulls, so that rows without one need nothing behind the last row that has one, and allocate nothing.
func withText(column []*string, row int, text string) []*string {
	if text == "" {
		return column
	}
	for len(column) < row {
		column = append(column, nil)
	}
	recorded := text // a copy: a pointer to the parameter would allocate it where there is none to record, too
	return append(column, &recorded)
}

// withTrue is withText for what is true of few clicks.
func withTrue(column []bool, row int, is bool) []bool {
	if !is {
		return column
	}
	return append(append(column, make([]bool, row-len(column))...), true)
}

// withKey adds the key of a row's click, if it has one, and its body to the columns.
func withKey(keys, bodies []*string, row int, c assign.Click) (withKey, withBody []*string) {
	if c.Key == "" {
		return keys, bodies
	}
	return withText(keys, row, c.Key), withText(bodies, row, bodyOf(c))
}

// It needs no assign lock, so the settings may be a moment old: requests of a task that is deleted meanwhile are cancelled later (see
// endDeleted). If another transaction is inserting the same holder or key, the statement waits for its end. After a commit the row is
// left out, and selectRecorded or selectKeys finds the other one.
//
// Sorted by holder, like every insert of a batch. Two batches that have two keys of one user the other way about, for four of their
// instances, may wait for each other: PostgreSQL ends one, which begins again. "+ 0" and "limit" make PostgreSQL find each holder by the index of
// holders, since there may be few clicks and thousands of waiting requests.
const insertRequests = `
insert into getwork.work_requested (task_id, user_name, instance, wanted, requested, state, reason, error, created_at,
  linger_until, completed_at, lease, groups, credential, valid_until, traceparent, key, key_scope, key_body, program)
select s.task_id, c.user_name, c.instance, c.wanted,
  case when c.ends is null then c.wanted else 0 end,
  case when c.ends is null then 'pending' when c.ends = 'failed' then 'failed' else 'none' end,
  nullif(c.ends, 'failed'),
  case when c.ends = 'failed' then s.last_error end,
  c.at,
  case when c.linger > 0 then c.at + c.linger * interval '1 microsecond' end,
  case when c.ends is not null then c.at end,
  case when v.lease is null then c.lease * interval '1 microsecond' end,
  c.groups::text[], c.credential, c.valid_until, c.traceparent, c.key, case when c.key is not null then s.task_id end, c.key_body, c.program
from getwork.task_state s
join getwork.task_version v on v.task_id = s.task_id and v.version = s.version
left join ` + records.LimitsInForce + ` on true
cross join lateral (
  select u.*, clock_timestamp() as at, case
      when s.paused and u.linger = 0 then 'paused'
      when exists (select from getwork.absence a where a.user_name = u.user_name and ` + records.InForce + `) then 'away'
      when v.max_open is not null and v.max_open <= (
        select count(*) from getwork.work w where w.task_id = s.task_id and w.user_name = u.user_name and w.state = 'held') then 'at_limit'
      when l.version is not null and (` + records.LimitOf + `) <= (
        select count(*) from getwork.work w where w.user_name = u.user_name and w.state = 'held') then 'at_limit'
      when u.linger > 0 then null
      when ` + records.Failing + ` and (v.recheck is not null or not ` + records.ShelfFresh + `) then 'failed'
    end as ends
  from unnest($2::text[], $3::text[], $4::integer[], $5::bigint[], $6::bigint[], $7::text[], $8::text[], $9::timestamptz[],
    $10::text[], $11::text[], $12::text[], $13::boolean[])
    as u (user_name, instance, wanted, linger, lease, groups, credential, valid_until, traceparent, key, key_body, program)
) c
where s.task_id = $1 and s.deleted_at is null
  and case when c.credential is null then true else coalesce(c.valid_until > clock_timestamp(), true) and c.credential not in (select e from getwork.ended_among($8) e) end
  and (
    select true from getwork.work_requested p
    where p.task_id + 0 = s.task_id and p.user_name = c.user_name and p.instance = c.instance and p.state = 'pending' limit 1) is null
order by c.user_name, c.instance
on conflict do nothing
returning id, user_name, instance, state`

// insertClicks records the batch's clicks. A click whose key has made a request gets that one. A holder who has a pending request, or
// had one at the moment of the insert, gets that one. If a round has ended it before it could be read, the holder is inserted after all.
func (e *Engine) insertClicks(ctx context.Context, tx pgx.Tx, task int64, batch []*click) error {
	byHolder := map[assign.Holder][]*click{}
	for _, k := range batch {
		byHolder[k.holder] = append(byHolder[k.holder], k)
	}
	if err := e.followKeys(ctx, tx, task, batch, byHolder); err != nil {
		return err
	}
	for range attempts {
		if len(byHolder) == 0 {
			return nil
		}
		if err := e.insertHolders(ctx, tx, task, byHolder); err != nil {
			return err
		}
		if err := e.followKeys(ctx, tx, task, batch, byHolder); err != nil { // the insert may have met a key
			return err
		}
		if err := e.findPending(ctx, tx, task, byHolder); err != nil {
			return err
		}
	}
	var deleted bool
	if err := tx.QueryRow(ctx, e.SQL(selectDeleted), task).Scan(&deleted); err != nil || !deleted {
		return cmp.Or(err, errors.New("a click was neither inserted nor found"))
	}
	for _, clicks := range byHolder {
		for _, k := range clicks {
			k.err = assign.Refuse(assign.NotFound, "the task was deleted")
		}
	}
	return nil
}

// insertHolders inserts a request for each holder who has none: what [standing] says for their clicks.
func (e *Engine) insertHolders(ctx context.Context, tx pgx.Tx, task int64, byHolder map[assign.Holder][]*click) error {
	var users, instances []string
	var wanted []int32
	var lingers []int64
	var leases []*int64
	var groups, credentials, traces, keys, bodies []*string
	var untils []*time.Time
	var programs []bool
	for _, h := range slices.SortedFunc(maps.Keys(byHolder), assign.Holder.Compare) {
		k := standing(byHolder[h])
		users = append(users, h.User)
		instances = append(instances, h.Instance)
		wanted = append(wanted, int32(k.Count))
		lingers = append(lingers, k.Linger.Microseconds())
		leases = append(leases, microseconds(k.Lease))
		groups = append(groups, groupsOf(k))
		credentials = append(credentials, credentialOf(k))
		untils = append(untils, orNull(inMicroseconds(k.ValidUntil)))
		traces = withText(traces, len(users)-1, k.Traceparent)
		keys, bodies = withKey(keys, bodies, len(users)-1, k)
		programs = withTrue(programs, len(users)-1, k.Program)
	}
	statement, args := insertRequests, []any{task, users, instances, wanted, lingers, leases, groups, credentials, untils, traces, keys, bodies, programs}
	if task == 0 {
		for _, clicks := range byHolder { // they are recorded one by one
			statement, args = insertNext, append(args[1:], clicks[0].targets)
		}
	}
	rows, err := tx.Query(ctx, e.SQL(statement), args...)
	if err != nil {
		return err
	}
	return takeIDs(rows, byHolder)
}

// takeIDs gives the clicks the ids of their requests, and removes the holders from the map. Only a holder's first click counts as
// inserted, and its key is recorded.
func takeIDs(rows pgx.Rows, byHolder map[assign.Holder][]*click) error {
	_, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (struct{}, error) {
		var h assign.Holder
		var id int64
		var inserted assign.State
		err := row.Scan(&id, &h.User, &h.Instance, &inserted)
		for i, k := range byHolder[h] {
			k.id = id
			if i == 0 {
				k.inserted = inserted
			} else if first := byHolder[h][0]; k.Key != "" && k.Key == first.Key {
				k.follow(keyed{id, bodyOf(first.Click)})
			}
		}
		delete(byHolder, h)
		return struct{}{}, err
	})
	return err
}

const selectDeleted = `select coalesce((select deleted_at is not null from getwork.task_state where task_id = $1), false)`

// A statement after the insert's, so that it sees the requests with which the insert collided. "+ 0" and "limit" are as in
// insertRequests, and the sub-queries as in selectTickets.
const selectRecorded = `
select p.id, c.user_name, c.instance, coalesce(p.credential, ''), p.valid_until,
  case when c.credential is null then false else c.credential in (select e from getwork.ended_among($4) e) end
from unnest((select $2::text[]), (select $3::text[]), (select $4::text[])) as c (user_name, instance, credential)
cross join lateral (
  select p.id, p.credential, p.valid_until
  from getwork.work_requested p
  where p.task_id + 0 = $1 and p.user_name = c.user_name and p.instance = c.instance and p.state = 'pending'
  limit 1) p`

// findPending gives the clicks the ids of their holders' waiting requests, and removes the holders from the map. errSettle: one
// of those requests must stand on something else from now on, or a click was not recorded since its credential has ended.
func (e *Engine) findPending(ctx context.Context, tx pgx.Tx, task int64, byHolder map[assign.Holder][]*click) error {
	if len(byHolder) == 0 {
		return nil
	}
	var users, instances []string
	var credentials []*string
	for h, clicks := range byHolder {
		users, instances, credentials = append(users, h.User), append(instances, h.Instance), append(credentials, credentialOf(standing(clicks)))
	}
	rows, err := tx.Query(ctx, e.SQL(selectRecorded), task, users, instances, credentials)
	if err != nil {
		return err
	}
	var id int64
	var h assign.Holder
	var credential string
	var until *time.Time
	var ended bool
	if _, err := pgx.ForEachRow(rows, []any{&id, &h.User, &h.Instance, &credential, &until, &ended}, func() error {
		if ended || rebinds(standing(byHolder[h]), credential, until) {
			return errSettle
		}
		for _, k := range byHolder[h] {
			k.id = id
		}
		delete(byHolder, h)
		return nil
	}); err != nil {
		return err
	}
	for _, clicks := range byHolder {
		if standing(clicks).Credential == "" {
			continue
		}
		var deleted bool // then nobody is inserted, whatever they come in with
		if err := tx.QueryRow(ctx, e.SQL(selectDeleted), task).Scan(&deleted); err != nil || deleted {
			return err
		}
		return errSettle
	}
	return nil
}

// bodyOf returns the body that an Idempotency-Key stands for.
func bodyOf(c assign.Click) string {
	body := fmt.Sprintf("count=%d linger=%s", c.Count, c.Linger)
	if c.Tasks != nil {
		body = "tasks=" + strings.Join(c.Tasks, ",") + " " + body
	}
	if c.Lease != nil {
		body += " lease=" + c.Lease.String()
	}
	return body
}

// An Idempotency-Key is a part of the request that it made: key, key_scope and key_body of its row, under a unique index. So a key and
// its request are committed together, or neither is, wherever a node dies. A click whose key has made a request is answered with that
// one. Of two clicks with one key that nobody has used the index lets one in, whatever nodes they came to: the other one's insert waits
// for the first one's transaction. If that commits, a batch reads the keys again, and a round plans again; if its node dies, the insert
// goes on. A click that is answered with a request that waits leaves no key.
//
// After 24 hours the sweep takes the key from the row (see package tidy), or the next click with it does so first, in a transaction of
// its own: a row may be locked by a round, which may wait for what a batch inserts. If the node dies then, the key is free all the same.
type keyOf struct {
	user, key string
	next      bool // of a click over several tasks
}

func (k *click) keyOf() keyOf { return keyOf{k.holder.User, k.Key, k.targets != nil} }

// keyed is the request that a key has made.
type keyed struct {
	id   int64
	body string
}

// line returns the task in whose line the click's request is, or would be; 0: that of requests over several tasks.
func (k *click) line(task int64) int64 {
	if k.targets != nil {
		return 0
	}
	return task
}

// keysOf returns the users, names and scopes of the keys of clicks on a task, for selectKeys and clearKeys.
func keysOf(clicks []*click, task int64) (users, names []string, scopes []int64) {
	for _, k := range clicks {
		if k.Key != "" {
			users, names, scopes = append(users, k.holder.User), append(names, k.Key), append(scopes, k.line(task))
		}
	}
	return users, names, scopes
}

// "limit" makes PostgreSQL look each key up, and the sub-queries are as in selectTickets.
const selectKeys = `
select c.user_name, c.key, c.scope = 0, r.id, r.key_body, r.created_at < clock_timestamp() - interval '24 hours'
from unnest((select $1::bigint[]), (select $2::text[]), (select $3::text[])) as c (scope, user_name, key)
cross join lateral (
  select r.id, r.key_body, r.created_at
  from getwork.work_requested r
  where r.user_name = c.user_name and r.key_scope = c.scope and r.key = c.key
  limit 1) r`

// errOldKeys says that keys of clicks are more than 24 hours old, and must be cleared first.
var errOldKeys = errors.New("an idempotency key is over")

// readKeys reads what selectKeys finds: the requests that keys have made. errOldKeys: some are over.
func readKeys(rows pgx.Rows) (made map[keyOf]keyed, err error) {
	made = map[keyOf]keyed{}
	var id keyOf
	var was keyed
	var over, some bool
	if _, err := pgx.ForEachRow(rows, []any{&id.user, &id.key, &id.next, &was.id, &was.body, &over}, func() error {
		if some = some || over; !over {
			made[id] = was
		}
		return nil
	}); err != nil {
		return nil, fmt.Errorf("read idempotency keys: %w", err)
	}
	if some {
		err = errOldKeys
	}
	return made, err
}

// followKeys answers the clicks of the batch whose keys have made a request, and removes them from the map.
func (e *Engine) followKeys(ctx context.Context, tx pgx.Tx, task int64, batch []*click, byHolder map[assign.Holder][]*click) error {
	users, names, scopes := keysOf(batch, task)
	if len(names) == 0 || len(byHolder) == 0 {
		return nil
	}
	rows, err := tx.Query(ctx, e.SQL(selectKeys), scopes, users, names)
	if err != nil {
		return fmt.Errorf("read idempotency keys: %w", err)
	}
	made, err := readKeys(rows)
	if err != nil {
		return err
	}
	for h, clicks := range byHolder {
		others := slices.DeleteFunc(clicks, func(k *click) bool { return k.followed(made) })
		if byHolder[h] = others; len(others) == 0 {
			delete(byHolder, h)
		}
	}
	return nil
}

// followed answers a click whose key has made a request, and reports whether it has.
func (k *click) followed(made map[keyOf]keyed) bool {
	if k.Key == "" || len(made) == 0 {
		return false
	}
	was, ok := made[k.keyOf()]
	if ok {
		k.follow(was)
	}
	return ok
}

// follow answers a click with the request that its key has made, or refuses it.
func (k *click) follow(was keyed) {
	k.lost, k.id = true, was.id
	if was.body != bodyOf(k.Click) {
		k.err = assign.Refuse(assign.KeyReused, "this Idempotency-Key was used with another body (%s); use a new key for a new request", was.body)
	}
}

const clearKeys = `
update getwork.work_requested r
set key = null, key_scope = null, key_body = null
from unnest($1::bigint[], $2::text[], $3::text[]) as c (scope, user_name, key)
where r.user_name = c.user_name and r.key_scope = c.scope and r.key = c.key and r.created_at < clock_timestamp() - interval '24 hours'`

// clearKeys takes keys that are over from the requests that they made.
func (e *Engine) clearKeys(ctx context.Context, batch []*click, task int64) error {
	users, names, scopes := keysOf(batch, task)
	if _, err := e.write(ctx, clearKeys, scopes, users, names); err != nil {
		return fmt.Errorf("clear idempotency keys: %w", err)
	}
	return nil
}

// admitRepeats admits clicks that ask for too much but repeat an earlier click: max_request was lowered meanwhile, and they are
// answered with the earlier click's request all the same.
func (e *Engine) admitRepeats(ctx context.Context, task int64, batch []*click) error {
	var refused []*click
	for _, k := range batch {
		if k.Key != "" && assign.IsRefusal(k.err, assign.Invalid) && k.Check(k.Count) == nil {
			refused = append(refused, k)
		}
	}
	users, names, scopes := keysOf(refused, task)
	if len(names) == 0 {
		return nil
	}
	rows, err := e.DB.Query(ctx, e.SQL(selectKeys), scopes, users, names)
	if err != nil {
		return fmt.Errorf("read idempotency keys: %w", err)
	}
	made, err := readKeys(rows)
	if err != nil && !errors.Is(err, errOldKeys) {
		return err
	}
	for _, k := range refused {
		if _, repeats := made[k.keyOf()]; repeats {
			k.err = nil
		}
	}
	return nil
}
