package history

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// Tables are the database's final rows, from one snapshot. Fields are named like columns, whose comments in the schema
// explain them.
type Tables struct {
	Now      time.Time // when they were read, by the database's clock
	Left     time.Time // when the nodes were asked to leave, by the same clock; zero: as they were read
	Tasks    []TaskRow
	Versions []VersionRow
	Requests []RequestRow
	Runs     []RunRow
	Work     []WorkRow
	Items    []ItemRow
	Limits   []LimitsRow  `json:",omitempty"`
	Absences []AbsenceRow `json:",omitempty"`

	Hooks       []HookRow       `json:",omitempty"`
	HookEvents  []HookEventRow  `json:",omitempty"`
	Credentials []CredentialRow `json:",omitempty"`
	Acts        []ActRow        `json:",omitempty"`
}

// TaskRow is a row of task_state.
type TaskRow struct {
	ID      int64  `db:"task_id"`
	Name    string `db:"name"`
	Deleted bool   `db:"deleted"`
	Version int    `db:"version"`
	Paused  bool   `db:"paused"`
}

// VersionRow is a row of task_version.
type VersionRow struct {
	Task        int64    `db:"task_id"`
	Version     int      `db:"version"`
	Name        string   `db:"name"`
	Paused      bool     `db:"paused"`
	Query       *string  `db:"query"` // nil: an inbox
	Slots       int      `db:"slots"`
	MaxOpen     *int     `db:"max_open"`
	MaxAttempts *int     `db:"max_attempts"`
	Conflicts   []int64  `db:"conflicts_with"`
	Groups      []string `db:"groups"`
	OnAway      *string  `db:"on_away"` // nil: keep

	FreshFor time.Duration `db:"fresh_for"`
	StaleFor time.Duration `db:"stale_for"`

	CreatedAt   time.Time `db:"created_at"`
	DoneBy      *int      `db:"done_by" json:",omitempty"` // nil: 1
	Once        bool      `db:"once" json:",omitempty"`
	RequireCode bool      `db:"require_code" json:",omitempty"`
	Codes       []string  `db:"codes" json:",omitempty"`
	Onward      *int64    `db:"onward" json:",omitempty"` // the task to which a share of what is completed goes; nil: none
	Share       *float64  `db:"share" json:",omitempty"`
}

// LimitsRow is a row of limits, over all tasks; the harness gives no limits to groups.
type LimitsRow struct {
	Everybody *int            `db:"everybody"`
	People    map[string]*int `db:"people"`
}

// RequestRow is a row of work_requested.
type RequestRow struct {
	ID          int64      `db:"id"`
	Task        int64      `db:"task_id"`
	User        string     `db:"user_name"`
	Instance    string     `db:"instance"`
	Wanted      int        `db:"wanted"`
	Requested   int        `db:"requested"`
	Assigned    int        `db:"assigned"`
	State       string     `db:"state"`
	Reason      *string    `db:"reason"`
	Error       *string    `db:"error"`
	CreatedAt   time.Time  `db:"created_at"`
	LingerUntil *time.Time `db:"linger_until"`
	CompletedAt *time.Time `db:"completed_at"`
	Round       *int64     `db:"round_id"`
	Run         *int64     `db:"run_id"`
	RankedAt    *time.Time `db:"ranked_at"`
	Stale       bool       `db:"stale"`
	Credential  *string    `db:"credential"`               // a name of CredentialRow; nil: nobody logs in
	Next        bool       `db:"next" json:",omitempty"`   // it was for several tasks
	Groups      []string   `db:"groups" json:",omitempty"` // its user's; nil: they may have anything
}

// RunRow is a row of run.
type RunRow struct {
	ID         int64      `db:"id"`
	Task       int64      `db:"task_id"`
	Node       string     `db:"node"`
	State      string     `db:"state"`
	StartedAt  time.Time  `db:"started_at"`
	FinishedAt *time.Time `db:"finished_at"`
	SeenUntil  *time.Time `db:"seen_until"` // nil: its query ran where the tables are
}

// WorkRow is a row of work.
type WorkRow struct {
	ID             int64          `db:"id"`
	Task           int64          `db:"task_id"`
	Item           string         `db:"item"`
	Slot           int            `db:"slot"`
	Exclusive      *string        `db:"exclusive"`
	User           string         `db:"user_name"`
	Instance       string         `db:"instance"`
	Request        *int64         `db:"request_id"`
	Run            *int64         `db:"run_id"`
	Rank           *int64         `db:"rank"`
	Attempt        int            `db:"attempt"`
	AssignedAt     time.Time      `db:"assigned_at"`
	Lease          *time.Duration `db:"lease"`
	LeaseExpiresAt *time.Time     `db:"lease_expires_at"`
	State          string         `db:"state"`
	Exhausted      bool           `db:"exhausted"`
	ClosedAt       *time.Time     `db:"closed_at"`
	ClosedBy       *string        `db:"closed_by"`
	After          *time.Duration `db:"after"`
	ToOthers       bool           `db:"to_others"`
	AvailableAt    *time.Time     `db:"available_at"`
	RedrivenBy     *string        `db:"redriven_by"`
	Note           *string        `db:"note"`
	Deadline       *time.Time     `db:"deadline"`
	Code           *string        `db:"code" json:",omitempty"`
	Result         *string        `db:"result" json:",omitempty"` // JSON
	LaterUntil     *time.Time     `db:"later_until" json:",omitempty"`
	Needs          []string       `db:"needs" json:",omitempty"` // nil: nothing
	From           *int64         `db:"from_work" json:",omitempty"`
}

