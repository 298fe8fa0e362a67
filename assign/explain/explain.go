// Package explain says why an item of a task is handed out or not, from what a round would read of it.
package explain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
	"getwork/assign/engine"
	"getwork/assign/plan"
	"getwork/assign/ranking"
	"getwork/assign/records"
)

// history is the number of work rows that an explanation shows.
const history = 10

// Item says whether an item matches now, its rank, who holds it, and what keeps it back. If the item is on the task's
// fresh shelf, the answer comes from there and from the task's recheck. Otherwise the query is executed. Both can be refused
// as a preview can ([assign.QueryRefused], [assign.Busy]). An unknown item does not match, which is no error; an unknown task
// is [assign.NotFound]. live are the users with a live channel on this node: whether they and others who are here could be given the
// item is said, too.
func Item(ctx context.Context, e *engine.Engine, task, item string, live []string) (assign.Explanation, error) {
	if detail := assign.CheckItem(item); detail != "" {
		return assign.Explanation{}, assign.RefuseField("item", "%s", detail)
	}
	id, settings, err := e.Records.Find(ctx, task, assign.Who{Anything: true})
	if err != nil {
		return assign.Explanation{}, err
	}
	s := explainer{e: e, id: id, task: settings, Explanation: assign.Explanation{Task: task, Item: item, Slots: settings.Slots, Held: []assign.Work{}, Barred: []assign.Barred{}, Could: []assign.Recipient{}}}
	if err := s.match(ctx); err != nil {
		return assign.Explanation{}, err
	}
	// One snapshot for all statements: an item that is closed between two of them would have no reason.
	opts := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	if err := pgx.BeginTxFunc(ctx, e.DB, opts, func(tx pgx.Tx) error { return s.read(ctx, tx) }); err != nil {
		return assign.Explanation{}, fmt.Errorf("explain item: %w", err)
	}
	s.conclude()
	if s.Matches && !s.passedOver && !s.dropped {
		if err := s.present(ctx, live); err != nil {
			return assign.Explanation{}, fmt.Errorf("explain item: %w", err)
		}
	}
	return s.Explanation, nil
}

// present says who of those who are here could be given the item.
func (s *explainer) present(ctx context.Context, live []string) error {
	users, err := s.e.Records.Present(ctx, s.id, live)
	if err != nil {
		return err
	}
	known, err := s.e.Records.Known(ctx, users...)
	if err != nil {
		return err
	}
	refused, err := s.e.Could(ctx, s.id, &s.Explanation, known)
	if err != nil {
		return err
	}
	for i, user := range users {
		c := assign.Recipient{User: user, May: refused[i] == nil}
		if !c.May {
			c.Because = refused[i].Detail
		}
		s.Could = append(s.Could, c)
	}
	return nil
}

// explainer is an explanation in the making, and the facts that it is drawn from.
type explainer struct {
	assign.Explanation
	carried assign.Carried // by the work that it shows

	e    *engine.Engine
	id   int64 // the task's
	task assign.Settings

	unusable   bool   // the query gives it needs that can't be
	passedOver bool   // likewise, or the query returns it, but with a number of places or a group that is not allowed
	dropped    bool   // it is on the shelf, but the task's recheck does not return it
	shelfRun   *int64 // the run that ranked it, if its result is on the shelf
	paused     bool
	freshUntil *time.Time   // null: no fresh shelf
	onShelf    bool         // it is on the fresh shelf, and its rank has not been passed
	item       plan.Item    // as a round would plan with it
	gone       bool         // see availability
	blocking   []bound      // work that is put off or never to return, and not for one user alone
	member     *assign.Work // the held member of its exclusive group
	due        *time.Time   // for an item of an inbox: when it falls due
	completed  []string     // who has completed it, if different people are to; nil: one is enough
}

// bound is closed work that still decides who may have the item.
type bound struct {
	assign.Work
	by string // who closed it, or otherwise who had it
}

