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
	Global bool     // those that are told of all tasks; ignored if Tasks is not nil
	Own    bool     // those of one task
}

const listHooks = `
select h.id, s.name, h.url, h.events, h.created_at, h.created_by, case when h.former_until > clock_timestamp() then h.former_until end, h.failures, h.retry_at,
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
		err = row.Scan(&w.ID, &w.Task, &w.URL, &w.Events, &w.CreatedAt, &w.CreatedBy, &w.FormerUntil, &w.Failures, &w.RetryAt, &w.Waiting, &w.Dead)
		w.CreatedAt, w.FormerUntil, w.RetryAt = w.CreatedAt.UTC(), assign.UTC(w.FormerUntil), assign.UTC(w.RetryAt)
		return w, err
	})
	if err != nil {
		return nil, fmt.Errorf("list web hooks: %w", err)
	}
	return all, nil
}

const listDeliveries = `
select id, 'msg_' || replace(message::text, '-', ''), type, item, state, attempts, created_at, case when state = 'waiting' and isfinite(next_at) then next_at end, ended_at, status, error
from getwork.hook_event
where hook_id = $1 and ($2 = '' or state = $2) and ($3::bigint = 0 or id < $3)
order by id desc
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
