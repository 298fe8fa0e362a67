package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
	"getwork/assign/audit"
)

const insertVersion = `
insert into getwork.task_version (task_id, version, name, paused, title, description, query, query_timeout, fresh_for,
  max_candidates, max_request, lease, rerun_after, created_by, max_open, slots, max_attempts, backoff, conflicts_with, groups,
  recheck, position, display, stale_for)
values ($1, $2, $3, $4, $5, $6, nullif($7, ''), $8::bigint * interval '1 microsecond', $9::bigint * interval '1 microsecond',
  $10, $11, $12::bigint * interval '1 microsecond', $13::bigint * interval '1 microsecond', $14, $15, $16, $17,
  $18::bigint * interval '1 microsecond', $19, $20, nullif($21, ''), $22, $23, $24::bigint * interval '1 microsecond')`

// taskEditor writes the consequences of a change of a task's settings.
type taskEditor struct{ *Engine }

// insertVersion writes a version; conflicts are the tasks that it names.
func (ed taskEditor) insertVersion(ctx context.Context, tx pgx.Tx, task int64, version int, s assign.Settings, conflicts []int64, by string) error {
	var display *string // as text, because a nil pointer would become JSON's null
	if s.Display != nil {
		b, err := json.Marshal(s.Display)
		if err != nil {
			return fmt.Errorf("encode how items are shown: %w", err)
		}
		text := string(b)
		display = &text
	}
	_, err := tx.Exec(ctx, ed.SQL(insertVersion), task, version, s.Name, s.Paused, s.Title, s.Description, string(s.Query),
		s.QueryTimeout, s.FreshFor, s.MaxCandidates, s.MaxRequest, s.Lease, s.RerunAfter, by,
		s.MaxOpen, s.Slots, s.MaxAttempts, s.Backoff, conflicts, s.Groups, string(s.Recheck),
		s.Position, display, s.StaleFor)
	return err
}

const (
	insertTask  = `insert into getwork.task default values returning id`
	insertState = `insert into getwork.task_state (task_id, name, version, paused) values ($1, $2, 1, $3)`
)

// CreateTask adds a task. PostgreSQL parses its query and its recheck first, without running them: [assign.QueryRefused]
// carries its error. [assign.Exists]: the name is taken.
func (e *Engine) CreateTask(ctx context.Context, s assign.Settings, by string) (assign.Task, error) {
	if err := s.Check(); err != nil {
		return assign.Task{}, err
	}
	if !s.Inbox() {
		if err := e.Ranker.TryQuery(ctx, s.Query); err != nil {
			return assign.Task{}, err
		}
	}
	if s.Recheck != "" {
		if err := e.Ranker.TryRecheck(ctx, s.Recheck); err != nil {
			return assign.Task{}, err
		}
	}
	var id int64
	err := e.transact(ctx, func(tx pgx.Tx) error {
		if err := tx.QueryRow(ctx, e.SQL(insertTask)).Scan(&id); err != nil {
			return err
		}
		others, err := taskEditor{e}.conflictIDs(ctx, tx, id, s.ConflictsWith)
		if err != nil {
			return err
		}
		if err := (taskEditor{e}).lockConflicts(ctx, tx, id, others); err != nil {
			return err
		}
		if others, err = (taskEditor{e}).conflictIDs(ctx, tx, id, s.ConflictsWith); err != nil { // one may have been deleted meanwhile
			return err
		}
		if err := (taskEditor{e}).insertVersion(ctx, tx, id, 1, s, others, by); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, e.SQL(insertState), id, s.Name, s.Paused); err != nil {
			return err
		}
		if err := (taskEditor{e}).setConflicts(ctx, tx, id, others); err != nil {
			return err
		}
		return auditor{e}.write(ctx, tx, audit.Act{Act: "task.create", Object: s.Name, Detail: textsOf(&s)})
	})
	if err != nil {
		return assign.Task{}, nameTaken(err, s.Name, "create task")
	}
	e.Announce.Settings(id)
	return e.Records.Task(ctx, s.Name)
}

