package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
	"getwork/assign/ranking"
	"getwork/assign/records"
)

// explainHistory is the number of work rows that an explanation shows.
const explainHistory = 10

// Explain says whether an item matches now, its rank, who holds it, and what keeps it back. If the item is on the task's
// fresh shelf, the answer comes from there and from the task's recheck. Otherwise the query is executed. Both can be refused
// as a preview can ([assign.QueryRefused], [assign.Busy]). An unknown item does not match, which is no error; an unknown task
// is [assign.NotFound].
func (e *Engine) Explain(ctx context.Context, task, item string) (assign.Explanation, error) {
	if detail := assign.CheckItem(item); detail != "" {
		return assign.Explanation{}, assign.RefuseField("item", "%s", detail)
	}
	id, settings, err := e.Records.Find(ctx, task, assign.Who{Anything: true})
	if err != nil {
		return assign.Explanation{}, err
	}
	s := explainer{e: e, id: id, task: settings, Explanation: assign.Explanation{Task: task, Item: item, Slots: settings.Slots, Held: []assign.Work{}, Barred: []assign.Barred{}}}
	if err := s.match(ctx); err != nil {
		return assign.Explanation{}, err
	}
	// One snapshot for all statements: an item that is closed between two of them would have no reason.
	opts := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	if err := pgx.BeginTxFunc(ctx, e.api, opts, func(tx pgx.Tx) error { return s.read(ctx, tx) }); err != nil {
		return assign.Explanation{}, fmt.Errorf("explain item: %w", err)
	}
	s.conclude()
	return s.Explanation, nil
}

const (
	selectPlaceOnShelf = `
select s.shelf_run, c.rank, c.slots, c.exclusive, c.details::text
from getwork.task_state s join getwork.run u on u.id = s.shelf_run cross join lateral getwork.shelved(u.id, $2) c
where s.task_id = $1 and ` + shelfFresh + `
order by c.rank
limit 1`

	// The condition stays outside of the ranking, so that the rank is the item's real one. The statement names nothing of
	// getwork's schema, since the query may run elsewhere.
	rankOfHead = `
select rank, slots, exclusive, ` + ranking.RowDetails + `
from (
  select row_number() over () as rank, getwork_rows.*
  from (values (null::integer, null::text)) getwork_defaults (slots, exclusive)
  cross join lateral (` + ranking.RowsHead
	rankOfTail = ranking.RowsTail + `) getwork_rows
) ranked
where item = $1
order by rank
limit 1`

	selectInInbox = `
select case when i.due_at is null then 1
    + (select count(*) from getwork.item j where j.task_id = $1 and j.due_at is null and j.done_at is null and j.priority > i.priority)
    + (select count(*) from getwork.item j where j.task_id = $1 and j.due_at is null and j.done_at is null and j.priority = i.priority and j.id < i.id)
  end, ` + inboxPlaces + `, i.exclusive, i.details::text
from getwork.item i
where i.task_id = $1 and i.item = $2 and i.done_at is null`
)

// match looks for the item in the inbox, on the shelf, or by the query.
func (s *explainer) match(ctx context.Context) error {
	var details *string
	into := []any{&s.Rank, &s.Slots, &s.Exclusive, &details}
	var err error
	if s.task.Inbox() {
		s.Source = "inbox"
		err = s.e.api.QueryRow(ctx, s.e.SQL(selectInInbox), s.id, s.Item, s.task.Slots).Scan(into...)
	} else {
		s.Source = "shelf"
		err = s.e.api.QueryRow(ctx, s.e.SQL(selectPlaceOnShelf), s.id, s.Item).Scan(append([]any{&s.shelfRun}, into...)...)
		if errors.Is(err, pgx.ErrNoRows) {
			s.Source = "query"
			statement := fmt.Sprintf(rankOfHead, s.task.Slots) + s.task.Query.Trimmed() + rankOfTail
			err = s.e.Ranker.InTx(ctx, ranking.SlotWait, s.task, "query", func(ctx context.Context, tx pgx.Tx) error {
				return tx.QueryRow(ctx, statement, pgx.QueryExecModeExec, s.Item).Scan(into...)
			})
		}
	}
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("explain item: %w", err)
	}
	if s.Source == "query" {
		*details = ranking.DetailsOf(*details)
	}
	s.Matches, s.Details = true, json.RawMessage(*details)
	s.passedOver = s.Slots < 1 || s.Slots > 1 && s.Exclusive != nil
	if s.Source == "shelf" {
		still, err := s.e.Ranker.Recheck(ctx, s.task, []string{s.Item})
		if err != nil {
			return err
		}
		s.dropped = still != nil && !still[s.Item]
	}
	return nil
}

// explainer is an explanation in the making, and the facts that it is drawn from.
type explainer struct {
	assign.Explanation
	e    *Engine
	id   int64 // the task's
	task assign.Settings

	passedOver bool   // the query returns it, but with a number of places or a group that is not allowed
	dropped    bool   // it is on the shelf, but the task's recheck does not return it
	shelfRun   *int64 // the run that ranked it, if its result is on the shelf
	paused     bool
	freshUntil *time.Time   // null: no fresh shelf
	onShelf    bool         // it is on the fresh shelf, and its rank has not been passed
	taken      int          // places that are taken
	gone, busy bool         // see availability
	blocking   []bound      // work that is put off or never to return, and not for one user alone
	member     *assign.Work // the held member of its exclusive group
	due        *time.Time   // for an item of an inbox: when it falls due
}

// bound is closed work that still decides who may have the item.
type bound struct {
	assign.Work
	by string // who closed it, or otherwise who had it
}

