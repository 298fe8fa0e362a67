package engine

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
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

	bindKeys = `
update getwork.idempotency_key k
set request_id = c.request_id
from unnest($2::text[], $3::text[], $4::bigint[]) as c (user_name, key, request_id)
where k.task_id = $1 and k.user_name = c.user_name and k.key = c.key`
)

type keyOf struct{ user, key string }

// claimKeys writes the batch's keys before anything is recorded for them. So of two clicks with one key only one is recorded,
// whatever nodes they came to. The other is answered with the same request.
func (c recorder) claimKeys(ctx context.Context, tx pgx.Tx, task int64, batch []*click) error {
	byKey := map[keyOf][]*click{}
	var users, keys, bodies []string
	for _, k := range batch {
		if k.Key == "" {
			continue
		}
		id := keyOf{k.holder.User, k.Key}
		if byKey[id] == nil {
			users, keys, bodies = append(users, id.user), append(keys, id.key), append(bodies, bodyOf(k.Click))
		}
		byKey[id] = append(byKey[id], k)
	}
	if len(byKey) == 0 {
		return nil
	}
	rows, err := tx.Query(ctx, c.SQL(claimKeys), task, users, keys, bodies)
	if err != nil {
		return fmt.Errorf("claim idempotency keys: %w", err)
	}
	won := map[keyOf]bool{}
	if _, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (id keyOf, err error) {
		err = row.Scan(&id.user, &id.key)
		won[id] = true
		return id, err
	}); err != nil {
		return fmt.Errorf("claim idempotency keys: %w", err)
	}
	for id, clicks := range byKey {
		if won[id] { // other clicks of this batch with the same key follow the first
			for _, k := range clicks[1:] {
				k.follow(bodyOf(clicks[0].Click), 0)
			}
		}
	}
	if len(won) == len(byKey) {
		return nil
	}
	return c.answerKeys(ctx, tx, task, byKey, won)
}

// follow answers a click with the request that its key got before, or refuses it.
func (k *click) follow(body string, id int64) {
	k.lost, k.id = true, id
	if body != bodyOf(k.Click) {
		k.err = assign.Refuse(assign.KeyReused, "this Idempotency-Key was used with another body (%s); use a new key for a new request", body)
	}
}

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

// bindKeys records which request answered each key, even if that request was pending before.
func (c recorder) bindKeys(ctx context.Context, tx pgx.Tx, task int64, batch []*click) error {
	var users, keys []string
	var ids []int64
	first := map[keyOf]int64{}
	for _, k := range batch {
		if k.Key == "" || k.lost || k.err != nil {
			continue
		}
		users, keys, ids = append(users, k.holder.User), append(keys, k.Key), append(ids, k.id)
		first[keyOf{k.holder.User, k.Key}] = k.id
	}
	for _, k := range batch {
		if k.lost && k.id == 0 {
			k.id = first[keyOf{k.holder.User, k.Key}]
		}
	}
	if len(ids) == 0 {
		return nil
	}
	if _, err := tx.Exec(ctx, c.SQL(bindKeys), task, users, keys, ids); err != nil {
		return fmt.Errorf("record idempotency keys: %w", err)
	}
	return nil
}
