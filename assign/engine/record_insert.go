package engine

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
)

// quoted escapes what ends a quoted element of an array.
var quoted = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

// groupsOf returns a user's groups as they are recorded, an array as PostgreSQL writes it; nil: they need none. JSON would cost a
// sub-query for each click.
func groupsOf(c assign.Click) *string {
	if c.Anything {
		return nil
	}
	var b strings.Builder
	b.WriteByte('{')
	for i, g := range c.Groups {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteByte('"')
		_, _ = quoted.WriteString(&b, g)
		b.WriteByte('"')
	}
	b.WriteByte('}')
	text := b.String()
	return &text
}

// credentialOf returns a click's credential as it is recorded; nil: none.
func credentialOf(c assign.Click) *string {
	credential := c.Credential // a copy: a pointer into c would allocate all of c
	if credential == "" {
		return nil
	}
	return &credential
}

// withTrace adds the traceparent of a row's click to a column. unnest pads a column that is too short with nulls, so that rows
// without one need nothing behind the last row that has one, and allocate nothing.
func withTrace(column []*string, row int, traceparent string) []*string {
	if traceparent == "" {
		return column
	}
	for len(column) < row {
		column = append(column, nil)
	}
	recorded := traceparent // a copy: a pointer to the parameter would allocate it where there is none to record, too
	return append(column, &recorded)
}

// It needs no assign lock, so the settings may be a moment old: requests of a task that is deleted meanwhile are cancelled later (see
// endDeleted). If another transaction is inserting the same holder, the statement waits for its end. After a commit the row is
// left out, and selectRecorded finds the other one.
//
// Sorted by holder, like every insert of a batch. "+ 0" and "limit" make PostgreSQL look each holder up by the index of
// holders, since there may be few clicks and thousands of waiting requests.
const insertRequests = `
insert into getwork.work_requested (task_id, user_name, instance, wanted, requested, state, reason, error, created_at,
  linger_until, completed_at, lease, groups, credential, valid_until, traceparent)
select s.task_id, c.user_name, c.instance, c.wanted,
  case when c.ends is null then c.wanted else 0 end,
  case when c.ends is null then 'pending' when c.ends = 'failed' then 'failed' else 'none' end,
  nullif(c.ends, 'failed'),
  case when c.ends = 'failed' then s.last_error end,
  c.at,
  case when c.linger > 0 then c.at + c.linger * interval '1 microsecond' end,
  case when c.ends is not null then c.at end,
  case when v.lease is null then c.lease * interval '1 microsecond' end,
  c.groups::text[], c.credential, c.valid_until, c.traceparent
from getwork.task_state s
join getwork.task_version v on v.task_id = s.task_id and v.version = s.version
cross join lateral (
  select u.*, clock_timestamp() as at, case
      when s.paused and u.linger = 0 then 'paused'
      when v.max_open is not null and v.max_open <= (
        select count(*) from getwork.work w where w.task_id = s.task_id and w.user_name = u.user_name and w.state = 'held') then 'at_limit'
      when u.linger > 0 then null
      when s.failed_until > clock_timestamp() and (v.recheck is not null or not coalesce(s.fresh_until > clock_timestamp(), false)) then 'failed'
    end as ends
  from unnest($2::text[], $3::text[], $4::integer[], $5::bigint[], $6::bigint[], $7::text[], $8::text[], $9::timestamptz[],
    $10::text[]) as u (user_name, instance, wanted, linger, lease, groups, credential, valid_until, traceparent)
) c
where s.task_id = $1 and s.deleted_at is null
  and case when c.credential is null then true else coalesce(c.valid_until > clock_timestamp(), true) and c.credential not in (select e from getwork.ended_among($8) e) end
  and (
    select true from getwork.work_requested p
    where p.task_id + 0 = s.task_id and p.user_name = c.user_name and p.instance = c.instance and p.state = 'pending' limit 1) is null
order by c.user_name, c.instance
on conflict (task_id, user_name, instance) where state = 'pending' do nothing
returning id, user_name, instance, state`

