package engine

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
)

// A round does not read all who wait. Most of them may linger: an earlier round has read them and had nothing for them, and their
// look_after has not come. Of those it reads as many as there is something to give, in the order of their ids, and more only while
// rules pass somebody over. So thousands who linger cost a click nothing. All others must be read, because the round answers them:
// those whom no round has read, who don't linger, or whose look_after has come. Those whom it leaves out have had their
// answer from an earlier round: nothing yet.
//
// It locks what it reads, in the order of ids: first everybody before the first who lingers; then, while something is left to give,
// everybody up to a later one; and when nothing is left, those further behind who must be answered.

// waiter is a pending request, its row locked.
type waiter struct {
	id      int64
	holder  assign.Holder
	wanted  int
	waited  time.Duration // since it was recorded
	lingers bool          // it lingers, and its time is not over
	unread  bool          // no round has left it lingering before
	due     bool          // one has, and its look_after has come
	groups  *[]string     // nil: needs none
	program bool
	lease   *assign.Duration // for a task that has none
	click   *click           // not recorded yet; nil: the request is recorded

	credential string // what it was recorded with; empty: nothing
	validUntil *time.Time
	invalid    bool // that time is past

	next *nextRow // of a request over several tasks; nil: it is for this one
}

// line is what a round has read of those who wait.
type line struct {
	waiting  []waiter
	chunk    int   // up to how many of those who linger it has read at a time; whole: all
	next     int64 // the first of those who linger whom it has not read; nobody: it has read all
	must     bool  // others behind that one must be read
	complete bool  // nobody whom it has not read may get anything, and it has read all others
	both     bool  // it reads requests over several tasks, too: see next.go
}

const (
	nobody = math.MaxInt64
	whole  = -1

	// firstChunk is up to how many of those who linger a round reads when it knows that there is something to give. Each further chunk
	// is four times as large.
	firstChunk = 100
)

const (
	waiterColumns = `r.id, r.user_name, r.instance, r.wanted, coalesce(r.linger_until > clock_timestamp(), false), r.groups,
  (extract(epoch from r.lease) * 1000000)::bigint, r.look_after is null, coalesce(r.look_after <= clock_timestamp(), false),
  coalesce(r.credential, ''), r.valid_until, coalesce(r.valid_until <= clock_timestamp(), false),
  (extract(epoch from clock_timestamp() - r.created_at) * 1000000)::bigint, coalesce(r.program, false)`

	// nextLingering is the first of those who linger behind $2; of them, %d are passed over. The number stands in the text for the
	// reason that atMost gives. "between" is as in selectOldest.
	nextLingering = `coalesce((
  select q.id
  from getwork.work_requested q
  where q.task_id between $1 and $1 and q.state = 'pending' and q.id > $2
    and q.linger_until is not null and q.look_after > (select clock_timestamp())
  order by q.task_id, q.id
  offset %d
  limit 1), 9223372036854775807)`

	// mustRead are the ids, above one, of all others. Two indexes have them, however many linger; "+ 0" keeps the second from being read
	// in the order of ids, and with two bounds PostgreSQL expects few rows there, not a third of all.
	mustRead = `
  select q.id
  from getwork.work_requested q
  where q.task_id = $1 and q.state = 'pending' and (q.look_after is null or q.linger_until is null) and q.id > %[1]s
  union all
  select q.id
  from getwork.work_requested q
  where q.task_id = $1 and q.state = 'pending' and q.look_after > '-infinity' and q.look_after <= (select clock_timestamp()) and q.id + 0 > %[1]s`

	// First come first. The rows are locked: a later cancel finds them answered, and a request cancelled earlier is not in the list.
	locked = `
order by id
for update`

	// Up to the next of those who linger, including requests that came during the query. The rows are compared as a whole, because with
	// a condition on the id alone PostgreSQL may read all requests that there ever were by the primary key.
	selectWaiting = `
select ` + waiterColumns + `
from getwork.work_requested r
where task_id = $1 and state = 'pending' and (task_id, id) > ($1, $2) and (task_id, id) < ($1, ` + nextLingering + `)` + locked

	selectAllWaiting = `
select ` + waiterColumns + `
from getwork.work_requested r
where task_id = $1 and state = 'pending'` + locked
)