const (
	lockState = `select version, deleted_at is not null, paused from getwork.task_state where task_id = $1 for no key update`

	// $5 forgets how long the query takes, $6 empties the shelf, and $7 is a fresh_for by which the shelf ends sooner. It then counts as
	// expired if that time is past, unless it has ended early.
	updateSettings = `
update getwork.task_state
set version = $2, name = $3, paused = $4,
    failures = 0, failed_until = null, last_error = null, retries = 0, retry_at = null, retry_since = null,
    usual = case when $5 then null else usual end, longest = case when $5 then null else longest end, measured = not $5 and measured,
    shelf_run = case when $6 then null else shelf_run end,
    fresh_until = case when $6 then null else least(fresh_until, ` + shelfEndsBy + `) end,
    expires_at = case when $6 then null when expires_at = fresh_until then least(expires_at, ` + shelfEndsBy + `) else expires_at end
where task_id = $1`
	shelfEndsBy = `(select u.finished_at + $7::bigint * interval '1 microsecond' from getwork.run u where u.id = shelf_run)`

	// Lingering requests may have been waiting for just this change. In the order of ids, as every round locks them.
	lookAtOnce = `
with lingering as materialized (
  select id from getwork.work_requested where task_id = $1 and state = 'pending' and look_after is not null order by id for update
)
update getwork.work_requested r set look_after = null from lingering l where r.id = l.id`
)

// UpdateTask changes the task of that name by change, if its version is still the given one ([assign.StaleVersion]
// otherwise). It takes the assign lock, never the run lock, so a manager does not wait for a query. A changed query
// or slots empties the shelf. If these, the recheck or max_candidates change, a run under way starts over. A changed recheck leaves the
// shelf alone, and the next round asks it. With a shorter fresh_for the shelf ends sooner; a longer one is for the next shelf. Every
// change ends the back-off after a failed run. change may be called twice: again if the task was paused or resumed meanwhile.
func (e *Engine) UpdateTask(ctx context.Context, name string, version int, by string, change func(*assign.Settings) error) (assign.Task, error) {
	return taskEditor{e}.update(ctx, name, version, by, 0, change)
}

