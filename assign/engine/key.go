package engine

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
	"getwork/assign/pg"
)

const (
	// An expired key is taken over. A key that another transaction is recording makes the statement wait.
	claimKeys = `
insert into getwork.idempotency_key as k (task_id, user_name, key, body)
select $1, c.user_name, c.key, c.body
from unnest($2::text[], $3::text[], $4::text[]) as c (user_name, key, body)
order by c.user_name, c.key
on conflict (task_id, user_name, key) do update
  set body = excluded.body, request_id = null, created_at = clock_timestamp()
  where k.created_at < clock_timestamp() - interval '24 hours'
returning user_name, key`

	selectKeys = `
select k.user_name, k.key, k.body, k.request_id
from unnest($2::text[], $3::text[]) as c (user_name, key)
join getwork.idempotency_key k on k.task_id = $1 and k.user_name = c.user_name and k.key = c.key`

	selectRepeated = `
select k.user_name, k.key
from unnest($2::text[], $3::text[]) as c (user_name, key)
join getwork.idempotency_key k on k.task_id = $1 and k.user_name = c.user_name and k.key = c.key
where k.created_at > clock_timestamp() - interval '24 hours'`

	bindKeys = `
update getwork.idempotency_key k
set request_id = c.request_id
from unnest($2::text[], $3::text[], $4::bigint[]) as c (user_name, key, request_id)
where k.task_id = $1 and k.user_name = c.user_name and k.key = c.key`
)

type keyOf struct{ user, key string }

// keys are the Idempotency-Keys of some clicks. They are written before anything is recorded for the clicks. So of two clicks
// with one key only one is recorded, whatever nodes they came to. The other is answered with the same request.
type keys struct {
	clicks               map[keyOf][]*click
	users, names, bodies []string
	won                  map[keyOf]bool // the keys that were not used before; nil: not known yet
}

// keysOf returns the clicks' keys; nil: they have none.
func keysOf(batch []*click) *keys {
	var ks *keys
	for _, k := range batch {
		if k.Key == "" {
			continue
		}
		if ks == nil {
			ks = &keys{clicks: map[keyOf][]*click{}}
		}
		id := keyOf{k.holder.User, k.Key}
		if ks.clicks[id] == nil {
			ks.users, ks.names, ks.bodies = append(ks.users, id.user), append(ks.names, id.key), append(ks.bodies, bodyOf(k.Click))
		}
		ks.clicks[id] = append(ks.clicks[id], k)
	}
	return ks
}

// unread reports whether the keys were not written yet.
func (ks *keys) unread() bool { return ks != nil && ks.won == nil }

func (ks *keys) queue(e *Engine, batch *pgx.Batch, task int64) {
	batch.Queue(e.SQL(claimKeys), task, ks.users, ks.names, ks.bodies)
}

func (ks *keys) read(rows pgx.Rows) error {
	ks.won = map[keyOf]bool{}
	if _, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (id keyOf, err error) {
		err = row.Scan(&id.user, &id.key)
		ks.won[id] = true
		return id, err
	}); err != nil {
		return fmt.Errorf("claim idempotency keys: %w", err)
	}
	return nil
}

// claimKeys answers clicks whose keys belong to earlier requests, or to another click of the batch. ahead: the keys were
// written together with the lock.
func (c recorder) claimKeys(ctx context.Context, tx pgx.Tx, task int64, batch []*click, ahead *prefetch) error {
	var ks *keys
	if ahead != nil {
		ks = ahead.keys
	} else {
		ks = keysOf(batch)
	}
	if ks == nil {
		return nil
	}
	if ks.unread() {
		rows, err := tx.Query(ctx, c.SQL(claimKeys), task, ks.users, ks.names, ks.bodies)
		if err == nil {
			err = ks.read(rows)
		}
		if err != nil {
			return fmt.Errorf("claim idempotency keys: %w", err)
		}
	}
	for id, clicks := range ks.clicks {
		if ks.won[id] { // other clicks of this batch with the same key follow the first
			for _, k := range clicks[1:] {
				k.follow(bodyOf(clicks[0].Click), 0)
			}
		}
	}
	if len(ks.won) == len(ks.clicks) {
		return nil
	}
	return c.answerKeys(ctx, tx, task, ks.clicks, ks.won)
}

