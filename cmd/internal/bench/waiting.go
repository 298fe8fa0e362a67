package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"
)

// crowdTask is what everybody waits on.
const crowdTask = "crowd"

// room is a crowd that waits for the end of one query.
type room struct {
	*stage
	crowd *crowd
	gate  int64 // the query's last row waits for this advisory lock, which conn holds
}

// enter opens a socket for each of so many users.
func (s *stage) enter(ctx context.Context, users int) (*room, error) {
	c, err := gather(ctx, s.nodes, users)
	if err != nil {
		return nil, err
	}
	return &room{stage: s, crowd: c, gate: rand.Int64N(1 << 31)}, nil
}

const (
	// The query ends when somebody lets its last row pass.
	gatedQuery = `
select item, customer, amount
from getwork.bench_item
where case when item = %d then pg_advisory_xact_lock_shared(%d) is not null else true end
order by item`

	takeGate = `select pg_advisory_lock($1)`
	openGate = `select pg_advisory_unlock($1)`

	atGate = `
select exists (
  select from pg_locks
  where locktype = 'advisory' and classid = 0 and objid = $1::bigint::oid and objsubid = 1 and not granted
    and database = (select oid from pg_database where datname = current_database()))`
)

// wait has everybody click, and returns when the query waits for its last row, and everybody for the query.
func (r *room) wait(ctx context.Context) error {
	users := len(r.crowd.members)
	items := users*wantedEach + users/10 + 1 // a few more than are needed
	if err := r.makeItems(ctx, items); err != nil {
		return err
	}
	if err := r.exec(ctx, takeGate, r.gate); err != nil {
		return fmt.Errorf("hold the query: %w", err)
	}
	if err := r.task(ctx, crowdTask, fmt.Sprintf(gatedQuery, items, r.gate), map[string]any{"max_candidates": items}); err != nil {
		return err
	}
	if err := r.crowd.click(ctx, crowdTask); err != nil {
		return err
	}
	if err := r.awaitQuery(ctx); err != nil {
		return err
	}
	var pending int
	if err := r.conn.QueryRow(ctx, r.sql(countPending), crowdTask).Scan(&pending); err != nil {
		return fmt.Errorf("count who waits: %w", err)
	}
	if pending != users {
		return fmt.Errorf("%d of %d users wait for the query", pending, users)
	}
	return nil
}

// awaitQuery returns when the query has come to its last row.
func (r *room) awaitQuery(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, openWithin)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		var there bool
		if err := r.conn.QueryRow(ctx, atGate, r.gate).Scan(&there); err != nil || there {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("wait until the query has come to its last row: %w", context.Cause(ctx))
		}
	}
}

// pushed is how long it took after the query's last row.
type pushed struct {
	first, half, last time.Duration // until that many users had their items
	written           time.Duration // until the round began to write
	committed         time.Duration // until it was committed; 0: neither is known
	size              int           // of a message, on average
}

const selectRound = `
select finished_at, case when current_setting('track_commit_timestamp')::boolean then pg_xact_commit_timestamp(xmin) end
from getwork.run
order by id desc
limit 1`

// push lets the query end, and waits until everybody was told.
func (r *room) push(ctx context.Context) (p pushed, err error) {
	began := time.Now()
	if err := r.exec(ctx, openGate, r.gate); err != nil {
		return p, fmt.Errorf("let the query end: %w", err)
	}
	if err := r.crowd.served.wait(ctx, r.crowd.broken, servedWithin, "told of their work"); err != nil {
		return p, err
	}
	times := make([]time.Time, len(r.crowd.members))
	for i, m := range r.crowd.members {
		times[i] = m.at
		p.size += len(m.told[0])
	}
	slices.SortFunc(times, time.Time.Compare)
	p.size /= len(times)
	p.first, p.half, p.last = times[0].Sub(began), times[len(times)/2].Sub(began), times[len(times)-1].Sub(began)
	if r.env.ServerPID == 0 {
		return p, nil // its clock is another
	}
	var finished time.Time
	var committed *time.Time
	if err := r.conn.QueryRow(ctx, r.sql(selectRound)).Scan(&finished, &committed); err != nil {
		return p, fmt.Errorf("read when the run was finished: %w", err)
	}
	if committed != nil {
		p.written, p.committed = finished.Sub(began), committed.Sub(began)
	}
	return p, nil
}

// check fails if anybody was told something wrong. It closes the sockets.
func (r *room) check(ctx context.Context) error {
	r.crowd.close()
	answers := make([]told, len(r.crowd.members))
	for i, m := range r.crowd.members {
		var err error
		if answers[i], err = m.answer(); err != nil {
			return err
		}
		if got := answers[i].Request; got.User != m.user {
			return fmt.Errorf("%s was told of the request %d of %s", m.user, got.ID, got.User)
		}
	}
	items, err := checkAnswers(answers)
	if err != nil {
		return err
	}
	return r.stage.check(ctx, crowdTask, items)
}