// insertClicks records the batch's clicks. A holder who has a pending request, or had one at the moment of the insert, gets
// that one. If a round has ended it before it could be read, the holder is inserted after all.
func (c recorder) insertClicks(ctx context.Context, tx pgx.Tx, task int64, batch []*click) error {
	byHolder := map[assign.Holder][]*click{}
	for _, k := range batch {
		if !k.lost {
			byHolder[k.holder] = append(byHolder[k.holder], k)
		}
	}
	for range attempts {
		if len(byHolder) == 0 {
			return nil
		}
		if err := c.insertHolders(ctx, tx, task, byHolder); err != nil {
			return err
		}
		if err := c.findPending(ctx, tx, task, byHolder); err != nil {
			return err
		}
	}
	for _, clicks := range byHolder { // neither inserted nor found
		for _, k := range clicks {
			k.err = assign.Refuse(assign.NotFound, "the task was deleted")
		}
	}
	return nil
}

// insertHolders inserts a request for each holder who has none: what [standing] says for their clicks.
func (c recorder) insertHolders(ctx context.Context, tx pgx.Tx, task int64, byHolder map[assign.Holder][]*click) error {
	var users, instances []string
	var wanted []int32
	var lingers []int64
	var leases []*int64
	var groups, credentials, traces []*string
	var untils []*time.Time
	for _, h := range slices.SortedFunc(maps.Keys(byHolder), assign.Holder.Compare) {
		k := standing(byHolder[h])
		users = append(users, h.User)
		instances = append(instances, h.Instance)
		wanted = append(wanted, int32(k.Count))
		lingers = append(lingers, k.Linger.Microseconds())
		leases = append(leases, microseconds(k.Lease))
		groups = append(groups, groupsOf(k))
		credentials = append(credentials, credentialOf(k))
		untils = append(untils, orNull(inMicroseconds(k.ValidUntil)))
		traces = withTrace(traces, len(users)-1, k.Traceparent)
	}
	rows, err := tx.Query(ctx, c.SQL(insertRequests), task, users, instances, wanted, lingers, leases, groups, credentials, untils, traces)
	if err != nil {
		return err
	}
	return takeIDs(rows, byHolder)
}

// takeIDs gives the clicks the ids of their requests, and removes the holders from the map. Only a holder's first click counts as
// inserted.
func takeIDs(rows pgx.Rows, byHolder map[assign.Holder][]*click) error {
	_, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (struct{}, error) {
		var h assign.Holder
		var id int64
		var inserted assign.State
		err := row.Scan(&id, &h.User, &h.Instance, &inserted)
		for i, k := range byHolder[h] {
			k.id = id
			if i == 0 {
				k.inserted = inserted
			}
		}
		delete(byHolder, h)
		return struct{}{}, err
	})
	return err
}

const selectDeleted = `select deleted_at is not null from getwork.task_state where task_id = $1`

// A statement after the insert's, so that it sees the requests with which the insert collided.
const selectRecorded = `
select p.id, c.user_name, c.instance, coalesce(p.credential, ''), p.valid_until,
  case when c.credential is null then false else c.credential in (select e from getwork.ended_among($4) e) end
from unnest($2::text[], $3::text[], $4::text[]) as c (user_name, instance, credential)
join getwork.work_requested p on p.task_id = $1 and p.user_name = c.user_name and p.instance = c.instance and p.state = 'pending'`

