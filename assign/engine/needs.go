package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
	"getwork/assign/plan"
	"getwork/assign/ranking"
	"getwork/assign/records"
	"getwork/notify"
)

// An item may need groups or skills, all of them; [plan.Bars] keeps it from whoever lacks some. Tens of thousands of items may stand in
// front that nobody who waits may have. So the items of a run, or of an inbox, fall into classes, by what they need, and a round reads
// the best of each class that somebody who waits may have. Of the others it reads only some, to see whether there are any: they are there
// for whoever it has not read, and the reason why others get nothing.
//
// What people can is read under the assign lock, like who is away, so a change holds for every round that begins after it.

// classes are what the items of a supply need, by the number of their class, less one.
type classes []ranking.NeedSet

// of returns what the items of a class need; 0: nothing.
func (c classes) of(class int) []string {
	if class < 1 || class > len(c) {
		return nil
	}
	return c[class-1].Needs
}

// json returns the classes as they are kept; nil: there are none.
func (c classes) json() *string {
	if c == nil {
		return nil
	}
	text, _ := json.Marshal(c)
	return new(string(text))
}

const selectSkills = `select k.user_name, k.skills from getwork.skill k where k.user_name = any($1::text[])`

// readSkills reads what those can who wait, if anything may need it.
func (r *round) readSkills(ctx context.Context, waiting []waiter) error {
	if !r.needy {
		return nil
	}
	var users []string
	for _, w := range waiting {
		if _, known := r.skills[w.holder.User]; !known && w.groups != nil {
			if r.skills == nil {
				r.skills = map[string][]string{}
			}
			r.skills[w.holder.User] = nil
			users = append(users, w.holder.User)
		}
	}
	if len(users) == 0 {
		return nil
	}
	rows, err := r.tx.Query(ctx, r.e.SQL(selectSkills), users)
	if err != nil {
		return fmt.Errorf("read what people can: %w", err)
	}
	var user string
	var skills []string
	if _, err := pgx.ForEachRow(rows, []any{&user, &skills}, func() error { r.skills[user], skills = skills, nil; return nil }); err != nil {
		return fmt.Errorf("read what people can: %w", err)
	}
	return nil
}

// readClasses notes which classes somebody may have whom the round has read, and reports whether there are more than before.
func (r *round) readClasses(ctx context.Context, from supply) (more bool, err error) {
	sets := from.needs()
	if sets == nil {
		return false, nil
	}
	waiting := r.waiting
	if !r.complete {
		waiting = slices.Concat(r.waiting, r.clicked)
	}
	if r.needy = true; r.may == nil {
		r.may = make([]bool, len(sets))
		more = true
	}
	if err := r.readSkills(ctx, waiting); err != nil {
		return false, err
	}
	for i, s := range sets {
		for n := 0; n < len(waiting) && !r.may[i]; n++ {
			w := &waiting[n]
			request := plan.Request{Anything: w.groups == nil, Skills: r.skills[w.holder.User]}
			if w.groups != nil {
				request.Groups = *w.groups
			}
			if len(s.Needs) == 0 || len(request.Lacks(s.Needs)) == 0 {
				r.may[i], more = true, true
			}
		}
	}
	return more, nil
}

// split returns the numbers of the classes that somebody may have who waits, and of the others.
func (r *round) split() (own, others []int16) {
	for i, may := range r.may {
		if may {
			own = append(own, int16(i+1))
		} else {
			others = append(others, int16(i+1))
		}
	}
	return own, others
}

// Of the others only what anybody could have is read, or it would not show that there is something.
const (
	ofClass = `
  select c.rank, c.class, c.item, c.details::text, c.deadline, ` + AvailabilityColumns + `
  from getwork.candidate c join getwork.run u on u.id = c.run_id` + Availability + `
  where c.run_id = $3 and c.class = k.class and c.rank >= k.at and not st.gone`

	selectByClass = `
select b.*
from unnest($4::smallint[], $5::bigint[]) k (class, at)
cross join lateral (` + ofClass + `
  order by c.rank%[1]s
) b
union all
(select b.*
from unnest($6::smallint[], $7::bigint[]) k (class, at)
cross join lateral (` + ofClass + ` and not eyes.busy and coalesce(cardinality(st.taken), 0) < c.slots
  order by c.rank%[1]s
) b%[1]s)`
)