const (
	// Until pushes refused such times, items could fall due after the year 9999. JSON has no such time, so the answer would fail.
	selectTaskNow = `
select s.paused, case when ` + shelfFresh + ` then s.fresh_until end, c.rank >= s.shelf_from is true,
  (select least(i.due_at, '9999-12-31 23:59:59Z') from getwork.item i where i.task_id = $1 and i.item = $2 and i.done_at is null and i.due_at > clock_timestamp() and i.due_at < 'infinity')
from getwork.task_state s left join getwork.run u on u.id = s.shelf_run left join lateral getwork.shelved(u.id, $2) c on true
where s.task_id = $1
limit 1`

	// The same as a round reads.
	selectStanding = `
select coalesce(cardinality(st.taken), 0), st.gone, eyes.busy
from (values ($3::text collate "C", $4::integer, $5::text)) c (item, slots, exclusive)
cross join (
  select (select snapshot from getwork.run where id = $6) as snapshot, (select seen_until from getwork.run where id = $6) as seen_until
) u` + availability

	selectBinding = `
select ` + records.WorkColumns + `, ` + records.Blocks + `, coalesce(w.closed_by, w.user_name)
from ` + records.Binding + ` w join getwork.task_state s on s.task_id = w.task_id
where w.task_id = $1 and w.item = $2
order by w.id + 0`

	selectMember = `
select ` + records.WorkColumns + `
from getwork.work w join getwork.task_state s on s.task_id = w.task_id
where w.task_id = $1 and w.exclusive = $3 and w.state = 'held' and w.item <> $2`

	selectElsewhere = `
select d.user_name, s.name
from (select other_id as id from getwork.task_conflict where task_id = $1) t
join getwork.task_state s on s.task_id = t.id
cross join (select $2::text collate "C" as item) c
cross join lateral (
  select w.user_name from getwork.work w where w.task_id = t.id and w.item = c.item and w.state = 'held'
  union
  select b.user_name from ` + completedBy + ` b
) d
order by 1, 2`

	conflictsOf = `select coalesce(array_agg(other_id), '{}') from getwork.task_conflict where task_id = $1`
)

// read reads what decides whether the item can be handed out.
func (s *explainer) read(ctx context.Context, tx pgx.Tx) error {
	var conflicts []int64
	if err := tx.QueryRow(ctx, s.e.SQL(conflictsOf), s.id).Scan(&conflicts); err != nil {
		return err
	}
	var batch pgx.Batch
	batch.Queue(s.e.SQL(selectTaskNow), s.id, s.Item).QueryRow(func(row pgx.Row) error {
		return row.Scan(&s.paused, &s.freshUntil, &s.onShelf, &s.due)
	})
	batch.Queue(s.e.SQL(selectStanding), s.id, conflicts, s.Item, s.Slots, s.Exclusive, s.shelfRun).QueryRow(func(row pgx.Row) error {
		return row.Scan(&s.taken, &s.gone, &s.busy)
	})
	batch.Queue(s.e.SQL(selectBinding), s.id, s.Item).Query(s.readBinding)
	batch.Queue(s.e.SQL(selectMember), s.id, s.Item, s.Exclusive).Query(func(rows pgx.Rows) error {
		members, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (assign.Work, error) { return records.ScanWork(row) })
		if len(members) > 0 {
			s.member = &members[0]
		}
		return err
	})
	batch.Queue(s.e.SQL(selectElsewhere), s.id, s.Item).Query(func(rows pgx.Rows) error {
		var user, task string
		_, err := pgx.ForEachRow(rows, []any{&user, &task}, func() error {
			s.bar(assign.Barred{User: user, Because: "holds or completed it under task " + task})
			return nil
		})
		return err
	})
	statement, args := records.History(s.id, assign.WorkFilter{Item: s.Item, Limit: explainHistory})
	batch.Queue(s.e.SQL(statement), args...).Query(func(rows pgx.Rows) (err error) {
		s.History, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (assign.Work, error) { return records.ScanWork(row) })
		return err
	})
	return tx.SendBatch(ctx, &batch).Close()
}

// readBinding reads the item's work that keeps the item from everybody, or from its own user.
func (s *explainer) readBinding(rows pgx.Rows) error {
	defer rows.Close()
	for rows.Next() {
		var b bound
		var blocks bool
		var err error
		if b.Work, err = records.ScanWork(rows, &blocks, &b.by); err != nil {
			return err
		}
		switch {
		case b.State == "held":
			s.Held = append(s.Held, b.Work)
			s.bar(assign.Barred{User: b.User, Instance: b.Instance, Because: "holds it"})
		case blocks && s.Slots == 1:
			s.blocking = append(s.blocking, b)
		case blocks && b.State == "never":
			s.bar(assign.Barred{User: b.User, Because: "is never to have it again"})
		case blocks && !b.ToOthers:
			s.bar(assign.Barred{User: b.User, Because: "put it off", Until: b.AvailableAt})
		}
		if b.ToOthers {
			s.bar(assign.Barred{User: b.User, Because: "returned it to others"})
		}
	}
	return rows.Err()
}

// bar adds a barred user, once for each reason.
func (s *explainer) bar(b assign.Barred) {
	for i, other := range s.Barred {
		if other.User == b.User && other.Instance == b.Instance && other.Because == b.Because {
			if b.Until != nil && other.Until != nil && b.Until.After(*other.Until) {
				s.Barred[i].Until = b.Until
			}
			return
		}
	}
	s.Barred = append(s.Barred, b)
}
