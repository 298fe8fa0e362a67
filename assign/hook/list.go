package hook

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
)

// Which says which hooks a list has; the zero value: none.
type Which struct {
	Tasks  []string // of these tasks; nil: of all
	Global bool     // those that get the events of all tasks; ignored if Tasks is not nil
	Own    bool     // those of one task
}

const listHooks = `
select h.id, s.name, h.url, h.events, coalesce(h.form, 'getwork'), h.created_at, h.created_by, case when h.former_until > clock_timestamp() then h.former_until end, h.failures,
  case when h.retry_at > clock_timestamp() then h.retry_at end,
  (select count(*) from (select from getwork.hook_event e where e.hook_id = h.id and e.state = 'waiting' limit 1000) e),
  (select count(*) from (select from getwork.hook_event e where e.hook_id = h.id and e.state = 'dead' limit 1000) e)
from getwork.hook h
left join getwork.task_state s on s.task_id = h.task_id
where case when h.task_id is null then $2 else $3 and ($1::text[] is null or s.name = any ($1) and s.deleted_at is null) end
order by h.id`

// List returns hooks, oldest first. Counts of deliveries stop at 1000.
func (g *Registry) List(ctx context.Context, which Which) ([]assign.Webhook, error) {
	rows, err := g.DB.Query(ctx, g.sql(listHooks), which.Tasks, which.Global && which.Tasks == nil, which.Own)
	if err != nil {
		return nil, fmt.Errorf("list web hooks: %w", err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (w assign.Webhook, err error) {
		err = row.Scan(&w.ID, &w.Task, &w.URL, &w.Events, &w.Form, &w.CreatedAt, &w.CreatedBy, &w.FormerUntil, &w.Failures, &w.RetryAt, &w.Waiting, &w.Dead)
		w.CreatedAt, w.FormerUntil, w.RetryAt = w.CreatedAt.UTC(), assign.UTC(w.FormerUntil), assign.UTC(w.RetryAt)
		return w, err
	})
	if err != nil {
		return nil, fmt.Errorf("list web hooks: %w", err)
	}
	return all, nil
}

const listDeliveries = `
select e.id, 'msg_' || replace(e.message::text, '-', ''), e.type, e.item, e.state, e.attempts, e.created_at,
  case when e.state = 'waiting' and isfinite(e.next_at) and greatest(e.next_at, h.retry_at) > clock_timestamp() then greatest(e.next_at, h.retry_at) end,
  e.ended_at, e.status, e.error
from getwork.hook_event e join getwork.hook h on h.id = e.hook_id
where e.hook_id = $1 and ($2 = '' or e.state = $2) and ($3::bigint = 0 or e.id < $3)
order by e.id desc
limit $4`

// DeliveryStates are those of a delivery.
var DeliveryStates = []string{"waiting", "delivered", "dead"}

// Deliveries returns a hook's events, newest first: those in a state, if one is named, with ids below before, if that is not 0.
func (g *Registry) Deliveries(ctx context.Context, id int64, state string, before int64, limit int, may May) ([]assign.Delivery, error) {
	if state != "" && !slices.Contains(DeliveryStates, state) {
		return nil, assign.RefuseField("state", "state is one of %v", DeliveryStates)
	}
	if _, err := g.find(ctx, g.DB, id, may); err != nil {
		return nil, refusalOr(err, "list deliveries")
	}
	rows, err := g.DB.Query(ctx, g.sql(listDeliveries), id, state, before, limit)
	if err != nil {
		return nil, fmt.Errorf("list deliveries: %w", err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (d assign.Delivery, err error) {
		err = row.Scan(&d.ID, &d.Message, &d.Type, &d.Item, &d.State, &d.Attempts, &d.CreatedAt, &d.NextAt, &d.EndedAt, &d.Status, &d.Error)
		d.CreatedAt, d.NextAt, d.EndedAt = d.CreatedAt.UTC(), assign.UTC(d.NextAt), assign.UTC(d.EndedAt)
		return d, err
	})
	if err != nil {
		return nil, fmt.Errorf("list deliveries: %w", err)
	}
	return all, nil
}