// takeByClass is take for a shelf whose items need something: it has its own beginning for each class.
func (s shelf) takeByClass(ctx context.Context, r *round, n int) ([]offer, bool, error) {
	own, others := r.split()
	from := func(of []int16) (ranks []int64) {
		for _, class := range of {
			ranks = append(ranks, s.state.fromOf(int(class)))
		}
		return ranks
	}
	limit, _ := atMost(n)
	rows, err := r.tx.Query(ctx, r.e.SQL(fmt.Sprintf(selectByClass, limit)), r.task, s.state.conflicts, s.state.shelfRun, own, from(own), others, from(others))
	var offers []offer
	if err == nil {
		offers, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (o offer, err error) {
			err = scanAvailability(row, &o, &o.cand.Rank, &o.cand.Class, &o.cand.Item, &o.cand.Details, &o.cand.Deadline)
			o.Needs = s.state.needs.of(o.cand.Class)
			return o, err
		})
	}
	if err != nil {
		return nil, false, err
	}
	slices.SortFunc(offers, byRank)
	return offers, r.readAll(offers, n), r.dropUnmatched(offers)
}

func byRank(a, b offer) int { return cmp.Compare(a.cand.Rank, b.cand.Rank) }

// readAll notes of which classes fewer than n items were found, so that there are no others, and reports whether that is true of all that
// somebody may have who waits.
func (r *round) readAll(offers []offer, n int) (all bool) {
	found := make([]int, len(r.may))
	for i := range offers {
		if class := offers[i].cand.Class; class > 0 {
			found[class-1]++
		}
	}
	r.read, all = make([]bool, len(r.may)), true
	for i, may := range r.may {
		r.read[i] = may && found[i] < n
		all = all && (!may || r.read[i])
	}
	return all
}

// fromOf returns where the class begins on the shelf: its candidates of a lower rank are gone.
func (s *lockedState) fromOf(class int) int64 {
	if class <= len(s.shelfFroms) {
		return max(s.shelfFrom, s.shelfFroms[class-1])
	}
	return s.shelfFrom
}

// nextRanks is nextRank by class, and the lowest of all.
func (r *round) nextRanks(offers []offer, gone []bool) (lowest int64, froms []int64) {
	froms = make([]int64, len(r.may))
	for i := range froms {
		if froms[i] = r.state.fromOf(i + 1); r.read != nil && r.read[i] {
			froms[i] = math.MaxInt64
		}
	}
	for i := len(offers) - 1; i >= 0; i-- { // at last the first that stays
		class := offers[i].cand.Class - 1
		switch {
		case !r.may[class]:
		case !gone[i]:
			froms[class] = offers[i].cand.Rank
		case froms[class] <= offers[i].cand.Rank:
			froms[class] = offers[i].cand.Rank + 1
		}
	}
	return slices.Min(froms), froms
}

// takeByClass is take for a result whose items need something.
func (o *runResult) takeByClass(ctx context.Context, r *round, n int) ([]offer, bool, error) {
	of := make([][]int, len(o.Needs)) // by class, which of the items
	for i := range o.Items {
		class := o.Items[i].Class - 1
		of[class] = append(of[class], i)
	}
	var free []offer
	found := make([]int, len(of))
	others := 0 // found in classes that nobody may have who waits
	for quota := n + 8; ; quota *= 4 {
		var next []int
		rest := quota
		for class := range of {
			most := quota
			if !r.may[class] {
				most = rest
			}
			if r.may[class] && found[class] >= n || !r.may[class] && others >= n {
				continue
			}
			most = min(most, len(of[class]))
			next = append(next, of[class][:most]...)
			if of[class] = of[class][most:]; !r.may[class] {
				rest -= most
			}
		}
		if len(next) == 0 {
			break
		}
		part := make([]ranking.Candidate, len(next))
		for i, at := range next {
			part[i] = o.Items[at]
		}
		offers, err := o.available(ctx, r, part, len(part))
		if err != nil {
			return nil, false, err
		}
		for _, f := range offers {
			class := f.cand.Class - 1
			if found[class]++; !r.may[class] && f.Slots > len(f.Taken) && !f.Busy {
				others++
			}
		}
		free = append(free, offers...)
	}
	slices.SortFunc(free, byRank)
	return free, r.readAll(free, n), nil
}

// InboxNeeds is what an item i of an inbox needs.
const InboxNeeds = `case when i.needs_until is null or i.needs_until > clock_timestamp() then (
    select s.needs->(i.class - 1)->'needs' from getwork.task_state s where s.task_id = i.task_id) end`

