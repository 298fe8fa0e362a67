package assign

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// State is where a request stands. ARCHITECTURE.md has the page of states and transitions.
type State string

// The states of a request: pending, and five ways to have ended.
const (
	Pending   State = "pending"
	Assigned  State = "assigned"
	Partial   State = "partial"
	None      State = "none"
	Failed    State = "failed"
	Cancelled State = "cancelled"
)

// Reason says why nothing was handed out.
type Reason string

// The reasons of a request that ended with nothing.
const (
	NoMatch Reason = "no_match" // the query gave nothing, the inbox is empty
	AllHeld Reason = "all_held" // all that there is is held or put off
	Rules   Reason = "rules"    // some of it can be handed out, but none of it to this user
	AtLimit Reason = "at_limit" // the user holds as much of the task as he may
	Paused  Reason = "paused"   // a manager paused the task
)

// Request is one holder's "get work" on one task, as the contract shows it.
type Request struct {
	ID          int64      `json:"id,string"`
	Task        string     `json:"task"`
	User        string     `json:"user"`
	Instance    string     `json:"instance,omitempty"`
	Wanted      int        `json:"wanted"`
	Requested   int        `json:"requested"`
	Assigned    int        `json:"assigned"`
	State       State      `json:"state"`
	Reason      *Reason    `json:"reason"`
	Error       *string    `json:"error"`
	Lease       *Duration  `json:"lease"`
	CreatedAt   time.Time  `json:"created_at"`
	LingerUntil *time.Time `json:"linger_until"`
	CompletedAt *time.Time `json:"completed_at"`
	EtaSeconds  *float64   `json:"eta_seconds"`
	Position    *int64     `json:"position"`
	Work        []Work     `json:"work"`

	Age    time.Duration `json:"-"` // by the database's clock, when it was read
	TaskID int64         `json:"-"`
}

// Holder is who asked.
func (r *Request) Holder() Holder { return Holder{r.User, r.Instance} }

// requestColumns are read by scanRequest; s is task_state, r work_requested.
const requestColumns = `r.id, s.name, r.user_name, r.instance, r.wanted, r.requested, r.assigned, r.state,
  case when r.state <> 'pending' then r.reason end, r.error, (extract(epoch from r.lease) * 1000000)::bigint, r.created_at, r.linger_until, r.completed_at, r.task_id, extract(epoch from clock_timestamp() - r.created_at)::float8`

// scanRequest reads requestColumns, and what follows them into also.
func scanRequest(row pgx.CollectableRow, also ...any) (Request, error) {
	var r Request
	var age float64
	var lease *int64
	into := []any{&r.ID, &r.Task, &r.User, &r.Instance, &r.Wanted, &r.Requested, &r.Assigned, &r.State, &r.Reason, &r.Error,
		&lease, &r.CreatedAt, &r.LingerUntil, &r.CompletedAt, &r.TaskID, &age}
	err := row.Scan(append(into, also...)...)
	r.Lease = ofMicrosOrNil(lease)
	r.CreatedAt = r.CreatedAt.UTC()
	r.LingerUntil, r.CompletedAt = utc(r.LingerUntil), utc(r.CompletedAt)
	r.Age = time.Duration(age * float64(time.Second))
	r.Work = []Work{}
	return r, err
}

// readRequest is scanRequest for those who read no more.
func readRequest(row pgx.CollectableRow) (Request, error) { return scanRequest(row) }

// The position counts those of the task that wait before it. Only here, where one or a few are asked for: for ten
// thousand at once it would be counted ten thousand times.
const selectRequests = `
select ` + requestColumns + `,
  case when r.state = 'pending' then (
    select count(*) + 1 from getwork.work_requested p
    where p.task_id = r.task_id and p.state = 'pending' and p.id < r.id
  ) end
from getwork.work_requested r join getwork.task_state s using (task_id)
where r.id = any($1::bigint[])
order by r.id`

// requests reads requests by id, each with its work, in the order of their ids. By index alone: it never starts
// the heavy query nor waits for it.
func (e *Engine) requests(ctx context.Context, ids []int64) ([]Request, error) {
	rows, err := e.api.Query(ctx, e.SQL(selectRequests), ids)
	if err != nil {
		return nil, fmt.Errorf("read requests: %w", err)
	}
	requests, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (Request, error) {
		var position *int64
		r, err := scanRequest(row, &position)
		r.Position = position
		return r, err
	})
	if err != nil {
		return nil, fmt.Errorf("read requests: %w", err)
	}
	return requests, e.addWork(ctx, requests)
}

const selectWorkOfRequests = `
select ` + workColumns + `, w.request_id
from getwork.work w join getwork.task_state s using (task_id)
where w.request_id = any($1::bigint[])
order by w.request_id, w.rank, w.id`

// addWork gives each request the work that it was answered with.
func (e *Engine) addWork(ctx context.Context, requests []Request) error {
	byID := make(map[int64]*Request, len(requests))
	ids := make([]int64, 0, len(requests))
	for i := range requests {
		if requests[i].Assigned > 0 {
			byID[requests[i].ID] = &requests[i]
			ids = append(ids, requests[i].ID)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	rows, err := e.api.Query(ctx, e.SQL(selectWorkOfRequests), ids)
	if err != nil {
		return fmt.Errorf("read the requests' work: %w", err)
	}
	_, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (struct{}, error) {
		var id int64
		w, err := scanWork(row, &id)
		if r := byID[id]; err == nil && r != nil {
			r.Work = append(r.Work, w)
		}
		return struct{}{}, err
	})
	if err != nil {
		return fmt.Errorf("read the requests' work: %w", err)
	}
	return nil
}

// Request reads one request. It is not-found for everybody but its holder, unless any is set (a manager).
func (e *Engine) Request(ctx context.Context, id int64, by Holder, any bool) (Request, error) {
	found, err := e.requests(ctx, []int64{id})
	if err != nil {
		return Request{}, err
	}
	if len(found) == 0 || !any && found[0].Holder() != by {
		return Request{}, Refuse(NotFound, "no request %d of yours; GET /api/v1/pipeline lists those that wait", id)
	}
	return found[0], nil
}

const cancelRequest = `
update getwork.work_requested
set state = 'cancelled', requested = 0, reason = null, completed_at = clock_timestamp()
where id = $1 and state = 'pending'`

// Cancel ends a pending request with nothing; repeating it changes nothing. A round that has read the request
// holds its row until it commits, so that exactly one of the two ends it: [NotPending] says that the round did.
func (e *Engine) Cancel(ctx context.Context, id int64, by Holder, any bool) (Request, error) {
	r, err := e.Request(ctx, id, by, any)
	if err != nil {
		return Request{}, err
	}
	tag, err := e.write(ctx, cancelRequest, id)
	if err != nil {
		return Request{}, fmt.Errorf("cancel request: %w", err)
	}
	if tag.RowsAffected() > 0 {
		e.Announce.Request(r.TaskID, id)
		e.poke(r.TaskID)
	}
	r, err = e.Request(ctx, id, by, any)
	if err == nil && r.State != Cancelled {
		err = Refuse(NotPending, "request %d has ended as %s; what it got is in your pipeline", id, r.State)
	}
	return r, err
}
