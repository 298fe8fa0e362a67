package hook

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
	"getwork/assign/pg"
)

// told is what a hook was last told of, in its column alerts.
type told struct {
	N      int64       `json:"n"` // grows with each change: whoever compares the whole is not misled by one that was undone
	Alerts []toldAlert `json:"alerts"`
}

// toldAlert is an alert that has begun, as its events tell it.
type toldAlert struct {
	ID    int64            `json:"id,omitempty"` // the task's; not told
	Task  string           `json:"task"`
	Kind  assign.AlertKind `json:"kind"`
	Since time.Time        `json:"since"`
	Count int64            `json:"count,omitempty"`
}

func (t *told) has(task int64, kind assign.AlertKind) bool {
	return slices.ContainsFunc(t.Alerts, func(a toldAlert) bool { return a.ID == task && a.Kind == kind })
}

const (
	alertHooks = `select h.id, h.task_id, h.events, h.alerts::text from getwork.hook h where h.events && array['alert.begun', 'alert.ended']`

	// Events of no item, so that those of a task are sent in their order. Nothing is written if somebody has told the hook meanwhile.
	tellHook = `
with told as (
  update getwork.hook set alerts = $3::jsonb where id = $1 and alerts is not distinct from $2::jsonb
  returning id
)
insert into getwork.hook_event (hook_id, task_id, type, body)
select told.id, e.task, e.type, json_build_object('type', e.type, 'timestamp', getwork.json_time(clock_timestamp()), 'data', e.data::json)
from told, unnest($4::bigint[], $5::text[], $6::text[]) with ordinality as e (task, type, data, n)
order by e.n`
)

// alertHook is a hook that wants to be told of alerts.
type alertHook struct {
	id     int64
	task   *int64 // nil: all tasks
	events []string
	stored *string // its column, to be compared when it is changed
	told
}

// tellAlerts writes an event for each hook and each alert that has begun or ended since the hook was last told. Alerts begin and end by
// time alone, so nothing commits when they do: each node looks from time to time. Only one of them tells a hook, since what it was told
// is compared and changed in the transaction of the events. The alerts are read after what it was told: so whoever changes that knows
// at least what the one before knew.
func (s *Sender) tellAlerts(ctx context.Context) error {
	if s.Alerts == nil {
		return nil
	}
	rows, err := s.DB.Query(ctx, s.sql(alertHooks))
	if err != nil {
		return fmt.Errorf("look for web hooks that are told of alerts: %w", err)
	}
	hooks, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (h alertHook, err error) {
		if err = row.Scan(&h.id, &h.task, &h.events, &h.stored); err == nil && h.stored != nil {
			err = json.Unmarshal([]byte(*h.stored), &h.told)
		}
		return h, err
	})
	if err != nil {
		return fmt.Errorf("look for web hooks that are told of alerts: %w", err)
	}
	if len(hooks) == 0 {
		return nil
	}
	alerts, err := s.Alerts(ctx)
	if err != nil {
		return err
	}
	for i := range hooks {
		if err := s.tellHook(ctx, &hooks[i], alerts); err != nil {
			return fmt.Errorf("tell a web hook of alerts: %w", err)
		}
	}
	return nil
}

// tellHook writes what a hook has not been told yet.
func (s *Sender) tellHook(ctx context.Context, h *alertHook, alerts []assign.Alert) error {
	var tasks []int64
	var types, data []string
	changed := false
	event := func(kind string, a toldAlert) error {
		changed = true
		if !slices.Contains(h.events, kind) {
			return nil
		}
		id := a.ID
		a.ID = 0
		b, err := json.Marshal(a)
		tasks, types, data = append(tasks, id), append(types, kind), append(data, string(b))
		return err
	}
	now := told{N: h.N + 1, Alerts: []toldAlert{}}
	for _, a := range alerts {
		if h.task != nil && *h.task != a.TaskID {
			continue
		}
		one := toldAlert{ID: a.TaskID, Task: a.Task, Kind: a.Kind, Since: a.Since, Count: a.Count}
		if i := slices.IndexFunc(h.Alerts, func(o toldAlert) bool { return o.ID == one.ID && o.Kind == one.Kind }); i >= 0 {
			one = h.Alerts[i] // its end tells when it began, although the longest wait is another one now
		} else if err := event(assign.AlertBegunEvent, one); err != nil {
			return err
		}
		now.Alerts = append(now.Alerts, one)
	}
	for _, a := range h.Alerts {
		if now.has(a.ID, a.Kind) {
			continue
		}
		a.Count = 0
		if err := event(assign.AlertEndedEvent, a); err != nil {
			return err
		}
	}
	if !changed {
		return nil
	}
	b, err := json.Marshal(now)
	if err != nil {
		return err
	}
	return pg.Transact(ctx, s.DB, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, s.sql(tellHook), h.id, h.stored, string(b), tasks, types, data)
		return err
	})
}
