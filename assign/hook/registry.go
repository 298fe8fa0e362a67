package hook

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"getwork/assign"
	"getwork/assign/audit"
	"getwork/assign/pg"
)

// Registry makes, lists and changes hooks. Each change writes a row of the audit in its transaction.
type Registry struct {
	Config
	Audit *audit.Writer // nil: none is written
}

const maxHooks = 100 // in all: every event is compared with each

const (
	// Whoever makes a hook and whoever deletes one wait for each other: otherwise the last might switch the triggers off that
	// the first relies on. Senders only read the table, or update a row for a moment.
	lockHooks = `lock table getwork.hook in share row exclusive mode`

	countHooks = `select count(*) from getwork.hook`
	findTask   = `select task_id from getwork.task_state where name = $1 and deleted_at is null`

	insertHook = `
insert into getwork.hook (task_id, url, events, secret, created_by) values ($1, $2, $3, $4, $5)
returning id, created_at`
)

// Create makes a hook of a task, or of all (n.Task nil), for some events, or all (n.Events nil). The secret is returned once, and
// shown by nothing else. [assign.InUse]: there are too many.
func (g *Registry) Create(ctx context.Context, n assign.NewWebhook, by string) (w assign.Webhook, secret string, err error) {
	if err := checkURL(g.Allow, n.URL); err != nil {
		return w, "", err
	}
	if n.Events == nil {
		n.Events = assign.WebhookEvents
	}
	for _, e := range n.Events {
		if !slices.Contains(assign.WebhookEvents, e) {
			return w, "", assign.RefuseField("events", "events are some of %v", assign.WebhookEvents)
		}
	}
	if n.Events = slices.Compact(slices.Sorted(slices.Values(n.Events))); len(n.Events) == 0 {
		return w, "", assign.RefuseField("events", "name at least one event, or leave events out for all")
	}
	key, secret := newSecret()
	err = g.switching(ctx, func(tx pgx.Tx, wait time.Duration) error {
		w = assign.Webhook{Task: n.Task, URL: n.URL, Events: n.Events, CreatedBy: by}
		if _, err := tx.Exec(ctx, g.sql(lockHooks)); err != nil {
			return err
		}
		var task *int64
		if n.Task != nil {
			if err := tx.QueryRow(ctx, g.sql(findTask), *n.Task).Scan(&task); errors.Is(err, pgx.ErrNoRows) {
				return assign.RefuseField("task", "there is no task %q", *n.Task)
			} else if err != nil {
				return err
			}
		}
		var count int
		if err := tx.QueryRow(ctx, g.sql(countHooks)).Scan(&count); err != nil {
			return err
		}
		if count >= maxHooks {
			return assign.Refuse(assign.InUse, "there are %d web hooks already; delete one first", count)
		}
		if err := tx.QueryRow(ctx, g.sql(insertHook), task, n.URL, n.Events, key, by).Scan(&w.ID, &w.CreatedAt); err != nil {
			return err
		}
		if err := g.switchTriggers(ctx, tx, wait); err != nil {
			return err
		}
		return g.audit(ctx, tx, "webhook.create", w.ID, n.Task, map[string]any{"host": hostOf(n.URL), "events": n.Events})
	})
	w.CreatedAt = w.CreatedAt.UTC()
	return w, secret, refusalOr(err, "make a web hook")
}

// To switch the triggers, the table of work must be locked against writers. While that lock waits for one writer, all later ones,
// and so all clicks, wait behind it. So it waits briefly, and is tried again a little later. An automatic vacuum of the table
// only gives way to whoever waits longer than deadlock_timeout, 1 s by default; the last try does.
const (
	switchWithin = 5 * time.Second
	switchWait   = 100 * time.Millisecond
	switchRest   = 400 * time.Millisecond
	switchLast   = 1500 * time.Millisecond
)

// switching runs f in a transaction, again if a lock could not be had within wait.
func (g *Registry) switching(ctx context.Context, f func(tx pgx.Tx, wait time.Duration) error) error {
	wait := switchWait
	for last := time.Now().Add(switchWithin); ; {
		err := pg.Transact(ctx, g.DB, func(tx pgx.Tx) error { return f(tx, wait) })
		var failed *pgconn.PgError
		if !errors.As(err, &failed) || failed.Code != "55P03" || wait == switchLast {
			return err
		}
		if time.Now().After(last) {
			wait = switchLast
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(switchRest + rand.N(switchRest)):
		}
	}
}

// switchTriggers switches the triggers of work on or off, as there are hooks now. The caller holds the lock of lockHooks. The lock
// time-out holds for the rest of the transaction, the audit's lock included; switching tries again after either.
func (g *Registry) switchTriggers(ctx context.Context, tx pgx.Tx, wait time.Duration) error {
	if _, err := tx.Exec(ctx, fmt.Sprintf(`set local lock_timeout = %d`, wait.Milliseconds())); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, g.sql(`select getwork.switch_hooks()`))
	return err
}

func (g *Registry) audit(ctx context.Context, tx pgx.Tx, act string, id int64, task *string, detail map[string]any) error {
	if g.Audit == nil {
		return nil
	}
	if detail == nil {
		detail = map[string]any{}
	}
	detail["webhook"] = id
	object := ""
	if task != nil {
		object = *task
	}
	return g.Audit.Write(ctx, tx, audit.Act{Act: act, Object: object, Detail: detail})
}