// update is [Engine.UpdateTask]. restored is the version whose settings change gives back; 0: of none.
func (ed taskEditor) update(ctx context.Context, name string, version int, by string, restored int, change func(*assign.Settings) error) (assign.Task, error) {
	t, err := ed.Records.Task(ctx, name)
	if err != nil {
		return assign.Task{}, err
	}
	s := t.Clone()
	if err := change(&s); err != nil {
		return assign.Task{}, err
	}
	if err := s.Check(); err != nil {
		return assign.Task{}, err
	}
	if s.Inbox() != t.Inbox() {
		return assign.Task{}, assign.RefuseField("query", "a task with a query does not become an inbox, nor an inbox one with a query; make a new task")
	}
	if s.Query != t.Query {
		if err := ed.Ranker.TryQuery(ctx, s.Query); err != nil {
			return assign.Task{}, err
		}
	}
	if s.Recheck != t.Recheck && s.Recheck != "" {
		if err := ed.Ranker.TryRecheck(ctx, s.Recheck); err != nil {
			return assign.Task{}, err
		}
	}
	var partners []int64 // the tasks that conflicted until now
	err = ed.transact(ctx, func(tx pgx.Tx) error {
		others, err := ed.conflictIDs(ctx, tx, t.ID, s.ConflictsWith)
		if err != nil {
			return err
		}
		if err := ed.lockConflicts(ctx, tx, t.ID, others); err != nil {
			return err
		}
		if others, err = ed.conflictIDs(ctx, tx, t.ID, s.ConflictsWith); err != nil { // one may have been deleted meanwhile
			return err
		}
		if partners, err = ed.partners(ctx, tx, t.ID); err != nil {
			return err
		}
		var current int
		var deleted, paused bool
		if err := tx.QueryRow(ctx, ed.SQL(lockState), t.ID).Scan(&current, &deleted, &paused); err != nil {
			return err
		}
		if deleted {
			return assign.Refuse(assign.NotFound, "task %q was deleted", name)
		}
		if current != version || t.Version != version {
			return assign.Refuse(assign.StaleVersion, "task %q is at version %d, not %d; read it again and repeat your change", name, max(current, t.Version), version)
		}
		if paused != t.Paused { // since the read, which makes no version; a change that does not name it must not undo it
			t.Paused = paused
			now := t.Clone()
			if err := change(&now); err != nil {
				return err
			}
			s.Paused = now.Paused
		}
		if err := ed.insertVersion(ctx, tx, t.ID, version+1, s, others, by); err != nil {
			return err
		}
		if err := ed.setConflicts(ctx, tx, t.ID, others); err != nil {
			return err
		}
		other := s.Query != t.Query || s.Slots != t.Slots
		var shorter *assign.Duration
		if s.FreshFor < t.FreshFor {
			shorter = &s.FreshFor
		}
		if _, err := tx.Exec(ctx, ed.SQL(updateSettings), t.ID, version+1, s.Name, s.Paused, other, other || s.FreshFor == 0, shorter); err != nil {
			return err
		}
		if (s.Slots > 1) != (t.Slots > 1) {
			if _, err := tx.Exec(ctx, ed.SQL(lockBlocking), t.ID); err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, ed.SQL(settlePlaces), t.ID, s.Slots); err != nil {
				return err
			}
		}
		if _, err := tx.Exec(ctx, ed.SQL(lookAtOnce), t.ID); err != nil {
			return err
		}
		return auditor(ed).write(ctx, tx, changed(&t.Settings, &s, version+1, restored))
	})
	if err != nil {
		return assign.Task{}, nameTaken(err, s.Name, "update task")
	}
	if slices.Equal(s.ConflictsWith, t.ConflictsWith) {
		partners = nil // nothing became free there, and to be served in vain would put off the next run of their lingering requests
	}
	ed.settingsChanged(t.ID, partners...)
	return ed.Records.Task(ctx, s.Name)
}

// settingsChanged wakes what a change concerns: a run that must stop, and requests that can be served now, including those of
// the tasks that it conflicted with, because a rule may have gone that barred users there.
func (ed taskEditor) settingsChanged(task int64, partners ...int64) {
	ed.Announce.Settings(task)
	ed.poke(task)
	ed.Wake(task)
	for _, p := range partners {
		ed.WakeLingering(p)
	}
}

const (
	taskInUse = `
select exists (select from getwork.work where task_id = $1 and state = 'held')
    or exists (select from getwork.work_requested where task_id = $1 and state = 'pending')`

	// Unlike lockState it waits for pushes under way, and they for it: what they push would be lost with the task.
	lockToDelete = `select version, deleted_at is not null from getwork.task_state where task_id = $1 for update`

	markDeleted = `update getwork.task_state set deleted_at = clock_timestamp(), shelf_run = null, fresh_until = null, expires_at = null where task_id = $1`
)

// DeleteTask hides a task and frees its name; history stays. It is refused with [assign.InUse] while work of the task is held
// or requests wait. A request that is recorded meanwhile is cancelled by the next serve loop. only is the version that the caller
// has seen: if the task is at another, DeleteTask is refused with [assign.StaleVersion]; 0: any version.
func (e *Engine) DeleteTask(ctx context.Context, name string, only int) error {
	t, err := e.Records.Task(ctx, name)
	if err != nil {
		return err
	}
	var partners []int64
	err = e.transact(ctx, func(tx pgx.Tx) (err error) {
		if partners, err = (taskEditor{e}).deleteTask(ctx, tx, t, only); err != nil {
			return err
		}
		return auditor{e}.write(ctx, tx, audit.Act{Act: "task.delete", Object: t.Name})
	})
	var refusal *assign.Refusal
	if err != nil && !errors.As(err, &refusal) {
		return fmt.Errorf("delete task: %w", err)
	}
	if err == nil {
		taskEditor{e}.settingsChanged(t.ID, partners...)
	}
	return err
}

