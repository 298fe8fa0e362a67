package records

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
)

const (
	// LimitsInForce is the last version of the limits over all tasks, as l; no row: there are none.
	LimitsInForce = `(
  select * from (select * from getwork.limits order by version desc limit 1) l
  where num_nonnulls(l.everybody, l.groups, l.people) > 0) l`

	// LimitOf is the limit of the user u; null: none. The columns of u are user_name, groups, as text (null: of somebody who needs none),
	// and program.
	LimitOf = `case
    when l.people ? u.user_name then (l.people->>u.user_name)::integer
    when u.program then null
    when l.groups ?| u.groups::text[] then (
      select case when count(l.groups->>g) = count(*) then max((l.groups->>g)::integer) end
      from unnest(u.groups::text[]) g where l.groups ? g)
    else l.everybody
  end`

	selectLimits = `select version, everybody, groups, people from getwork.limits order by version desc limit 1`
)

// selectRoom reads as a round does.
const selectRoom = `
select (select count(*) from getwork.work w where w.user_name = u.user_name and w.state = 'held'), ` + LimitOf + `
from (select $1::text as user_name, $2::text[] as groups, $3::boolean as program) u
left join ` + LimitsInForce + ` on true`

// Room returns how much somebody holds over all tasks, and their limit; nil: none.
func (rs *Records) Room(ctx context.Context, who assign.Who) (held int, limit *int, err error) {
	groups := who.Groups
	if who.Anything {
		groups = nil
	}
	if err = rs.db.QueryRow(ctx, rs.sql(selectRoom), who.Holder.User, groups, who.Program).Scan(&held, &limit); err != nil {
		err = fmt.Errorf("read how much is held: %w", err)
	}
	return held, limit, err
}

// Limits returns the limits over all tasks, and their version, which is 0 before the first.
func (rs *Records) Limits(ctx context.Context) (l assign.Limits, version int, err error) {
	err = rs.db.QueryRow(ctx, rs.sql(selectLimits)).Scan(&version, &l.Everybody, &l.Groups, &l.People)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return assign.Limits{}, 0, fmt.Errorf("read the limits: %w", err)
	}
	return l, version, nil
}