var (
	// It comes before selectWaiting: if one of those who linger ends between the two, the second reads farther, and leaves nobody out.
	selectNext = `
select l.id, exists (` + fmt.Sprintf(mustRead, "l.id") + `)
from (select ` + nextLingering + ` as id offset 0) l`

	// Those behind $2 who must be answered, though nothing is left to give.
	selectMustRead = `
select ` + waiterColumns + `
from getwork.work_requested r
where id = any (array(` + fmt.Sprintf(mustRead, "(select $2::bigint)") + `)) and state = 'pending'` + locked
)

func scanWaiter(row pgx.CollectableRow) (w waiter, err error) { return scanWaiterWith(row) }

// scanWaiterWith reads a row of waiterColumns, and of others behind them.
func scanWaiterWith(row pgx.CollectableRow, also ...any) (w waiter, err error) {
	var waited int64
	err = row.Scan(append([]any{&w.id, &w.holder.User, &w.holder.Instance, &w.wanted, &w.lingers, &w.groups, &w.lease, &w.unread, &w.due,
		&w.credential, &w.validUntil, &w.invalid, &waited, &w.program}, also...)...)
	w.waited = time.Duration(waited) * time.Microsecond
	return w, err
}

// queue adds the statements that read the next chunk of the line, behind the id after.
func (l *line) queue(r *round, batch *pgx.Batch, after int64) {
	switch {
	case l.both && l.chunk == whole:
		batch.Queue(r.e.SQL(selectAllOfBoth), r.task, after, r.floor, r.mine)
		return
	case l.both:
		batch.Queue(r.e.SQL(fmt.Sprintf(selectNextOfBoth, l.chunk)), r.task, after, r.floor, r.mine)
		batch.Queue(r.e.SQL(fmt.Sprintf(selectBoth, l.chunk)), r.task, after, r.floor, r.mine)
		return
	case l.chunk == whole:
		batch.Queue(r.e.SQL(selectAllWaiting), r.task)
		return
	}
	batch.Queue(r.e.SQL(fmt.Sprintf(selectNext, l.chunk)), r.task, after)
	batch.Queue(r.e.SQL(fmt.Sprintf(selectWaiting, l.chunk)), r.task, after)
}

// read takes the results of queue.
func (l *line) read(results pgx.BatchResults) (err error) {
	if l.next, l.must = nobody, false; l.chunk != whole {
		err = results.QueryRow().Scan(&l.next, &l.must)
	}
	var rows pgx.Rows
	if err == nil {
		rows, err = results.Query()
	}
	if err == nil {
		l.waiting, err = pgx.CollectRows(rows, l.scan())
	}
	return err
}

func (l *line) scan() pgx.RowToFunc[waiter] {
	if l.both {
		return scanNextWaiter
	}
	return scanWaiter
}

// queueMust adds the statement that reads those behind the id after who must be answered.
func (l *line) queueMust(r *round, batch *pgx.Batch, after int64) {
	if l.both {
		batch.Queue(r.e.SQL(selectMustReadOfBoth), r.task, after, r.floor, r.mine)
		return
	}
	batch.Queue(r.e.SQL(selectMustRead), r.task, after)
}