const (
	// needless is the class of an inbox's items that need nothing.
	needless = 1

	// dropNeeds lets items go to everybody whose needs end. Like fallDue it takes some, and the loop's next round the rest.
	dropNeeds = `
update getwork.item i set class = 1, needs_until = null
where i.id in (
  select n.id from getwork.item n
  where n.task_id = $1 and n.done_at is null and n.needs_until <= (select clock_timestamp())
  order by n.needs_until
  limit 1000)`

	ofInboxClass = `
  select i.class, i.priority, i.id, c.item, c.details::text, i.deadline, i.from_work, st.until, ` + CompletedOf + `, ` + AvailabilityColumns + `
  from getwork.item i
  cross join lateral (select i.item, i.details, ` + InboxPlaces + ` as slots, i.exclusive) c
  ` + nothingSeen + Availability + `
  where i.class = k.class and %[2]s` + inboxTail + `%[1]s`

	ofInboxByClass = `
select b.* from (
  select b.* from unnest($5::smallint[]) k (class) cross join lateral (%s) b
  union all
  (select b.* from unnest($6::smallint[]) k (class) cross join lateral (%s) b%s)
) b
order by b.priority desc, b.id`
)

var (
	selectInboxByClass = func(limit string) string {
		return fmt.Sprintf(ofInboxByClass, fmt.Sprintf(ofInboxClass, limit, ""),
			fmt.Sprintf(ofInboxClass, limit, "not eyes.busy and coalesce(cardinality(st.taken), 0) < c.slots and "), limit)
	}

	// Items of no class are from older nodes, or from before their needs were known.
	selectUnclassed = inboxHead + Availability + ` where i.class is null and ` + inboxTail
)

// takeByClass is take for an inbox whose items need something. What has no class comes last: to look for it in front of all others would
// mean to read them.
func (b *inbox) takeByClass(ctx context.Context, r *round, n int) ([]offer, bool, error) {
	if _, err := r.tx.Exec(ctx, r.e.SQL(dropNeeds), r.task); err != nil {
		return nil, false, err
	}
	own, others := r.split()
	limit, _ := atMost(n)
	rows, err := r.tx.Query(ctx, r.e.SQL(selectInboxByClass(limit)), r.task, b.state.conflicts, b.state.Slots, b.state.DoneBy, own, others)
	var offers []offer
	if err == nil {
		offers, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (o offer, err error) {
			var priority int32
			var id int64
			var completed []string
			err = scanAvailability(row, &o, &o.cand.Class, &priority, &id, &o.cand.Item, &o.cand.Details, &o.cand.Deadline, &o.from, &o.until, &completed)
			DifferentUsers(&o.Item, completed)
			o.Needs = b.state.needs.of(o.cand.Class)
			return o, err
		})
	}
	all := r.readAll(offers, n)
	if err != nil || !all {
		return offers, all, err
	}
	rows, err = r.tx.Query(ctx, r.e.SQL(selectUnclassed+limit), r.task, b.state.conflicts, b.state.Slots, b.state.DoneBy)
	var unclassed []offer
	if err == nil {
		unclassed, err = pgx.CollectRows(rows, scanPushed)
	}
	offers = append(offers, unclassed...)
	if err == nil && len(offers) == 0 {
		err = b.isEmpty(ctx, r)
	}
	return offers, len(unclassed) < n, err
}

const (
	selectNeeds = `select needs from getwork.task_state where task_id = $1`
	updateNeeds = `update getwork.task_state set needs = $2::jsonb where task_id = $1`

	// usedClasses finds one class after the other.
	usedClasses = `
select k.class from generate_series(2, $2) k (class)
where exists (select from getwork.item i where i.task_id = $1 and i.class = k.class and i.done_at is null)`

	// classify gives a class to items that were pushed before any needed something.
	classify = `
update getwork.item i set class = 1
where i.id in (select c.id from getwork.item c where c.task_id = $1 and c.class is null and c.done_at is null limit %s)`
)

// classify begins to give all items of an inbox a class if these are the first that need something. It does so in small steps, before
// knowNeeds, which then finds little left.
func (e *Engine) classify(ctx context.Context, task int64, c itemColumns) error {
	if len(c.sets) == 0 {
		return nil
	}
	var known classes
	if err := e.DB.QueryRow(ctx, e.SQL(selectNeeds), task).Scan(&known); err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("read what items need: %w", err)
	}
	const step = 5000
	for known == nil {
		changed, err := e.write(ctx, fmt.Sprintf(classify, strconv.Itoa(step)), task)
		if err != nil {
			return fmt.Errorf("classify items: %w", err)
		}
		if changed.RowsAffected() < step {
			break
		}
	}
	return nil
}

