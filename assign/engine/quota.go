package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"getwork/assign"
	"getwork/assign/plan"
	"getwork/assign/records"
)

// A limit over all tasks binds rounds that share no lock. So users have seats, as items have places: what they get takes their lowest
// free seats, and a unique index refuses what takes a seat a second time. All seats that are given are at most as high as the limit,
// so two rounds that both find the last one free can't both give it. Work that was handed out without a limit has no seat, but counts.

// quota is what a limit over all tasks leaves a user.
type quota struct {
	limit, held int
	taken       []int32 // the seats of what they hold, in order; those that the round gives are left out
	last        int32   // the last seat that it gave
}

// take takes the lowest free seat.
func (q *quota) take() *int32 {
	for q.last++; len(q.taken) > 0 && q.taken[0] == q.last; q.last++ {
		q.taken = q.taken[1:]
	}
	seat := q.last
	return &seat
}

// seatTaken reports whether another round has given a user the same seat.
func seatTaken(err error) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && pgErr.ConstraintName == "work_seat"
}

// counted is a user whose work a round counts. Many programs of one user are one.
type counted struct {
	user, groups string // groups as text; empty: they need none
	program      bool
}

func countedOf(user string, who assign.Click) counted {
	a := counted{user: user, program: who.Program}
	if groups := groupsOf(who); groups != nil {
		a.groups = *groups
	}
	return a
}

// holding is what a user holds.
type holding struct {
	open  int     // of the round's task
	held  int     // of all
	seats []int32 // in order
	limit *int    // over all tasks; nil: none
}

// It looks up one user after another, as the pipelines do: see records.
const countHeld = `
select u.n, h.open, h.held, h.seats, ` + records.LimitOf + `
from unnest($2::text[], $3::text[], $4::boolean[]) with ordinality as u (user_name, groups, program, n)
cross join lateral (
  select count(*) filter (where w.task_id = $1) as open, count(*) as held, array_agg(w.seat) filter (where w.seat is not null) as seats
  from getwork.work w where w.user_name = u.user_name and w.state = 'held') h
left join ` + records.LimitsInForce + ` on true`

// queueHeld asks for what users hold.
func queueHeld(r *round, batch *pgx.Batch, of []counted) {
	users, groups, programs := make([]string, len(of)), make([]*string, len(of)), make([]bool, len(of))
	for i := range of {
		users[i], programs[i] = of[i].user, of[i].program
		if of[i].groups != "" {
			groups[i] = &of[i].groups
		}
	}
	batch.Queue(r.e.SQL(countHeld), r.task, users, groups, programs)
}

// readHeld adds the result of queueHeld to holds.
func readHeld(results pgx.BatchResults, of []counted, holds map[counted]holding) error {
	rows, err := results.Query()
	if err != nil {
		return err
	}
	var n int
	var h holding
	_, err = pgx.ForEachRow(rows, []any{&n, &h.open, &h.held, &h.seats, &h.limit}, func() error {
		slices.Sort(h.seats)
		holds[of[n-1]] = h
		h = holding{}
		return nil
	})
	return err
}

// limit lowers the room of the requests by the task's limit and by those over all tasks, and remembers the quotas.
func (r *round) limit(ctx context.Context, waiting []waiter, requests []plan.Request) error {
	holds := map[counted]holding{}
	if r.ahead != nil {
		maps.Copy(holds, r.ahead.holds)
	}
	of := make([]counted, len(waiting))
	var unknown []counted
	for i, w := range waiting {
		of[i] = countedOf(w.holder.User, assign.Click{Groups: requests[i].Groups, Anything: requests[i].Anything, Program: w.program})
		if _, known := holds[of[i]]; !known {
			holds[of[i]], unknown = holding{}, append(unknown, of[i])
		}
	}
	if len(unknown) > 0 {
		var batch pgx.Batch
		queueHeld(r, &batch, unknown)
		results := r.tx.SendBatch(ctx, &batch)
		defer results.Close()
		err := readHeld(results, unknown, holds)
		if err == nil {
			err = results.Close()
		}
		if err != nil {
			return fmt.Errorf("count what is held: %w", err)
		}
	}
	r.quotas = map[string]*quota{}
	for i := range requests {
		h := holds[of[i]]
		if r.state.MaxOpen != nil {
			requests[i].Limit(*r.state.MaxOpen-h.open, plan.AtLimit)
		}
		if h.limit != nil {
			requests[i].Limit(*h.limit-h.held, plan.AtLimit)
			r.quotas[of[i].user] = &quota{limit: *h.limit, held: h.held, taken: h.seats}
		}
	}
	return nil
}