// follow answers a click with the request that its key got before, or refuses it.
func (k *click) follow(body string, id int64) {
	k.lost, k.id = true, id
	if body != bodyOf(k.Click) {
		k.err = assign.Refuse(assign.KeyReused, "this Idempotency-Key was used with another body (%s); use a new key for a new request", body)
	}
}

// answerKeys answers clicks whose keys belong to requests of earlier transactions. Those have committed: claimKeys has waited for
// them, and this statement, a later one, sees the requests that they bound.
func (c recorder) answerKeys(ctx context.Context, tx pgx.Tx, task int64, byKey map[keyOf][]*click, won map[keyOf]bool) error {
	var users, keys []string
	for id := range byKey {
		if !won[id] {
			users, keys = append(users, id.user), append(keys, id.key)
		}
	}
	rows, err := tx.Query(ctx, c.SQL(selectKeys), task, users, keys)
	if err != nil {
		return fmt.Errorf("read idempotency keys: %w", err)
	}
	_, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (struct{}, error) {
		var id keyOf
		var body string
		var request int64
		err := row.Scan(&id.user, &id.key, &body, &request)
		for _, k := range byKey[id] {
			k.follow(body, request)
		}
		return struct{}{}, err
	})
	if err != nil {
		return fmt.Errorf("read idempotency keys: %w", err)
	}
	return nil
}

// admitRepeats admits clicks that ask for too much but repeat an earlier click: max_request was lowered meanwhile, and they are
// answered with the earlier click's request all the same.
func (c recorder) admitRepeats(ctx context.Context, task int64, batch []*click) error {
	var refused []*click
	for _, k := range batch {
		if k.Key != "" && assign.IsRefusal(k.err, assign.Invalid) && k.Check(k.Count) == nil {
			refused = append(refused, k)
		}
	}
	ks := keysOf(refused)
	if ks == nil {
		return nil
	}
	rows, err := c.api.Query(ctx, c.SQL(selectRepeated), task, ks.users, ks.names)
	if err != nil {
		return fmt.Errorf("read idempotency keys: %w", err)
	}
	var id keyOf
	if _, err := pgx.ForEachRow(rows, []any{&id.user, &id.key}, func() error {
		for _, k := range ks.clicks[id] {
			k.err = nil
		}
		return nil
	}); err != nil {
		return fmt.Errorf("read idempotency keys: %w", err)
	}
	return nil
}

// bindKeys records which request answered each key, even if that request was pending before. It adds its statement, if there
// is anything to record.
func (c recorder) bindKeys(wrote *pg.Writes, task int64, batch []*click) {
	var users, keys []string
	var ids []int64
	for _, k := range batch {
		if k.Key != "" && !k.lost && k.err == nil {
			users, keys, ids = append(users, k.holder.User), append(keys, k.Key), append(ids, k.id)
		}
	}
	if len(ids) > 0 {
		wrote.Queue(pg.AnyNumber, c.SQL(bindKeys), task, users, keys, ids)
	}
}

// followKeys answers clicks whose key is that of another click of the batch with that click's request.
func followKeys(batch []*click) {
	var first map[keyOf]int64
	for _, k := range batch {
		if k.Key != "" && !k.lost && k.err == nil {
			if first == nil {
				first = map[keyOf]int64{}
			}
			first[keyOf{k.holder.User, k.Key}] = k.id
		}
	}
	for _, k := range batch {
		if k.lost && k.id == 0 {
			k.id = first[keyOf{k.holder.User, k.Key}]
		}
	}
}