// knowNeeds adds to what an inbox knows that its items need. New sets lock the task's state against pushes, too: whatever is pushed later
// sees them, and has a class.
func (e *Engine) knowNeeds(ctx context.Context, tx pgx.Tx, task int64, sets [][]string) error {
	if len(sets) == 0 {
		return nil
	}
	var known classes
	for _, lock := range []string{"", " for update"} {
		known = nil
		err := tx.QueryRow(ctx, e.SQL(selectNeeds)+lock, task).Scan(&known)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read what items need: %w", err)
		}
		sets = slices.DeleteFunc(slices.Clone(sets), known.has)
		if len(sets) == 0 {
			return nil
		}
	}
	if known == nil {
		if _, err := tx.Exec(ctx, e.SQL(fmt.Sprintf(classify, "all")), task); err != nil {
			return fmt.Errorf("classify items: %w", err)
		}
		known = classes{{Needs: []string{}}}
	}
	if len(known)+len(sets) > ranking.MaxClasses {
		var err error
		if sets, err = e.reuse(ctx, tx, task, known, sets); err != nil {
			return err
		}
	}
	for _, s := range sets {
		known = append(known, ranking.NeedSet{Needs: s})
	}
	if _, err := tx.Exec(ctx, e.SQL(updateNeeds), task, known.json()); err != nil {
		return fmt.Errorf("keep what items need: %w", err)
	}
	return nil
}

func (c classes) has(set []string) bool {
	return slices.ContainsFunc(c, func(s ranking.NeedSet) bool { return slices.Equal(s.Needs, set) })
}

// reuse puts new sets in the place of those that no open item has, as far as there is no room for more, and returns the others.
func (e *Engine) reuse(ctx context.Context, tx pgx.Tx, task int64, known classes, sets [][]string) ([][]string, error) {
	rows, err := tx.Query(ctx, e.SQL(usedClasses), task, len(known))
	var used []int
	if err == nil {
		used, err = pgx.CollectRows(rows, pgx.RowTo[int])
	}
	if err != nil {
		return nil, fmt.Errorf("read which needs are in use: %w", err)
	}
	for class := needless + 1; class <= len(known) && len(sets) > 0; class++ {
		if !slices.Contains(used, class) {
			known[class-1], sets = ranking.NeedSet{Needs: sets[0]}, sets[1:]
		}
	}
	if len(known)+len(sets) > ranking.MaxClasses {
		return nil, assign.Refuse(assign.Invalid, "the open items of an inbox may need at most %d different sets of groups and skills; nothing was pushed", ranking.MaxClasses-1)
	}
	return sets, nil
}

// A fresh shelf or an inbox serves them when their task is woken. Without one a run is needed, and they are a reason for it at once.
const lookAgain = `
with mine as (
  select r.id, r.task_id, r.targets
  from getwork.work_requested r
  where r.user_name = $1 and r.state = 'pending' and r.linger_until is not null
  order by r.id
  for update
), early as (
  update getwork.work_requested r
  set look_after = least(r.look_after, clock_timestamp())
  from mine m
  join getwork.task_state s on s.task_id = m.task_id
  join getwork.task_version v on v.task_id = s.task_id and v.version = s.version
  where r.id = m.id and r.state = 'pending' and v.query is not null and ` + records.ShelfFresh + ` is not true
)
select m.task_id, m.id, coalesce(m.targets, array[m.task_id]) from mine m`

// LookAgain makes what a user lingers for look again, because they may have more now. It returns the tasks that are to be woken after
// the commit, whose lingering requests are to be served. If that node dies, or a click commits beside it, they look again when they
// would have.
func (e *Engine) LookAgain(ctx context.Context, tx pgx.Tx, user string) (tasks []int64, changes []notify.Change, err error) {
	rows, err := tx.Query(ctx, e.SQL(lookAgain), user)
	if err != nil {
		return nil, nil, fmt.Errorf("look again: %w", err)
	}
	var task, id int64
	var of []int64
	if _, err := pgx.ForEachRow(rows, []any{&task, &id, &of}, func() error {
		for _, task := range of {
			if !slices.Contains(tasks, task) {
				tasks = append(tasks, task)
			}
		}
		changes = append(changes, notify.Change{Task: task, Requests: []int64{id}})
		of = nil
		return nil
	}); err != nil {
		return nil, nil, fmt.Errorf("look again: %w", err)
	}
	return tasks, changes, nil
}