// findPending gives the clicks the ids of their holders' waiting requests, and removes the holders from the map. errSettle: one
// of those requests must stand on something else from now on, or a click was not recorded since its credential has ended.
func (c recorder) findPending(ctx context.Context, tx pgx.Tx, task int64, byHolder map[assign.Holder][]*click) error {
	if len(byHolder) == 0 {
		return nil
	}
	var users, instances []string
	var credentials []*string
	for h, clicks := range byHolder {
		users, instances, credentials = append(users, h.User), append(instances, h.Instance), append(credentials, credentialOf(standing(clicks)))
	}
	rows, err := tx.Query(ctx, c.SQL(selectRecorded), task, users, instances, credentials)
	if err != nil {
		return err
	}
	var id int64
	var h assign.Holder
	var credential string
	var until *time.Time
	var ended bool
	if _, err := pgx.ForEachRow(rows, []any{&id, &h.User, &h.Instance, &credential, &until, &ended}, func() error {
		if ended || rebinds(standing(byHolder[h]), credential, until) {
			return errSettle
		}
		for _, k := range byHolder[h] {
			k.id = id
		}
		delete(byHolder, h)
		return nil
	}); err != nil {
		return err
	}
	for _, clicks := range byHolder {
		if standing(clicks).Credential == "" {
			continue
		}
		var deleted bool // then nobody is inserted, whatever they come in with
		if err := tx.QueryRow(ctx, c.SQL(selectDeleted), task).Scan(&deleted); err != nil || deleted {
			return err
		}
		return errSettle
	}
	return nil
}

// maxWaiting is how many requests of one user may wait before no further instance of their programs gets one. A client may name as
// many instances as it likes, and each round reads and locks all requests that wait for its task.
const maxWaiting = 5000

// selectCrowding returns the numbers of those clicks that would add a request to maxWaiting or more of the same user: their instance
// has no request that waits for the task, whose name is $1, and they repeat no call.
var selectCrowding = fmt.Sprintf(`
select c.n
from (select distinct user_name from unnest($2::text[]) u (user_name)) u
join lateral (
  select count(*) as n from (select from getwork.work_requested p where p.user_name = u.user_name and p.state = 'pending' limit %[1]d) p
) waiting on waiting.n >= %[1]d
join unnest($2::text[], $3::text[], $4::text[]) with ordinality c (user_name, instance, key, n) on c.user_name = u.user_name
left join getwork.task_state s on s.name = $1 and s.deleted_at is null
where not exists (
  select from getwork.work_requested p
  where p.user_name = c.user_name and p.instance = c.instance and p.task_id + 0 = s.task_id and p.state = 'pending')
and not exists (
  select from getwork.idempotency_key k
  where k.task_id = s.task_id and k.user_name = c.user_name and k.key = c.key and k.created_at > clock_timestamp() - interval '24 hours')`, maxWaiting)

// admitInstances is admit, and also refuses clicks of instances whose user has maxWaiting requests. It asks the database only if a
// click names an instance, and before the clicks are recorded: those that are recorded meanwhile come on top.
func (c recorder) admitInstances(ctx context.Context, name string, batch []*click) (t clicksTask, admitted []*click, err error) {
	t, batch, err = c.admit(ctx, name, batch)
	if err != nil {
		return t, batch, err
	}
	var named []*click
	var users, instances, keys []string
	for _, k := range batch {
		if k.holder.Instance != "" {
			named, users, instances, keys = append(named, k), append(users, k.holder.User), append(instances, k.holder.Instance), append(keys, k.Key)
		} else {
			admitted = append(admitted, k)
		}
	}
	if len(named) == 0 {
		return t, batch, nil
	}
	rows, err := c.api.Query(ctx, c.SQL(selectCrowding), name, users, instances, keys)
	if err != nil {
		return t, batch, fmt.Errorf("count the waiting requests: %w", err)
	}
	var n int
	if _, err := pgx.ForEachRow(rows, []any{&n}, func() error {
		named[n-1].err = assign.Refuse(assign.Busy, "you have %d requests waiting; cancel some, or wait until they are answered", maxWaiting)
		return nil
	}); err != nil {
		return t, batch, fmt.Errorf("count the waiting requests: %w", err)
	}
	for _, k := range named {
		if k.err == nil {
			admitted = append(admitted, k)
		}
	}
	return t, admitted, nil
}