// ItemRow is a row of item.
type ItemRow struct {
	ID        int64      `db:"id"`
	Task      int64      `db:"task_id"`
	Item      string     `db:"item"`
	Priority  int        `db:"priority"`
	Slots     *int       `db:"slots"`
	Exclusive *string    `db:"exclusive"`
	PushedAt  time.Time  `db:"pushed_at"`
	PushedBy  string     `db:"pushed_by"`
	DueAt     *time.Time `db:"due_at"`
	Parked    bool       `db:"parked"` // due_at is infinity: held, or never to come back
	DoneAt    *time.Time `db:"done_at"`
	Deadline  *time.Time `db:"deadline"`

	DoneBy      *int     `db:"done_by" json:",omitempty"`      // nil: as its task says
	CompletedBy []string `db:"completed_by" json:",omitempty"` // in that order; nil: one is enough
	From        *int64   `db:"from_work" json:",omitempty"`    // the completed work that it was pushed for
	Needs       []string `db:"needs" json:",omitempty"`
}

// AbsenceRow is a row of absence.
type AbsenceRow struct {
	ID      int64      `db:"id"`
	User    string     `db:"user_name"`
	From    time.Time  `db:"from_at"`
	Until   *time.Time `db:"until_at"`
	EndedAt *time.Time `db:"ended_at"`
}

// HookRow is a row of hook.
type HookRow struct {
	ID     int64    `db:"id"`
	Task   *int64   `db:"task_id"` // nil: all
	Events []string `db:"events"`
}

// HookEventRow is a row of hook_event.
type HookEventRow struct {
	ID        int64     `db:"id"`
	Message   string    `db:"message"` // as the receiver gets it
	Hook      int64     `db:"hook_id"`
	Task      int64     `db:"task_id"`
	Item      string    `db:"item"`
	Type      string    `db:"type"`
	Subject   int64     `db:"subject"` // the id of the work, or of the run
	Outcome   string    `db:"outcome"` // the state of the work that is reported
	State     string    `db:"state"`
	Attempts  int       `db:"attempts"`
	CreatedAt time.Time `db:"created_at"`
	NextAt    time.Time `db:"next_at"`
}

// CredentialRow is a session or a token.
type CredentialRow struct {
	Name      string     `db:"name"`   // as requests have it
	Secret    string     `db:"secret"` // as a client that shows it names it: s: and the SHA-256 of the cookie, t: and the token's id
	User      string     `db:"user_name"`
	CreatedAt time.Time  `db:"created_at"`
	ExpiresAt time.Time  `db:"expires_at"` // it ends then in any case
	EndedAt   *time.Time `db:"ended_at"`   // by the clock, before the end's commit
	EndedBy   *string    `db:"ended_by"`
	Committed *time.Time `db:"committed"` // the commit record of its end; nil: it lives, or the server keeps no times of commits
}

// ActRow is a row of the audit about rights.
type ActRow struct {
	At        time.Time  `db:"at"`
	Committed *time.Time `db:"committed"` // its commit record
	Act       string     `db:"act"`
	Object    string     `db:"object"`
	Groups    *string    `db:"groups"` // of a change: a JSON array
}

const (
	// The time of a commit is that of its record: others see it a little later.
	selectCredentials = `
with one as (
  select 's:' || s.public_id as name, 's:' || encode(s.id, 'hex') as secret, s.principal, s.created_at, s.ends_at as expires_at, s.ended_at, s.ended_by, s.changed
  from getwork.session s
  union all
  select 't:' || t.id, 't:' || t.id, t.principal, t.created_at, t.expires_at, t.ended_at, t.ended_by, t.changed
  from getwork.token t
)
select o.name, o.secret, p.name as user_name, o.created_at, o.expires_at, o.ended_at, o.ended_by,
  case when o.ended_at is not null and current_setting('track_commit_timestamp')::boolean then pg_xact_commit_timestamp(o.changed::xid) end as committed
from one o join getwork.principal p on p.id = o.principal
order by o.created_at, o.name`

	selectActs = `
select at, case when current_setting('track_commit_timestamp')::boolean then pg_xact_commit_timestamp(xmin) end as committed,
  act, coalesce(object, '') as object, (detail -> 'groups')::text as groups
from getwork.audit
where act in ('user.block', 'user.unblock', 'session.change') and outcome = 'done'
order by n`
)