const (
	selectPlaceOnShelf = `
select s.shelf_run, c.rank, c.slots, c.exclusive, c.details::text, c.deadline, u.needs->(c.class - 1)->'needs'
from getwork.task_state s join getwork.run u on u.id = s.shelf_run cross join lateral getwork.shelved(u.id, $2) c
where s.task_id = $1 and ` + engine.ShelfFresh + `
order by c.rank
limit 1`

	// The condition stays outside of the ranking, so that the rank is the item's real one. The statement names nothing of
	// getwork's schema, since the query may run elsewhere.
	rankOfHead = `
select rank, slots, exclusive, ` + ranking.RowDetails + `, ` + ranking.RowDue + `, ` + ranking.RowNeeds + `
from (
  select row_number() over () as rank, getwork_rows.*
  from ` + ranking.Defaults + `
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
  end, ` + engine.InboxPlaces + `, i.exclusive, i.details::text, i.deadline, ` + engine.InboxNeeds + `, ` + engine.CompletedOf + `
from getwork.item i
where i.task_id = $1 and i.item = $2 and i.done_at is null`
)

// match finds the item in the inbox, on the shelf, or by the query.
func (s *explainer) match(ctx context.Context) error {
	var details *string
	var own ranking.Own
	into := []any{&s.Rank, &s.Slots, &s.Exclusive, &details, &s.Deadline, &s.Needs}
	var err error
	if s.task.Inbox() {
		s.Source = "inbox"
		err = s.e.DB.QueryRow(ctx, s.e.SQL(selectInInbox), s.id, s.Item, s.task.Slots, s.task.DoneBy).Scan(append(into, &s.completed)...)
	} else {
		s.Source = "shelf"
		err = s.e.DB.QueryRow(ctx, s.e.SQL(selectPlaceOnShelf), s.id, s.Item).Scan(append([]any{&s.shelfRun}, into...)...)
		if errors.Is(err, pgx.ErrNoRows) {
			s.Source = "query"
			statement := fmt.Sprintf(rankOfHead, s.task.Slots) + s.task.Query.Trimmed() + rankOfTail
			err = s.e.Ranker.InTx(ctx, s.task, "query", func(ctx context.Context, tx pgx.Tx) error {
				return tx.QueryRow(ctx, statement, pgx.QueryExecModeExec, s.Item).Scan(append(into[:4:4], &own.Deadline, &own.Needs)...)
			})
		}
	}
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("explain item: %w", err)
	}
	usable := true
	if s.Source == "query" {
		*details, s.Deadline, s.Needs, usable = ranking.DetailsOf(*details, own)
	}
	s.Deadline = assign.UTC(s.Deadline)
	var shown assign.Work
	shown.SetDetails(json.RawMessage(*details))
	s.Matches, s.Details, s.LeftOut = true, shown.Details, shown.DetailsLeftOut
	s.unusable = !usable
	s.passedOver = s.unusable || s.Slots < 1 || s.Slots > 1 && s.Exclusive != nil
	if s.Source == "shelf" {
		still, err := s.e.Ranker.Recheck(ctx, s.task, []string{s.Item})
		if err != nil {
			return err
		}
		s.dropped = still != nil && !still[s.Item]
	}
	return nil
}

