package feed

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
	"getwork/assign/records"
)

// resync reads all connected users' pipelines again and delivers them as snapshots. Held answers read their requests again.
func (f *Feed) resync(ctx context.Context) error {
	began := time.Now()
	for part := range slices.Chunk(f.here(), records.MaxBatch) {
		pipelines, _, err := f.config.Records.Pipelines(ctx, part)
		if err != nil {
			return err
		}
		for h, p := range pipelines {
			f.to(h, assign.Event{Type: "snapshot", Body: p})
		}
		if err := f.deliverRounds(ctx); err != nil {
			return err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, subs := range f.holders {
		for _, s := range subs {
			if s.quiet {
				s.deliver(assign.Event{Type: "snapshot"}) // Await then reads its request again
			}
		}
	}
	f.manyAfter = time.Now().Add(min(manyEvery*time.Since(began), manyWithin))
	return nil
}

const (
	manyEvery  = 10              // after reading all users the feed does other things for this many times as long,
	manyWithin = 4 * time.Second // but at most this long, however many unnamed changes come
)

// deliverRounds delivers the rounds that were heard meanwhile, so that nobody's answer waits until all others have been read
// again.
func (f *Feed) deliverRounds(ctx context.Context) error {
	heard := newNews()
	f.mu.Lock()
	if len(f.news.rounds) > 0 {
		heard.rounds, f.news.rounds = f.news.rounds, heard.rounds
		heard.runs, f.news.runs = f.news.runs, heard.runs
	}
	f.mu.Unlock()
	if len(heard.rounds) == 0 {
		return nil
	}
	return f.deliverRequests(ctx, heard)
}

// deliverMany reads all users again who may be concerned by changes that were too many to be named.
func (f *Feed) deliverMany(ctx context.Context, n news) error {
	if !n.many || n.gap { // resync has read all users
		return nil
	}
	if wait := time.Until(f.manyAfter); wait > 0 {
		f.putOff(wait, func(n *news) { n.many = true })
		return nil
	}
	return f.resync(ctx)
}

// selectNews reads the requests of some rounds, and some by id. Where ten nodes share ten thousand users, all answered
// requests would be too many; $3 then names the users who follow on this node.
const selectNews = `
select ` + records.RequestColumns + `
from (
  select r.* from getwork.work_requested r
  where r.round_id = any($1::bigint[])
  union all
  select r.* from getwork.work_requested r
  where r.id = any($2::bigint[]) and (r.round_id is null or r.round_id <> all($1::bigint[]))
) r left join getwork.task_state s using (task_id)
where $3::text[] is null or r.user_name in (select unnest($3::text[]))
order by r.id`

// deliverRequests delivers requests to their owners, and runs to the holders who wait on the task or follow it. A holder whom
// a run has answered gets the end of the run together with the answer.
func (f *Feed) deliverRequests(ctx context.Context, n news) error {
	began := f.config.Trace.Now()
	runs, requests, err := f.readNews(ctx, n)
	if err != nil {
		return fmt.Errorf("read the rounds' requests: %w", err)
	}
	told := map[taskHolder]bool{}
	var events []assign.Event
	var pushed []int64
	err = f.config.Records.Fill(ctx, requests, func(r *assign.Request) {
		events = append(events[:0], runs[r.LineID].events...)
		if len(events) > 0 {
			told[taskHolder{r.LineID, r.Holder()}] = true
		}
		at := len(events)
		if r.State == assign.Pending { // a request comes before the start of its run, but an answer after the run's end
			at = 0
		}
		events = slices.Insert(events, at, assign.Event{Type: "request", Body: r, Request: r})
		live := f.to(r.Holder(), events...)
		if live && f.config.Trace != nil && r.State != assign.Pending {
			pushed = append(pushed, r.ID)
		}
	})
	f.config.Trace.Pushed(began, pushed)
	if err != nil {
		return err
	}
	return f.deliverRuns(ctx, runs, told)
}

// readNews reads the events of runs, by their tasks, and the requests of the users who follow on this node, in one exchange.
func (f *Feed) readNews(ctx context.Context, n news) (runs map[int64]taskRuns, requests []assign.Request, err error) {
	var batch pgx.Batch
	if len(n.runs) > 0 {
		batch.Queue(f.config.SQL(selectRunNews), keys(n.runs)).Query(func(rows pgx.Rows) (err error) {
			runs, err = runEvents(rows)
			return err
		})
	}
	if len(n.rounds)+len(n.requests) > 0 {
		most := len(n.requests)
		for _, answered := range n.rounds {
			most += answered
		}
		batch.Queue(f.config.SQL(selectNews), keys(n.rounds), keys(n.requests), f.users(most)).Query(func(rows pgx.Rows) (err error) {
			requests, err = pgx.CollectRows(rows, records.NewRequestScan().Scan)
			return err
		})
	}
	if batch.Len() == 0 {
		return nil, nil, nil
	}
	if err := f.config.DB.SendBatch(ctx, &batch).Close(); err != nil {
		return nil, nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return runs, slices.DeleteFunc(requests, func(r assign.Request) bool { return len(f.holders[r.Holder()]) == 0 }), nil
}

// users returns the users who follow on this node, or nil if there are at least most of them.
func (f *Feed) users(most int) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.holders) >= most {
		return nil
	}
	users := make([]string, 0, len(f.holders))
	for h := range f.holders {
		users = append(users, h.User)
	}
	return users
}

const selectWorkNews = `
select ` + records.WorkColumns + `
from getwork.work w join getwork.task_state s using (task_id)
where w.id = any($1::bigint[])
order by w.id`

func (f *Feed) deliverWork(ctx context.Context, n news) error {
	if len(n.work) == 0 {
		return nil
	}
	rows, err := f.config.DB.Query(ctx, f.config.SQL(selectWorkNews), keys(n.work))
	if err != nil {
		return fmt.Errorf("read changed work: %w", err)
	}
	works, err := pgx.CollectRows(rows, records.NewWorkScan().Within(&assign.Carried{Most: assign.MaxInFlight}).Scan)
	if err != nil {
		return fmt.Errorf("read changed work: %w", err)
	}
	var reviews []int64
	for i := range works {
		f.to(works[i].Holder(), assign.Event{Type: "work", Body: &works[i]})
		if works[i].From != 0 && works[i].State != assign.WorkHeld {
			reviews = append(reviews, works[i].From)
		}
	}
	return f.deliverReviewed(ctx, reviews)
}

// deliverReviewed delivers completed work to whoever completed it, with what became of the items that went on from it.
func (f *Feed) deliverReviewed(ctx context.Context, ids []int64) error {
	if len(ids) == 0 {
		return nil
	}
	rows, err := f.config.DB.Query(ctx, f.config.SQL(selectWorkNews), ids)
	if err != nil {
		return fmt.Errorf("read reviewed work: %w", err)
	}
	works, err := pgx.CollectRows(rows, records.NewWorkScan().Within(&assign.Carried{Most: assign.MaxInFlight}).Scan)
	if err != nil {
		return fmt.Errorf("read reviewed work: %w", err)
	}
	for i := range works {
		w := &works[i]
		f.mu.Lock()
		here := len(f.holders[w.Holder()]) > 0
		f.mu.Unlock()
		if !here || w.State == assign.WorkHeld {
			continue
		}
		if w.Earlier, err = f.config.Records.Linked(ctx, assign.Work{ID: w.ID, TaskID: w.TaskID, Item: w.Item}, false); err != nil {
			return err
		}
		if len(w.Earlier) > 0 {
			f.to(w.Holder(), assign.Event{Type: "work", Body: w})
		}
	}
	return nil
}

const selectAbsenceNews = `select ` + records.AbsenceColumns + ` from getwork.absence a where a.id = any($1::bigint[]) order by a.id`

// deliverAbsences delivers absences that were entered or have ended to their users, whatever instances of them follow.
func (f *Feed) deliverAbsences(ctx context.Context, n news) error {
	if len(n.absences) == 0 {
		return nil
	}
	rows, err := f.config.DB.Query(ctx, f.config.SQL(selectAbsenceNews), keys(n.absences))
	var absences []assign.Absence
	if err == nil {
		absences, err = pgx.CollectRows(rows, records.ScanAbsence)
	}
	if err != nil {
		return fmt.Errorf("read changed absences: %w", err)
	}
	of := map[string][]assign.Event{}
	for _, a := range absences {
		of[a.User] = append(of[a.User], assign.Event{Type: "absence", Body: a})
	}
	for _, h := range f.here() {
		if events := of[h.User]; events != nil {
			f.to(h, events...)
		}
	}
	return nil
}

const (
	selectRunNews = `
select u.id, u.task_id, s.name, u.state, u.candidates, ` + records.RunMS + `,
  case when u.state = 'running' then ` + records.TimeLeft + ` end, v.groups
from getwork.run u join getwork.task_state s on s.task_id = u.task_id
join getwork.task_version v on v.task_id = s.task_id and v.version = s.version
where u.id = any($1::bigint[])
order by u.id`

	selectWaitingHolders = `
select r.task_id, r.user_name, r.instance
from getwork.work_requested r
where r.task_id = any($1::bigint[]) and r.state = 'pending'
  and ($2::text[] is null or r.user_name in (select unnest($2::text[])))
union all
select r.todo[1], r.user_name, r.instance
from getwork.work_requested r
where r.task_id = 0 and r.todo[1] = any($1::bigint[]) and r.state = 'pending'
  and ($2::text[] is null or r.user_name in (select unnest($2::text[])))`
)

// phases maps a run's state to what its event says.
var phases = map[string]string{"running": "started", "finished": "finished", "failed": "failed", "cancelled": "cancelled", "lost": "failed"}

// taskRuns are the events of a task's runs, and the groups that may see the task.
type taskRuns struct {
	events []assign.Event
	groups []string
}

// runEvents returns the events of runs, by their tasks.
func runEvents(rows pgx.Rows) (map[int64]taskRuns, error) {
	runs := map[int64]taskRuns{}
	var e assign.RunEvent
	var task int64
	var state string
	var groups []string
	_, err := pgx.ForEachRow(rows, []any{&e.ID, &task, &e.Task, &state, &e.Candidates, &e.DurationMS, &e.EtaSeconds, &groups}, func() error {
		e.Phase = phases[state]
		runs[task] = taskRuns{append(runs[task].events, assign.Event{Type: "run", Body: e}.Shared()), groups}
		return nil
	})
	return runs, err
}

// deliverRuns delivers runs to everybody concerned who is not in told: those who wait on the task, and those who follow it and may
// still see it.
func (f *Feed) deliverRuns(ctx context.Context, runs map[int64]taskRuns, told map[taskHolder]bool) error {
	if len(runs) == 0 {
		return nil
	}
	waiting, err := f.waitingHere(ctx, slices.Collect(maps.Keys(runs)))
	if err != nil {
		return err
	}
	for w := range waiting {
		if !told[w] {
			told[w] = true
			f.to(w.holder, runs[w.task].events...)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for task, its := range runs {
		t := f.topics[its.events[0].Body.(assign.RunEvent).Task]
		if t == nil {
			continue
		}
		for s := range t.followers {
			if !s.quiet && !told[taskHolder{task, s.holder}] && s.who.May(its.groups) { // the task may have got groups meanwhile
				s.deliver(its.events...)
			}
		}
	}
	return nil
}

type taskHolder struct {
	task   int64
	holder assign.Holder
}

// waitingHere returns the holders who wait on one of the tasks: those who follow on this node, and perhaps others, to whom nothing is
// delivered.
func (f *Feed) waitingHere(ctx context.Context, tasks []int64) (map[taskHolder]bool, error) {
	rows, err := f.config.DB.Query(ctx, f.config.SQL(selectWaitingHolders), tasks, f.users(records.MaxBatch))
	if err != nil {
		return nil, fmt.Errorf("read waiting holders: %w", err)
	}
	waiting := map[taskHolder]bool{}
	var w taskHolder
	if _, err := pgx.ForEachRow(rows, []any{&w.task, &w.holder.User, &w.holder.Instance}, func() error {
		waiting[w] = true
		return nil
	}); err != nil {
		return nil, fmt.Errorf("read waiting holders: %w", err)
	}
	return waiting, nil
}

func keys[V any](set map[int64]V) []int64 { return slices.Sorted(maps.Keys(set)) }