// deleteTask deletes a task, unless it is in use, and returns the tasks that it conflicted with.
func (ed taskEditor) deleteTask(ctx context.Context, tx pgx.Tx, t assign.Task, only int) (partners []int64, err error) {
	var version int
	var deleted, used bool
	if err := tx.QueryRow(ctx, ed.SQL(lockToDelete), t.ID).Scan(&version, &deleted); err != nil {
		return nil, err
	}
	if deleted {
		return nil, assign.Refuse(assign.NotFound, "task %q was deleted", t.Name)
	}
	if only != 0 && only != version {
		return nil, assign.Refuse(assign.StaleVersion, "task %q is at version %d, not %d; read it again before you delete it", t.Name, version, only)
	}
	if err := tx.QueryRow(ctx, ed.SQL(taskInUse), t.ID).Scan(&used); err != nil {
		return nil, err
	}
	if used {
		return nil, assign.Refuse(assign.InUse, "somebody holds work of task %q or waits for it; pause it, and delete it when they are done", t.Name)
	}
	var naming string
	if err := tx.QueryRow(ctx, ed.SQL(namedByOthers), t.ID).Scan(&naming); err != nil {
		return nil, err
	}
	if naming != "" {
		return nil, assign.Refuse(assign.InUse, "task %q names task %q in conflicts_with; take it out there first", naming, t.Name)
	}
	if partners, err = ed.partners(ctx, tx, t.ID); err != nil {
		return nil, err
	}
	if _, err := tx.Exec(ctx, ed.SQL(forgetConflicts), t.ID); err != nil {
		return nil, err
	}
	_, err = tx.Exec(ctx, ed.SQL(markDeleted), t.ID)
	return partners, err
}

// Restore gives a task the settings of version n, as its newest version. Its name stays, since another task may have the old
// one, and so does whether it is paused. Conflicts with tasks that were deleted since are left out. only is the version that
// the caller has seen: if the task is at another, Restore is refused with [assign.StaleVersion]; 0: any version.
// [assign.NotFound] if there was no version n. check may refuse the change; nil: it is not asked.
func (e *Engine) Restore(ctx context.Context, task string, n, only int, by string, check func(before, after *assign.Settings) error) (assign.Task, error) {
	for {
		t, err := e.Records.Task(ctx, task)
		if err != nil {
			return assign.Task{}, err
		}
		if only != 0 && only != t.Version {
			return assign.Task{}, assign.Refuse(assign.StaleVersion, "task %q is at version %d, not %d; read it again before you restore one", task, t.Version, only)
		}
		found, err := e.Records.VersionsOf(ctx, t.ID, int64(n)+1, 1)
		if err != nil {
			return assign.Task{}, err
		}
		if len(found) == 0 || found[0].Version != n {
			return assign.Task{}, assign.Refuse(assign.NotFound, "task %q has no version %d; it has 1 to %d", task, n, t.Version)
		}
		restored, err := taskEditor{e}.update(ctx, task, t.Version, by, n, func(s *assign.Settings) error {
			before := *s
			*s = found[0].Settings
			s.Name, s.Paused, s.ConflictsWith = before.Name, before.Paused, found[0].Conflicts
			if check == nil {
				return nil
			}
			return check(&before, s)
		})
		var refusal *assign.Refusal
		if only == 0 && errors.As(err, &refusal) && refusal.Kind == assign.StaleVersion && ctx.Err() == nil {
			continue // somebody has changed the task since we read it, and the caller did not name a version
		}
		return restored, err
	}
}
