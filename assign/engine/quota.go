package engine

import (
	"context"
	"errors"
	"fmt"

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

// countHeld is countOpen where there are limits over all tasks.
const countHeld = `
select u.n, h.open, h.held, h.seats, ` + records.LimitOf + `
from unnest($2::text[], $3::text[], $4::boolean[]) with ordinality as u (user_name, groups, program, n)
cross join lateral (
  select count(*) filter (where w.task_id = $1) as open, count(*) as held, array_agg(w.seat order by w.seat) filter (where w.seat is not null) as seats
  from getwork.work w where w.user_name = u.user_name and w.state = 'held') h
left join ` + records.LimitsInForce + ` on true`

// limit lowers the room of the requests by the task's limit and by those over all tasks, and remembers the quotas.
func (r *round) limit(ctx context.Context, waiting []waiter, requests []plan.Request) error {
	type asker struct { // many programs of one user are one
		user, groups string
		program      bool
	}
	numbers, of := map[asker]int{}, make([]int, len(waiting))
	var users []string
	var groups []*string
	var programs []bool
	for i, w := range waiting {
		a, in := asker{user: w.holder.User, program: w.program}, groupsOf(assign.Click{Groups: requests[i].Groups, Anything: requests[i].Anything})
		if in != nil {
			a.groups = *in
		}
		n, known := numbers[a]
		if !known {
			n = len(users)
			numbers[a] = n
			users, groups, programs = append(users, a.user), append(groups, in), append(programs, a.program)
		}
		of[i] = n
	}
	rows, err := r.tx.Query(ctx, r.e.SQL(countHeld), r.task, users, groups, programs)
	if err != nil {
		return fmt.Errorf("count what is held: %w", err)
	}
	open, quotas := make([]int, len(users)), make([]*quota, len(users))
	r.quotas = map[string]*quota{}
	var n, here int
	var q quota
	var limit *int
	if _, err := pgx.ForEachRow(rows, []any{&n, &here, &q.held, &q.taken, &limit}, func() error {
		open[n-1] = here
		if limit != nil {
			q.limit = *limit
			bound := q
			quotas[n-1], r.quotas[users[n-1]] = &bound, &bound
		}
		q.taken = nil
		return nil
	}); err != nil {
		return fmt.Errorf("count what is held: %w", err)
	}
	for i := range requests {
		if r.state.MaxOpen != nil {
			requests[i].Limit(*r.state.MaxOpen-open[of[i]], plan.AtLimit)
		}
		if q := quotas[of[i]]; q != nil {
			requests[i].Limit(q.limit-q.held, plan.AtLimit)
		}
	}
	return nil
}
