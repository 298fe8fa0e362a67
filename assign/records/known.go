package records

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
)

// So many of the last requests are searched for those of one user, and of several: no index finds those that have ended.
const (
	askedLately    = 1_000_000
	askedLatelyAll = 100_000
)

// lastSays: the groups and the role of a user are those of their last request.
const lastSays = `r.id is not null and coalesce(r.created_at > p.seen_at, true) and (p.id is null or left(r.credential, 2) = 'j:' or r.credential is null)`

// selectKnown returns, of each user, whether they have been seen, whether they are blocked, and their groups as far as getwork knows;
// null: they need none; and whether they are a program. A log-in, a refresh and a proxy write the groups to the principal, and a service
// has its own there. A JSON web token and dev identity leave them with the request alone. Whoever held work without asking under dev
// identity has none that are known.
var selectKnown = `
select u.name, p.id is not null or r.id is not null or exists (select from getwork.work w where w.user_name = u.name),
  p.blocked_at is not null is true,
  case
    when ` + lastSays + ` then r.groups
    when p.role = 'manager' then null
    else coalesce(p.groups, '{}')
  end,
  case when ` + lastSays + ` then r.program else p.role = 'agent' end is true
from unnest($1::text[]) u (name)
left join getwork.principal p on p.name = u.name
left join `

// The last request of one user is found as soon as it is reached; those of several in one pass.
var (
	lastOfOne = fmt.Sprintf(`lateral (
  select q.id, q.created_at, q.credential, q.groups, q.program
  from getwork.work_requested q
  where q.user_name = u.name and q.id > (select coalesce(max(id), 0) - %d from getwork.work_requested)
  order by q.id desc
  limit 1
) r on true`, askedLately)

	lastOfEach = fmt.Sprintf(`(
  select distinct on (q.user_name) q.*
  from (select user_name, id, created_at, credential, groups, program from getwork.work_requested order by id desc limit %d) q
  where q.user_name = any($1)
  order by q.user_name, q.id desc
) r on r.user_name = u.name`, askedLatelyAll)
)

// Known is what getwork knows of somebody who gets work without asking for it.
type Known struct {
	Who     assign.Who // with the groups of their last log-in or request
	Seen    bool       // somebody of that name has logged in, asked or held
	Blocked bool
}

// Known returns what is known of users, in their order. Of several it knows fewer past requests than of one.
func (rs *Records) Known(ctx context.Context, users ...string) ([]Known, error) {
	last := lastOfOne
	if len(users) > 1 {
		last = lastOfEach
	}
	rows, err := rs.db.Query(ctx, rs.sql(selectKnown+last), users)
	if err != nil {
		return nil, fmt.Errorf("read what is known of users: %w", err)
	}
	of := make(map[string]Known, len(users))
	var name string
	var k Known
	var groups *[]string
	_, err = pgx.ForEachRow(rows, []any{&name, &k.Seen, &k.Blocked, &groups, &k.Who.Program}, func() error {
		k.Who = assign.Who{Holder: assign.Holder{User: name}, Anything: groups == nil, Program: k.Who.Program}
		if groups != nil {
			k.Who.Groups = *groups
		}
		of[name] = k
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read what is known of users: %w", err)
	}
	known := make([]Known, len(users))
	for i, user := range users {
		known[i] = of[user]
	}
	return known, nil
}

const (
	// Present are at most so many, found among so many of the last requests.
	maxPresent  = 200
	presentFrom = 10_000

	// Those who wait for the task come first, then those with a live channel, then who asked last.
	selectPresent = `
select p.name
from (
  select q.user_name as name, bool_or(q.waits) as waits, max(q.id) as asked
  from (
    (select user_name, true as waits, id from getwork.work_requested where task_id = $1 and state = 'pending' order by id limit $4)
    union all
    select user_name, false, id
    from (select user_name, created_at, id from getwork.work_requested order by id desc limit $4) l
    where created_at > clock_timestamp() - interval '12 hours'
    union all
    select name, false, null from unnest($2::text[]) l (name)
  ) q
  group by q.user_name
) p
order by p.waits desc, p.name = any($2::text[]) desc, p.asked desc nulls last, p.name
limit $3`
)

// Present returns who could be given work of a task, those who are nearest to it first, and at most 200: who waits for it, has a live
// channel, or asked for any work within twelve hours. live are those with a live channel on this node.
func (rs *Records) Present(ctx context.Context, task int64, live []string) ([]string, error) {
	rows, err := rs.db.Query(ctx, rs.sql(selectPresent), task, live, maxPresent, presentFrom)
	if err != nil {
		return nil, fmt.Errorf("read who is here: %w", err)
	}
	users, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("read who is here: %w", err)
	}
	return users, nil
}