// hostOf is what the audit has of a URL, whose path may be a secret.
func hostOf(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	return u.Host
}

func refusalOr(err error, doing string) error {
	var refusal *assign.Refusal
	if err == nil || errors.As(err, &refusal) {
		return err
	}
	return fmt.Errorf("%s: %w", doing, err)
}

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

const findHook = `
select s.name, h.task_id is null
from getwork.hook h left join getwork.task_state s on s.task_id = h.task_id
where h.id = $1`

// change finds a hook, asks whether the caller may change it, and does so in one transaction. f may run more than once.
// [assign.NotFound]: there is no such hook.
func (g *Registry) change(ctx context.Context, id int64, act string, may May, f func(pgx.Tx, time.Duration) (detail map[string]any, err error)) error {
	err := g.switching(ctx, func(tx pgx.Tx, wait time.Duration) error {
		if _, err := tx.Exec(ctx, g.sql(lockHooks)); err != nil {
			return err
		}
		task, err := g.find(ctx, tx, id, may)
		if err != nil {
			return err
		}
		detail, err := f(tx, wait)
		if err != nil {
			return err
		}
		return g.audit(ctx, tx, act, id, task, detail)
	})
	return refusalOr(err, act)
}

// May refuses callers who may not do something with a hook. global: it is told of all tasks.
type May func(global bool) error

func (g *Registry) find(ctx context.Context, db interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}, id int64, may May) (task *string, err error) {
	var global bool
	err = db.QueryRow(ctx, g.sql(findHook), id).Scan(&task, &global)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, assign.Refuse(assign.NotFound, "there is no web hook %d; GET /api/v1/webhooks lists them", id)
	}
	if err != nil {
		return nil, err
	}
	return task, may(global)
}

const (
	deleteHook = `delete from getwork.hook where id = $1` // senders remove its events

	rotateHook = `
update getwork.hook
set former_secret = case when $3::bigint > 0 then secret end, secret = $2,
    former_until = case when $3::bigint > 0 then clock_timestamp() + $3::bigint * interval '1 microsecond' end
where id = $1
returning former_until`

	// It goes before all others, at once, even if the hook waits after a failure.
	insertTest = `
with awake as (update getwork.hook set failures = 0, retry_at = null where id = $1)
insert into getwork.hook_event (hook_id, task_id, type, body, next_at)
values ($1, 0, 'webhook.test', json_build_object('type', 'webhook.test', 'timestamp', getwork.json_time(clock_timestamp()), 'data', json_build_object('webhook', $1::bigint::text)), '-infinity')
returning id`

	// The hook is tried again at once, too.
	redriveEvents = `
with awake as (update getwork.hook set failures = 0, retry_at = null where id = $1)
update getwork.hook_event
set state = 'waiting', ended_at = null, attempts = 0, status = null, error = null, since = clock_timestamp(), next_at = clock_timestamp()
where hook_id = $1 and state = 'dead' and ($2::bigint[] is null or id = any ($2))`
)

// Delete deletes a hook. Events that wait for it are not sent any more.
func (g *Registry) Delete(ctx context.Context, id int64, may May) error {
	return g.change(ctx, id, "webhook.delete", may, func(tx pgx.Tx, wait time.Duration) (map[string]any, error) {
		if _, err := tx.Exec(ctx, g.sql(deleteHook), id); err != nil {
			return nil, err
		}
		return nil, g.switchTriggers(ctx, tx, wait)
	})
}

// KeepMost is how long a former secret may go on signing.
const KeepMost = 7 * 24 * time.Hour

// Rotate gives a hook another secret, which is returned once. The former one signs, too, for as long as keep.
func (g *Registry) Rotate(ctx context.Context, id int64, keep time.Duration, may May) (secret string, formerUntil *time.Time, err error) {
	if keep < 0 || keep > KeepMost {
		return "", nil, assign.RefuseField("keep", `keep is a duration from "0s" to %q`, assign.Duration(KeepMost))
	}
	key, secret := newSecret()
	err = g.change(ctx, id, "webhook.rotate", may, func(tx pgx.Tx, _ time.Duration) (map[string]any, error) {
		return map[string]any{"keep": assign.Duration(keep)}, tx.QueryRow(ctx, g.sql(rotateHook), id, key, keep.Microseconds()).Scan(&formerUntil)
	})
	return secret, assign.UTC(formerUntil), err
}

// Test has a hook told of a test, and returns the delivery's id.
func (g *Registry) Test(ctx context.Context, id int64, may May) (delivery int64, err error) {
	err = g.change(ctx, id, "webhook.test", may, func(tx pgx.Tx, _ time.Duration) (map[string]any, error) {
		return nil, tx.QueryRow(ctx, g.sql(insertTest), id).Scan(&delivery)
	})
	return delivery, err
}

// Redrive sends dead events again: the named ones, or all.
func (g *Registry) Redrive(ctx context.Context, id int64, events []int64, may May) (n int64, err error) {
	err = g.change(ctx, id, "webhook.redrive", may, func(tx pgx.Tx, _ time.Duration) (map[string]any, error) {
		tag, err := tx.Exec(ctx, g.sql(redriveEvents), id, events)
		n = tag.RowsAffected()
		return map[string]any{"named": events != nil, "count": n}, err
	})
	return n, err
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