const (
	selectNow   = `select clock_timestamp()`
	selectTasks = `select task_id, name, deleted_at is not null as deleted, version, paused from getwork.task_state order by task_id`

	selectVersions = `
select task_id, version, name, paused, query, slots, max_open, max_attempts, conflicts_with, groups, on_away, fresh_for, stale_for,
  created_at, done_by, coalesce(once, false) as once, coalesce(require_code, false) as require_code, array(select o->>'code' from json_array_elements(outcomes) o) as codes,
  (on_complete->>'task_id')::bigint as onward, (on_complete->>'share')::float8 as share
from getwork.task_version
order by task_id, version`

	selectRequests = `
select id, task_id, user_name, instance, wanted, requested, assigned, state, reason, error, created_at, linger_until, completed_at,
  round_id, run_id, ranked_at, stale, credential, targets is not null as next, groups
from getwork.work_requested
order by id`

	selectRuns = `select id, task_id, node, state, started_at, finished_at, seen_until from getwork.run order by id`

	selectWork = `
select id, task_id, item, slot, exclusive, user_name, instance, request_id, run_id, rank, attempt, assigned_at, lease, lease_expires_at,
  state, exhausted, closed_at, closed_by, after, to_others, available_at, redriven_by, note, deadline,
  code, result::text as result, later_until, needs, from_work
from getwork.work
order by id`

	selectItems = `
select id, task_id, item, priority, slots, exclusive, pushed_at, pushed_by, nullif(due_at, 'infinity') as due_at,
  coalesce(due_at = 'infinity', false) as parked, done_at, deadline, done_by, completed_by, from_work,
  array(
    select n.need
    from getwork.task_state s, jsonb_array_elements_text(s.needs->(i.class - 1)->'needs') n (need)
    where s.task_id = i.task_id and i.class > 0) as needs
from getwork.item i
order by id`

	selectLimits   = `select everybody, people from getwork.limits order by version`
	selectAbsences = `select id, user_name, from_at, until_at, ended_at from getwork.absence order by id`

	selectHooks = `select id, task_id, events from getwork.hook order by id`

	selectHookEvents = `
select id, 'msg_' || replace(message::text, '-', '') as message, hook_id, task_id, item, type,
  coalesce(body #>> '{data,work}', body #>> '{data,run}')::bigint as subject, coalesce(body #>> '{data,state}', '') as outcome,
  state, attempts, created_at, next_at
from getwork.hook_event
order by id`
)

// Read reads the tables of a schema from one snapshot. Nothing should write any more: later rows are not included.
func Read(ctx context.Context, conn *pgx.Conn, schema string) (t Tables, err error) {
	own := pgx.Identifier{schema}.Sanitize() + "."
	sql := func(statement string) string { return strings.ReplaceAll(statement, "getwork.", own) }
	snapshot := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	err = pgx.BeginTxFunc(ctx, conn, snapshot, func(tx pgx.Tx) (err error) {
		if err = tx.QueryRow(ctx, selectNow).Scan(&t.Now); err != nil {
			return err
		}
		if t.Tasks, err = rows[TaskRow](ctx, tx, sql(selectTasks)); err != nil {
			return err
		}
		if t.Versions, err = rows[VersionRow](ctx, tx, sql(selectVersions)); err != nil {
			return err
		}
		if t.Requests, err = rows[RequestRow](ctx, tx, sql(selectRequests)); err != nil {
			return err
		}
		if t.Runs, err = rows[RunRow](ctx, tx, sql(selectRuns)); err != nil {
			return err
		}
		if t.Work, err = rows[WorkRow](ctx, tx, sql(selectWork)); err != nil {
			return err
		}
		if t.Items, err = rows[ItemRow](ctx, tx, sql(selectItems)); err != nil {
			return err
		}
		if t.Limits, err = rows[LimitsRow](ctx, tx, sql(selectLimits)); err != nil {
			return err
		}
		if t.Absences, err = rows[AbsenceRow](ctx, tx, sql(selectAbsences)); err != nil {
			return err
		}
		if t.Hooks, err = rows[HookRow](ctx, tx, sql(selectHooks)); err != nil {
			return err
		}
		if t.HookEvents, err = rows[HookEventRow](ctx, tx, sql(selectHookEvents)); err != nil {
			return err
		}
		if t.Credentials, err = rows[CredentialRow](ctx, tx, sql(selectCredentials)); err != nil {
			return err
		}
		t.Acts, err = rows[ActRow](ctx, tx, sql(selectActs))
		return err
	})
	if err != nil {
		return Tables{}, fmt.Errorf("read the tables: %w", err)
	}
	return t, nil
}

func rows[R any](ctx context.Context, tx pgx.Tx, statement string) ([]R, error) {
	found, err := tx.Query(ctx, statement)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(found, pgx.RowToStructByName[R])
}