// checkAnswers checks what everybody was told who waited for one query, and returns the items. There were enough, so the
// n-th request by id must have the n-th three of them: nobody has another's, and who asked earlier has the better ones.
func checkAnswers(answers []told) (items []int64, err error) {
	answers = slices.SortedFunc(slices.Values(answers), func(a, b told) int { return int(a.Request.ID - b.Request.ID) })
	for i, a := range answers {
		r := a.Request
		if r.State != "assigned" || r.Wanted != wantedEach || r.Requested != wantedEach || r.Assigned != wantedEach || len(r.Work) != wantedEach {
			return nil, fmt.Errorf("%s asked for %d items and was told: %+v", r.User, wantedEach, r)
		}
		for _, w := range r.Work {
			n, err := strconv.ParseInt(w.Item, 10, 64)
			if err != nil || w.State != "held" || (n-1)/wantedEach != int64(i) {
				return nil, fmt.Errorf("%s, whose request is number %d, was given %q (%s)", r.User, i+1, w.Item, w.State)
			}
			items = append(items, n)
		}
	}
	return items, nil
}

// waitOnce is one round of what so many users on so many nodes see of a query's end.
func (e *Env) waitOnce(ctx context.Context, users, nodes int) (p pushed, err error) {
	if err := checkFiles(users); err != nil { // before all that takes long
		return p, err
	}
	s, leave, err := e.stage(ctx, nodes)
	if err != nil {
		return p, err
	}
	defer leave()
	r, err := s.enter(ctx, users)
	if err != nil {
		return p, err
	}
	defer r.crowd.close()
	if err := r.wait(ctx); err != nil {
		return p, err
	}
	if p, err = r.push(ctx); err != nil {
		return p, err
	}
	return p, r.check(ctx)
}

// crowdSize is how many users wait.
func (e *Env) crowdSize() int {
	if e.Quick {
		return 1000
	}
	return 10_000
}

// waiting measures how long everybody who waits for a query waits on after its end.
func waiting(ctx context.Context, e *Env) ([]Figure, error) { return waitingOf(ctx, e, e.crowdSize()) }

func waitingOf(ctx context.Context, e *Env, users int) ([]Figure, error) {
	limit := Figure{Key: "waiting_limit", Name: "raw TCP and set-based writes", Unit: "ms"}
	one := Figure{Key: "waiting_1", Name: "End of the query to the last of " + thousands(users) + " waiting users, one node", Unit: "ms", Goal: atMost(3)}
	more := Figure{Key: "waiting_3", Name: "the same on three nodes", Unit: "ms", Goal: atMost(4)}
	var raw, writes Figure
	var parts, partsOfMore phases
	for round := range e.Rounds {
		p, err := e.waitOnce(ctx, users, 1)
		if err != nil {
			return nil, fmt.Errorf("%s waiting users on one node: %w", thousands(users), err)
		}
		wire, err := e.rawPush(ctx, users, p.size)
		if err != nil {
			return nil, err
		}
		wrote, err := e.setWrites(ctx, users)
		if err != nil {
			return nil, fmt.Errorf("set-based writes: %w", err)
		}
		q, err := e.waitOnce(ctx, users, 3)
		if err != nil {
			return nil, fmt.Errorf("%s waiting users on three nodes: %w", thousands(users), err)
		}
		one.Values, more.Values = append(one.Values, millis(p.last)), append(more.Values, millis(q.last))
		raw.Values, writes.Values = append(raw.Values, millis(wire)), append(writes.Values, millis(wrote))
		limit.Values = append(limit.Values, millis(wire+wrote))
		parts, partsOfMore = append(parts, p), append(partsOfMore, q)
		e.log("round %d of %d: the last one after %.0f ms, on three nodes %.0f, raw TCP %.0f, set-based writes %.0f", round+1, e.Rounds, millis(p.last), millis(q.last), millis(wire), millis(wrote))
	}
	limit.Note = fmt.Sprintf("raw TCP %.0f ms (messages of %d bytes, 4 writers), one transaction of set-based SQL %.0f ms", raw.Median(), parts[0].size, writes.Median())
	one.Limit, more.Limit = &limit, &limit
	one.Note, more.Note = parts.note(), partsOfMore.note()
	return []Figure{one, more}, nil
}

// phases tell where the time goes.
type phases []pushed

func (ps phases) note() string {
	median := func(of func(pushed) time.Duration) float64 {
		var f Figure
		for _, p := range ps {
			f.Values = append(f.Values, millis(of(p)))
		}
		return f.Median()
	}
	note := fmt.Sprintf("the first user has his items after %.0f ms, half of them after %.0f",
		median(func(p pushed) time.Duration { return p.first }), median(func(p pushed) time.Duration { return p.half }))
	if ps[0].committed == 0 {
		return note
	}
	return fmt.Sprintf("the round begins to write after %.0f ms, is committed after %.0f; ",
		median(func(p pushed) time.Duration { return p.written }), median(func(p pushed) time.Duration { return p.committed })) + note
}
