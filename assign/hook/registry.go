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
	// the first relies on. The results of all hooks wait, too, so nothing that takes long may be done under this lock.
	lockHooks = `lock table getwork.hook in share row exclusive mode`

	countHooks = `select count(*) from getwork.hook`
	findTask   = `select task_id from getwork.task_state where name = $1 and deleted_at is null`

	insertHook = `
insert into getwork.hook (task_id, url, events, secret, created_by, form) values ($1, $2, $3, $4, $5, nullif($6, 'getwork'))
returning id, created_at`
)

// Create makes a hook of a task, or of all (n.Task nil), for some events, or all (n.Events nil; in the form of a chat, those of alerts). The secret is returned once, and
// shown by nothing else. [assign.InUse]: there are too many.
func (g *Registry) Create(ctx context.Context, n assign.NewWebhook, by string) (w assign.Webhook, secret string, err error) {
	if err := checkURL(g.Allow, n.URL); err != nil {
		return w, "", err
	}
	if n.Form == "" {
		n.Form = assign.GetworkForm
	}
	if !slices.Contains(assign.WebhookForms, n.Form) {
		return w, "", assign.RefuseField("form", "form is one of %v", assign.WebhookForms)
	}
	if n.Events == nil {
		n.Events = assign.WebhookEvents
		if n.Form != assign.GetworkForm {
			n.Events = []string{assign.AlertBegunEvent, assign.AlertEndedEvent}
		}
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
		w = assign.Webhook{Task: n.Task, URL: n.URL, Events: n.Events, Form: n.Form, CreatedBy: by}
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
		if err := tx.QueryRow(ctx, g.sql(insertHook), task, n.URL, n.Events, key, by, n.Form).Scan(&w.ID, &w.CreatedAt); err != nil {
			return err
		}
		if err := g.switchTriggers(ctx, tx, wait); err != nil {
			return err
		}
		return g.audit(ctx, tx, "webhook.create", w.ID, n.Task, map[string]any{"host": hostOf(n.URL), "events": n.Events, "form": n.Form})
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

const findHook = `
select s.name, h.task_id is null
from getwork.hook h left join getwork.task_state s on s.task_id = h.task_id
where h.id = $1`

// change finds a hook, asks whether the caller may change it, and does so in one transaction. f may run more than once. It begins with
// an update of the hook's row, which is the lock, and returns [pgx.ErrNoRows] if somebody has deleted the hook meanwhile. A select for
// update before it could deadlock with who deletes the hook: the update waits for the lock of lockHooks.
// [assign.NotFound]: there is no such hook.
func (g *Registry) change(ctx context.Context, id int64, act string, may May, f func(pgx.Tx) (detail map[string]any, err error)) error {
	err := pg.Transact(ctx, g.DB, func(tx pgx.Tx) error { return g.changeIn(ctx, tx, id, act, may, f) })
	return refusalOr(err, act)
}

func (g *Registry) changeIn(ctx context.Context, tx pgx.Tx, id int64, act string, may May, f func(pgx.Tx) (detail map[string]any, err error)) error {
	task, err := g.find(ctx, tx, id, may)
	if err != nil {
		return err
	}
	detail, err := f(tx)
	if errors.Is(err, pgx.ErrNoRows) {
		return noHook(id)
	}
	if err != nil {
		return err
	}
	return g.audit(ctx, tx, act, id, task, detail)
}

func noHook(id int64) error {
	return assign.Refuse(assign.NotFound, "there is no web hook %d; GET /api/v1/webhooks lists them", id)
}

// May refuses callers who may not do something with a hook. global: it gets the events of all tasks.
type May func(global bool) error

func (g *Registry) find(ctx context.Context, db interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}, id int64, may May) (task *string, err error) {
	var global bool
	err = db.QueryRow(ctx, g.sql(findHook), id).Scan(&task, &global)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, noHook(id)
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
with awake as (update getwork.hook set failures = 0, retry_at = null where id = $1 returning id)
insert into getwork.hook_event (hook_id, task_id, type, body, next_at)
select id, 0, 'webhook.test', json_build_object('type', 'webhook.test', 'timestamp', getwork.json_time(clock_timestamp()), 'data', json_build_object('webhook', id::text)), '-infinity'
from awake
returning id`

	wakeHook = `update getwork.hook set failures = 0, retry_at = null where id = $1 returning id`

	// A sender may be writing how the last attempt at a dead event ended. Whoever waited for it could deadlock: it then updates the
	// hook's row.
	redriveEvents = `
with dead as materialized (
  select id from getwork.hook_event
  where hook_id = $1 and state = 'dead' and ($2::bigint[] is null or id = any ($2)) and id > $3
  order by id
  limit $4
  for update skip locked
), again as (
  update getwork.hook_event e
  set state = 'waiting', ended_at = null, attempts = 0, status = null, error = null, since = clock_timestamp(), next_at = clock_timestamp()
  from dead where e.id = dead.id
  returning e.id
)
select count(*), coalesce(max(id), 0) from again`
)

// Delete deletes a hook. Events that wait for it are not sent any more.
func (g *Registry) Delete(ctx context.Context, id int64, may May) error {
	const act = "webhook.delete"
	err := g.switching(ctx, func(tx pgx.Tx, wait time.Duration) error {
		if _, err := tx.Exec(ctx, g.sql(lockHooks)); err != nil {
			return err
		}
		return g.changeIn(ctx, tx, id, act, may, func(tx pgx.Tx) (map[string]any, error) {
			if _, err := tx.Exec(ctx, g.sql(deleteHook), id); err != nil {
				return nil, err
			}
			return nil, g.switchTriggers(ctx, tx, wait)
		})
	})
	return refusalOr(err, act)
}

// KeepMost is how long a former secret may go on signing.
const KeepMost = 7 * 24 * time.Hour

// Rotate gives a hook another secret, which is returned once. The former one signs, too, for as long as keep.
func (g *Registry) Rotate(ctx context.Context, id int64, keep time.Duration, may May) (secret string, formerUntil *time.Time, err error) {
	if keep < 0 || keep > KeepMost {
		return "", nil, assign.RefuseField("keep", `keep is a duration from "0s" to %q`, assign.Duration(KeepMost))
	}
	key, secret := newSecret()
	err = g.change(ctx, id, "webhook.rotate", may, func(tx pgx.Tx) (map[string]any, error) {
		return map[string]any{"keep": assign.Duration(keep)}, tx.QueryRow(ctx, g.sql(rotateHook), id, key, keep.Microseconds()).Scan(&formerUntil)
	})
	return secret, assign.UTC(formerUntil), err
}

// Test sends a hook an event of a test, and returns the delivery's id.
func (g *Registry) Test(ctx context.Context, id int64, may May) (delivery int64, err error) {
	err = g.change(ctx, id, "webhook.test", may, func(tx pgx.Tx) (map[string]any, error) {
		return nil, tx.QueryRow(ctx, g.sql(insertTest), id).Scan(&delivery)
	})
	return delivery, err
}

// redriveReserve is for the answer, and for a batch that waits for the audit: with less time left no batch begins.
const redriveReserve = 5 * time.Second

// Redrive sends dead events again: the named ones, or all. Each batch has a transaction and a row of the audit of its own, and stays if
// the time of ctx is up. If fewer than [assign.RedriveBatch] are returned, none is left, except what somebody was changing just then;
// otherwise the caller repeats the call.
func (g *Registry) Redrive(ctx context.Context, id int64, events []int64, may May) (n int64, err error) {
	for last := int64(0); ; {
		var count, to int64
		err := g.change(ctx, id, "webhook.redrive", may, func(tx pgx.Tx) (map[string]any, error) {
			if n == 0 { // later batches don't try a hook at once that has failed meanwhile
				if err := tx.QueryRow(ctx, g.sql(wakeHook), id).Scan(new(int64)); err != nil {
					return nil, err
				}
			}
			err := tx.QueryRow(ctx, g.sql(redriveEvents), id, events, last, assign.RedriveBatch).Scan(&count, &to)
			return map[string]any{"named": events != nil, "count": count}, err
		})
		if err != nil && (n == 0 || ctx.Err() == nil) {
			return n, err
		}
		n, last = n+count, to
		deadline, ends := ctx.Deadline()
		if err != nil || count < assign.RedriveBatch || ends && time.Until(deadline) < redriveReserve {
			return n, nil
		}
	}
}
