package manage

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"getwork/assign"
	"getwork/assign/audit"
	"getwork/assign/engine"
	"getwork/assign/pg"
	"getwork/assign/records"
)

// insertVersion writes a version, which names the others.
func insertVersion(ctx context.Context, e *engine.Engine, tx pgx.Tx, task int64, version int, s assign.Settings, of others, by string) error {
	values, err := records.FromSettings(&s, of.conflicts, of.onward)
	if err == nil {
		_, err = tx.Exec(ctx, e.SQL(records.InsertVersion), append([]any{task, version, by}, values...)...)
	}
	return err
}

const (
	insertTask  = `insert into getwork.task default values returning id`
	insertState = `insert into getwork.task_state (task_id, name, version, paused) values ($1, $2, 1, $3)`
)

// CreateTask adds a task. PostgreSQL parses its query and its recheck first, without running them: [assign.QueryRefused]
// carries its error. [assign.Exists]: the name is taken.
func CreateTask(ctx context.Context, e *engine.Engine, s assign.Settings, by string) (assign.Task, error) {
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
	err := pg.Transact(ctx, e.DB, func(tx pgx.Tx) error {
		if err := tx.QueryRow(ctx, e.SQL(insertTask)).Scan(&id); err != nil {
			return err
		}
		others, err := lockOthers(ctx, e, tx, id, &s)
		if err != nil {
			return err
		}
		if err := insertVersion(ctx, e, tx, id, 1, s, others, by); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, e.SQL(insertState), id, s.Name, s.Paused); err != nil {
			return err
		}
		if err := setConflicts(ctx, e, tx, id, others.conflicts); err != nil {
			return err
		}
		return e.Audit.Write(ctx, tx, audit.Act{Act: "task.create", Object: s.Name, Detail: audit.TextsOf(&s)})
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
    usual = case when $5 then null else usual end, longest = case when $5 then null else longest end,
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
func UpdateTask(ctx context.Context, e *engine.Engine, name string, version int, by string, change func(*assign.Settings) error) (assign.Task, error) {
	return update(ctx, e, name, version, by, 0, change)
}

const (
	anyHeld = `select exists (select from getwork.work where task_id = $1 and state = 'held')`

	// settlePlaces concerns items that have one place by the task's new slots and done_by ($2, $3), and had several by the old ones ($4,
	// $5), or the other way round, while nobody holds any. With one place, an item whose work is
	// put off or never to return leaves the index of ready items. With several, such work binds its own holder alone, and others can
	// have the item.
	settlePlaces = `
update getwork.item i
set due_at = case when p.several then nullif(i.due_at, b.until) else greatest(i.due_at, b.until) end
from (
  select w.item, max(coalesce(w.available_at, 'infinity')) as until
  from ` + records.Binding + ` w
  where w.task_id = $1 and ` + records.Blocks + `
  group by w.item
) b
join getwork.item o on o.task_id = $1 and o.item = b.item and o.done_at is null and o.exclusive is null
cross join lateral (select greatest(coalesce(o.slots, $2), coalesce(o.done_by, $3)) > 1 as several,
  greatest(coalesce(o.slots, $4), coalesce(o.done_by, $5)) > 1 as had) p
where i.id = o.id and p.several <> p.had`

	// finishCompleted is for a lower done_by: as many have completed these items. Nobody works on for them in vain, but for those who hold
	// one already, and whoever completes it then completes what is done.
	finishCompleted = `
update getwork.item i
set done_at = clock_timestamp()
where i.task_id = $1 and i.done_at is null and i.done_by is null and i.exclusive is null and cardinality(i.completed_by) >= $2`
)

// update is [UpdateTask]. restored is the version whose settings change gives back; 0: of none.
func update(ctx context.Context, e *engine.Engine, name string, version int, by string, restored int, change func(*assign.Settings) error) (assign.Task, error) {
	t, err := e.Records.Task(ctx, name)
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
		if err := e.Ranker.TryQuery(ctx, s.Query); err != nil {
			return assign.Task{}, err
		}
	}
	if s.Recheck != t.Recheck && s.Recheck != "" {
		if err := e.Ranker.TryRecheck(ctx, s.Recheck); err != nil {
			return assign.Task{}, err
		}
	}
	var partners []int64 // the tasks that conflicted until now
	err = pg.Transact(ctx, e.DB, func(tx pgx.Tx) error {
		others, err := lockOthers(ctx, e, tx, t.ID, &s)
		if err != nil {
			return err
		}
		if partners, err = e.Partners(ctx, tx, t.ID); err != nil {
			return err
		}
		var current int
		var deleted, paused bool
		if err := tx.QueryRow(ctx, e.SQL(lockState), t.ID).Scan(&current, &deleted, &paused); err != nil {
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
		if err := insertVersion(ctx, e, tx, t.ID, version+1, s, others, by); err != nil {
			return err
		}
		if err := setConflicts(ctx, e, tx, t.ID, others.conflicts); err != nil {
			return err
		}
		other := s.Query != t.Query || s.Slots != t.Slots
		var shorter *assign.Duration
		if s.FreshFor < t.FreshFor {
			shorter = &s.FreshFor
		}
		if _, err := tx.Exec(ctx, e.SQL(updateSettings), t.ID, version+1, s.Name, s.Paused, other, other || s.FreshFor == 0, shorter); err != nil {
			return err
		}
		if s.Inbox() && ((s.Slots > 1) != (t.Slots > 1) || (s.DoneBy > 1) != (t.DoneBy > 1)) {
			var held bool
			if err := tx.QueryRow(ctx, e.SQL(anyHeld), t.ID).Scan(&held); err != nil {
				return err
			}
			if held {
				return assign.Refuse(assign.InUse, "somebody holds work of task %q, so its slots and done_by don't change from or to 1; pause it, and release or await what is held", t.Name)
			}
			if _, err := tx.Exec(ctx, e.SQL(settlePlaces), t.ID, s.Slots, s.DoneBy, t.Slots, t.DoneBy); err != nil {
				return err
			}
		}
		if s.DoneBy < t.DoneBy {
			if _, err := tx.Exec(ctx, e.SQL(finishCompleted), t.ID, s.DoneBy); err != nil {
				return err
			}
		}
		if _, err := tx.Exec(ctx, e.SQL(lookAtOnce), t.ID); err != nil {
			return err
		}
		return e.Audit.Write(ctx, tx, changed(&t.Settings, &s, version+1, restored))
	})
	if err != nil {
		return assign.Task{}, nameTaken(err, s.Name, "update task")
	}
	if slices.Equal(s.ConflictsWith, t.ConflictsWith) {
		partners = nil // nothing became free there, and waking them in vain would put off their next run
	}
	settingsChanged(e, t.ID, partners...)
	return e.Records.Task(ctx, s.Name)
}

// settingsChanged wakes what a change concerns: a run that must stop, and requests that can be served now, including those of
// the tasks that it conflicted with, because a rule may have gone that barred users there.
func settingsChanged(e *engine.Engine, task int64, partners ...int64) {
	e.Announce.Settings(task)
	e.Poke(task)
	e.Wake(task)
	e.TaskChanged(task)
	for _, p := range partners {
		e.WakeLingering(p)
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
func DeleteTask(ctx context.Context, e *engine.Engine, name string, only int) error {
	t, err := e.Records.Task(ctx, name)
	if err != nil {
		return err
	}
	var partners []int64
	err = pg.Transact(ctx, e.DB, func(tx pgx.Tx) (err error) {
		if partners, err = deleteTask(ctx, e, tx, t, only); err != nil {
			return err
		}
		return e.Audit.Write(ctx, tx, audit.Act{Act: "task.delete", Object: t.Name})
	})
	var refusal *assign.Refusal
	if err != nil && !errors.As(err, &refusal) {
		return fmt.Errorf("delete task: %w", err)
	}
	if err == nil {
		settingsChanged(e, t.ID, partners...)
	}
	return err
}

const namedByOthers = `
select coalesce(min(s.name), '')
from getwork.task_state s join getwork.task_version v on v.task_id = s.task_id and v.version = s.version
where ($1 = any(v.conflicts_with) or (v.on_complete->>'task_id')::bigint = $1) and s.deleted_at is null and s.task_id <> $1`

// deleteTask deletes a task, unless it is in use, and returns the tasks that it conflicted with.
func deleteTask(ctx context.Context, e *engine.Engine, tx pgx.Tx, t assign.Task, only int) (partners []int64, err error) {
	var version int
	var deleted, used bool
	if err := tx.QueryRow(ctx, e.SQL(lockToDelete), t.ID).Scan(&version, &deleted); err != nil {
		return nil, err
	}
	if deleted {
		return nil, assign.Refuse(assign.NotFound, "task %q was deleted", t.Name)
	}
	if only != 0 && only != version {
		return nil, assign.Refuse(assign.StaleVersion, "task %q is at version %d, not %d; read it again before you delete it", t.Name, version, only)
	}
	if err := tx.QueryRow(ctx, e.SQL(taskInUse), t.ID).Scan(&used); err != nil {
		return nil, err
	}
	if used {
		return nil, assign.Refuse(assign.InUse, "somebody holds work of task %q or waits for it; pause it, and delete it when they are done", t.Name)
	}
	var naming string
	if err := tx.QueryRow(ctx, e.SQL(namedByOthers), t.ID).Scan(&naming); err != nil {
		return nil, err
	}
	if naming != "" {
		return nil, assign.Refuse(assign.InUse, "task %q names task %q in conflicts_with or on_complete; take it out there first", naming, t.Name)
	}
	if partners, err = e.Partners(ctx, tx, t.ID); err != nil {
		return nil, err
	}
	if _, err := tx.Exec(ctx, e.SQL(forgetConflicts), t.ID); err != nil {
		return nil, err
	}
	_, err = tx.Exec(ctx, e.SQL(markDeleted), t.ID)
	return partners, err
}

// Restore gives a task the settings of version n, as its newest version. Its name stays, since another task may have the old
// one, and so does whether it is paused. Conflicts with tasks that were deleted since are left out. only is the version that
// the caller has seen: if the task is at another, Restore is refused with [assign.StaleVersion]; 0: any version.
// [assign.NotFound] if there was no version n. check may refuse the change; nil: it is not asked.
func Restore(ctx context.Context, e *engine.Engine, task string, n, only int, by string, check func(before, after *assign.Settings) error) (assign.Task, error) {
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
		restored, err := update(ctx, e, task, t.Version, by, n, func(s *assign.Settings) error {
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

const (
	// The assign lock: no round decides meanwhile. The run lock is not taken, so a pause does not wait for a query.
	lockPaused = `select version, name, paused, deleted_at is not null from getwork.task_state where task_id = $1 for no key update`

	insertPause = `
insert into getwork.task_pause (task_id, version, n, paused, by)
select $1, $2, coalesce((select p.n from getwork.task_pause p where p.task_id = $1 order by p.version desc, p.n desc limit 1), 0) + 1, $3, $4`
)

// SetPaused pauses or resumes a task. Unlike [UpdateTask] it makes no version, so it disturbs nobody who edits the
// task at the same time; [records.Records.TaskLog] lists it. A task that is paused already stays as it is. only is the version
// that the caller has seen: if the task is at another, SetPaused is refused with [assign.StaleVersion]; 0: any version.
func SetPaused(ctx context.Context, e *engine.Engine, name string, paused bool, only int, by string) (assign.Task, error) {
	t, err := e.Records.Task(ctx, name)
	if err != nil {
		return assign.Task{}, err
	}
	changes := false
	err = pg.Transact(ctx, e.DB, func(tx pgx.Tx) error {
		var version int
		var was, deleted bool
		if err := tx.QueryRow(ctx, e.SQL(lockPaused), t.ID).Scan(&version, &t.Name, &was, &deleted); err != nil {
			return err
		}
		if deleted {
			return assign.Refuse(assign.NotFound, "task %q was deleted", name)
		}
		if only != 0 && only != version {
			return assign.Refuse(assign.StaleVersion, "task %q is at version %d, not %d; read it again, or pause it without If-Match", name, version, only)
		}
		if changes = was != paused; !changes {
			return nil
		}
		if _, err := tx.Exec(ctx, e.SQL(insertPause), t.ID, version, paused, by); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, e.SQL(updateSettings), t.ID, version, t.Name, paused, false, false, nil); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, e.SQL(lookAtOnce), t.ID); err != nil {
			return err
		}
		act := "task.resume"
		if paused {
			act = "task.pause"
		}
		return e.Audit.Write(ctx, tx, audit.Act{Act: act, Object: t.Name, Detail: map[string]int{"version": version}})
	})
	var refusal *assign.Refusal
	switch {
	case errors.As(err, &refusal):
		return assign.Task{}, refusal
	case err != nil:
		return assign.Task{}, fmt.Errorf("pause task: %w", err)
	case changes:
		settingsChanged(e, t.ID)
	}
	return e.Records.Task(ctx, t.Name)
}

// changed describes that a task was changed from before to after, as its version n; as it was in version restored, if that
// is not 0.
func changed(before, after *assign.Settings, n, restored int) audit.Act {
	detail := struct {
		Version  int      `json:"version"`
		Restored int      `json:"restored,omitempty"`
		Changed  []string `json:"changed"` // the names of the settings
		Name     string   `json:"name,omitempty"`
		audit.Texts
	}{Version: n, Restored: restored, Changed: differences(before, after), Texts: audit.TextsOf(after)}
	if after.Name != before.Name {
		detail.Name = after.Name
	}
	act := "task.update"
	switch {
	case restored != 0:
		act = "task.restore"
	case len(detail.Changed) != 1 || detail.Changed[0] != "paused":
	case after.Paused:
		act = "task.pause"
	default:
		act = "task.resume"
	}
	return audit.Act{Act: act, Object: before.Name, Detail: detail}
}

// differences returns the names of the settings that are not the same.
func differences(one, other *assign.Settings) (names []string) {
	fields := func(s *assign.Settings) (m map[string]json.RawMessage) {
		b, _ := json.Marshal(s)
		_ = json.Unmarshal(b, &m)
		return m
	}
	was, is := fields(one), fields(other)
	names = []string{}
	for _, name := range slices.Sorted(maps.Keys(is)) {
		if !bytes.Equal(was[name], is[name]) {
			names = append(names, name)
		}
	}
	return names
}

// nameTaken returns the error of a transaction that wrote a task's name. A name that is taken is refused with [assign.Exists]. Only
// the unique index decides that: two managers may take a name at the same moment, and neither sees the other's.
func nameTaken(err error, name, doing string) error {
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) && pgErr.Code == "23505" && pgErr.ConstraintName == "task_state_name" {
		return assign.Refuse(assign.Exists, "there is a task %q already; choose another name, or update that one", name)
	}
	var refusal *assign.Refusal
	if errors.As(err, &refusal) {
		return refusal
	}
	return fmt.Errorf("%s: %w", doing, err)
}