// readWaiting begins to read who waits, and adds the clicks that this round records. all: it leaves nobody out.
func (r *round) readWaiting(ctx context.Context, all bool) error {
	r.over = nil
	r.keepLocked()
	if r.ahead != nil && r.ahead.unused {
		r.ahead.unused = false
		for _, p := range r.ahead.proofs {
			r.lives(p.credential)
		}
		return r.begin(r.ahead.line, r.ahead.tickets)
	}
	l := line{both: r.state.nexts}
	if all {
		l.chunk = whole
	}
	var tickets []ticket
	var batch pgx.Batch
	l.queue(r, &batch, 0)
	if len(r.clickers) > 0 {
		lines := make([]int64, len(r.clickers))
		for i, h := range r.clickers {
			lines[i] = r.clicks[h][0].line(r.task)
		}
		queueTickets(r, &batch, r.clickers, lines)
		r.ahead.queueKeys(r, &batch)
	}
	results := r.tx.SendBatch(ctx, &batch)
	defer results.Close()
	err := l.read(results)
	if err == nil && len(r.clickers) > 0 {
		tickets, err = readTickets(results)
	}
	if err == nil && len(r.clickers) > 0 {
		err = r.ahead.readKeys(results)
	}
	if err == nil {
		err = results.Close()
	}
	if err != nil {
		return fmt.Errorf("read waiting requests: %w", err)
	}
	return r.begin(l, tickets)
}

// begin takes what was read first.
func (r *round) begin(l line, tickets []ticket) (err error) {
	r.line = l
	if r.clicked, err = r.inline(tickets); err != nil {
		return err
	}
	r.dropInvalid()
	if r.next == nobody {
		r.close()
	}
	return nil
}

// readOn reads more of those who linger if something is left to give, and otherwise all others.
func (r *round) readOn(ctx context.Context, left bool) error {
	// Whoever ended the wait of the next one meanwhile may have made the last read go farther.
	after := r.next - 1
	if n := len(r.waiting); n > 0 {
		after = max(after, r.waiting[n-1].id)
	}
	l := line{chunk: max(firstChunk, 4*r.chunk), both: r.both}
	var batch pgx.Batch
	switch {
	case left:
		l.queue(r, &batch, after)
	case r.must:
		l.queueMust(r, &batch, after)
	default:
		r.close()
		return nil
	}
	results := r.tx.SendBatch(ctx, &batch)
	defer results.Close()
	var err error
	if left {
		err = l.read(results)
	} else {
		l.next = r.next
		var rows pgx.Rows
		if rows, err = results.Query(); err == nil {
			l.waiting, err = pgx.CollectRows(rows, l.scan())
		}
	}
	if err == nil {
		err = results.Close()
	}
	if err != nil {
		return fmt.Errorf("read on who waits: %w", err)
	}
	l.waiting = append(r.waiting, l.waiting...)
	r.line = l
	r.dropInvalid()
	if !left || r.next == nobody {
		r.close()
	}
	return nil
}

// close ends the reading: the clicks come last, since their ids are later than those of all whom the round could see then. A request over
// several tasks may have come while it read on.
func (r *round) close() {
	r.waiting, r.complete = append(r.waiting, r.clicked...), true
	if r.both {
		slices.SortFunc(r.waiting, func(a, b waiter) int { return cmp.Compare(a.id, b.id) })
	}
}

// readMust reads those whom a round has to answer, and nobody else.
func (r *round) readMust(ctx context.Context) error {
	r.over = nil
	r.keepLocked()
	r.both = r.state.nexts
	var batch pgx.Batch
	r.queueMust(r, &batch, 0)
	results := r.tx.SendBatch(ctx, &batch)
	defer results.Close()
	rows, err := results.Query()
	if err == nil {
		r.waiting, err = pgx.CollectRows(rows, r.scan())
	}
	if err == nil {
		err = results.Close()
	}
	if err != nil {
		return fmt.Errorf("read waiting requests: %w", err)
	}
	r.dropInvalid()
	return nil
}

// keepLocked is called before the round begins to read who waits. If it has read them before, it keeps what it has locked: see next.go.
// What it then leaves out it looks for afterwards.
func (r *round) keepLocked() {
	for _, w := range r.waiting {
		if w.click != nil {
			continue
		}
		if r.floor = max(r.floor, w.id); w.next != nil && !slices.Contains(r.mine, w.id) {
			r.mine = append(r.mine, w.id)
		}
	}
	r.freed = r.freed || len(r.mine) > 0
	r.wakes, r.passed = nil, nil
}

// dropInvalid makes the round cancel requests that are past the end of what their users came in with.
func (r *round) dropInvalid() { r.setAside(func(w waiter) bool { return w.invalid }) }