const (
	selectTaskNow = `
select s.paused, case when ` + engine.ShelfFresh + ` then s.fresh_until end, c.rank >= s.shelf_from is true,
  (select i.due_at from getwork.item i where i.task_id = $1 and i.item = $2 and i.done_at is null and i.due_at > clock_timestamp() and i.due_at < 'infinity')
from getwork.task_state s left join getwork.run u on u.id = s.shelf_run left join lateral getwork.shelved(u.id, $2) c on true
where s.task_id = $1
limit 1`

	// The same as a round reads.
	selectStanding = `
select st.gone, ` + engine.AvailabilityColumns + `
from (values ($3::text collate "C", $4::integer, $5::text)) c (item, slots, exclusive)
cross join (
  select (select snapshot from getwork.run where id = $6) as snapshot, (select seen_until from getwork.run where id = $6) as seen_until
) u` + engine.Availability

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
from (select other_id as id from getwork.task_conflict where task_id = $1 union all select $1 where $3) t
join getwork.task_state s on s.task_id = t.id
cross join (select $2::text collate "C" as item) c
cross join lateral (
  select w.user_name from getwork.work w where w.task_id = t.id and w.item = c.item and w.state = 'held'
  union
  select b.user_name from ` + engine.CompletedBy + ` b
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
	if s.task.Once {
		conflicts = append(conflicts, s.id)
	}
	for _, user := range s.completed {
		s.bar(assign.Barred{User: user, Because: "has completed it"})
	}
	var batch pgx.Batch
	batch.Queue(s.e.SQL(selectTaskNow), s.id, s.Item).QueryRow(func(row pgx.Row) error {
		return row.Scan(&s.paused, &s.freshUntil, &s.onShelf, &s.due)
	})
	batch.Queue(s.e.SQL(selectStanding), s.id, conflicts, s.Item, s.Slots, s.Exclusive, s.shelfRun).QueryRow(func(row pgx.Row) (err error) {
		s.item, err = engine.ScanItem(row, &s.gone)
		engine.DifferentUsers(&s.item, s.completed)
		return err
	})
	batch.Queue(s.e.SQL(selectBinding), s.id, s.Item).Query(s.readBinding)
	batch.Queue(s.e.SQL(selectMember), s.id, s.Item, s.Exclusive).Query(func(rows pgx.Rows) error {
		members, err := pgx.CollectRows(rows, records.NewWorkScan().Within(&s.carried).Scan)
		if len(members) > 0 {
			s.member = &members[0]
		}
		return err
	})
	batch.Queue(s.e.SQL(selectElsewhere), s.id, s.Item, s.task.Once).Query(func(rows pgx.Rows) error {
		var user, task string
		_, err := pgx.ForEachRow(rows, []any{&user, &task}, func() error {
			s.bar(assign.Barred{User: user, Because: "holds or completed it under task " + task})
			return nil
		})
		return err
	})
	statement, args := records.History(s.id, assign.WorkFilter{Item: s.Item, Limit: history})
	batch.Queue(s.e.SQL(statement), args...).Query(func(rows pgx.Rows) (err error) {
		s.History, err = pgx.CollectRows(rows, records.NewWorkScan().Within(&s.carried).Scan)
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
		if b.Work, err = records.NewWorkScan(&blocks, &b.by).Within(&s.carried).Scan(rows); err != nil {
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

// conclude says why the item is not handed out, until when, and in a sentence.
func (s *explainer) conclude() {
	s.Why, s.Until, s.Text = s.reason()
	s.Available = s.Why == assign.WhyAvailable
}

func (s *explainer) reason() (assign.Why, *time.Time, string) {
	never := slices.IndexFunc(s.blocking, func(b bound) bool { return b.State == "never" })
	because := plan.Bars(&plan.Request{Room: 1, Anything: true}, &s.item) // nobody's request, whom only a rule for everybody bars
	switch {
	case !s.Matches:
		return assign.WhyNoMatch, nil, s.noMatch()
	case s.unusable:
		return assign.WhyPassedOver, nil, fmt.Sprintf("The query gives it needs that nobody can have: up to %d names of groups or skills, each of 1 to 128 bytes without commas.", assign.MaxNeeds)
	case s.passedOver && s.Slots < 1:
		return assign.WhyPassedOver, nil, fmt.Sprintf("The query gives it with %d places; an item has at least one.", s.Slots)
	case s.passedOver:
		return assign.WhyPassedOver, nil, fmt.Sprintf("The query gives it with %d places and the exclusive group %q; an item has one or the other.", s.Slots, *s.Exclusive)
	case s.dropped:
		return assign.WhyRecheck, nil, s.noLonger()
	case because == plan.Full:
		until := s.placeFree()
		return assign.WhyHeld, until, s.heldBy() + s.comesBack(until)
	case never >= 0:
		b := s.blocking[never]
		if b.Exhausted {
			return assign.WhyNever, nil, fmt.Sprintf("Its attempts are used up; the last was %s's. A manager can redrive it.", b.User)
		}
		return assign.WhyNever, nil, fmt.Sprintf("It is never to be handed out again, %s said. A manager can redrive it.", b.by)
	case len(s.blocking) > 0:
		w := slices.MaxFunc(s.blocking, func(a, b bound) int { return a.AvailableAt.Compare(*b.AvailableAt) })
		how := "put it off"
		if w.State == "failed" {
			how = "failed with it"
		}
		return assign.WhyPutOff, w.AvailableAt, fmt.Sprintf("%s %s; it comes back at %s.", w.User, how, assign.TimeText(*w.AvailableAt))
	case because == plan.GroupHeld:
		return assign.WhyGroupHeld, s.member.LeaseExpiresAt, fmt.Sprintf("%s holds %q, which is of the same exclusive group %q%s",
			s.member.User, s.member.Item, *s.Exclusive, s.comesBack(s.member.LeaseExpiresAt))
	case s.due != nil:
		return assign.WhyNotDue, s.due, fmt.Sprintf("It is not to be handed out before %s.", assign.TimeText(*s.due))
	case s.paused:
		return assign.WhyPaused, nil, "The task is paused; nothing of it is handed out until a manager resumes it."
	case s.gone, s.freshUntil != nil && !s.onShelf:
		return assign.WhyNextRun, s.freshUntil, "It is not on the shelf that is handed out now, or was let go of after the shelf's run; the next run finds it."
	}
	return assign.WhyAvailable, nil, s.free()
}

func (s *explainer) noMatch() string {
	text := "The task's query does not give it."
	if s.task.Inbox() {
		text = "It is not in the inbox: it was never pushed, or it is done."
	}
	if len(s.Held) > 0 {
		text += " " + s.heldBy() + "."
	}
	return text
}

func (s *explainer) noLonger() string {
	text := "It is on the shelf, but the task's recheck does not return it any more, so it is not handed out from there."
	if len(s.Held) > 0 {
		text += " " + s.heldBy() + "."
	}
	return text
}

// heldBy returns a sentence without its end.
func (s *explainer) heldBy() string {
	names := make([]string, 0, len(s.Held))
	for _, w := range s.Held {
		names = append(names, w.User)
	}
	if len(names) > 3 {
		names = append(names[:3], fmt.Sprintf("and %d more", len(s.Held)-3))
	}
	who := strings.Join(names, ", ")
	if s.completed != nil {
		return fmt.Sprintf("%s; those who are missing hold it: %s", s.completedOf(), who)
	}
	if s.Slots > 1 {
		return fmt.Sprintf("%d of its %d places are taken: %s", len(s.Held), s.Slots, who)
	}
	if len(names) > 1 {
		return who + " hold it"
	}
	return who + " holds it"
}

// placeFree returns when leases that end will have left a place free; nil: they never do.
func (s *explainer) placeFree() *time.Time {
	var ends []time.Time
	for _, w := range s.Held {
		if w.LeaseExpiresAt != nil {
			ends = append(ends, *w.LeaseExpiresAt)
		}
	}
	slices.SortFunc(ends, time.Time.Compare)
	if over := len(s.Held) - s.item.Slots; over >= 0 && over < len(ends) {
		return &ends[over]
	}
	return nil
}

func (s *explainer) comesBack(until *time.Time) string {
	if until == nil {
		return "; it comes back when that is let go of."
	}
	return fmt.Sprintf("; it comes back at %s, unless the lease is extended.", assign.TimeText(*until))
}

// completedOf returns a sentence without its end.
func (s *explainer) completedOf() string {
	return fmt.Sprintf("It was completed by %d of %d", len(s.completed), s.Slots)
}

func (s *explainer) free() string {
	text := "It can be handed out."
	switch {
	case s.completed != nil:
		text = fmt.Sprintf("%s, and %d hold it.", s.completedOf(), len(s.Held))
	case s.Slots > 1:
		text = fmt.Sprintf("%d of its %d places are free.", s.Slots-len(s.item.Taken), s.Slots)
	}
	if len(s.Needs) > 0 {
		text += " Its holder needs " + strings.Join(s.Needs, ", ") + "."
	}
	if len(s.Barred) > 0 {
		text += " Those listed as barred can't have it."
	}
	return text
}
