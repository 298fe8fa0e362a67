package manage_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"getwork/assign"
	"getwork/assign/enginetest"
	"getwork/assign/manage"
	"getwork/schema/schematest"
)

func change(t *testing.T, n *enginetest.Node, task string, version int, by string, f func(*assign.Settings)) assign.Task {
	t.Helper()
	changed, err := n.UpdateTask(t.Context(), task, version, by, func(s *assign.Settings) error { f(s); return nil })
	if err != nil {
		t.Fatal(err)
	}
	return changed
}

// Every change makes a version. Restoring an earlier one is a change like any other, but leaves the name and the pause alone.
func TestRestore(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := enginetest.Start(t, url, enginetest.Options{})
	lease := assign.Duration(time.Minute)
	enginetest.NewTask(t, n, "other", `select 1 as item`, nil)
	enginetest.NewTask(t, n, "doomed", `select 1 as item`, nil)
	enginetest.NewTask(t, n, "task", `select 1 as item`, func(s *assign.Settings) {
		s.Position, s.Display = new(7), &assign.Display{Title: "{item}!"}
		s.Title, s.Slots, s.Lease, s.Groups, s.ConflictsWith = "first", 2, &lease, []string{"team"}, []string{"doomed", "other"}
	})
	change(t, n, "task", 1, "ann", func(s *assign.Settings) {
		*s = assign.DefaultSettings()
		s.Name, s.Query, s.Title = "renamed", `select 2 as item`, "second"
	})
	change(t, n, "renamed", 2, "bob", func(s *assign.Settings) { s.Paused = true })
	enginetest.WantKind(t, n.DeleteTask(t.Context(), "doomed", 7), assign.StaleVersion)
	if err := n.DeleteTask(t.Context(), "doomed", 0); err != nil {
		t.Fatal(err)
	}
	enginetest.NewTask(t, n, "doomed", `select 1 as item`, nil)   // another task, which the old version does not mean
	enginetest.NewTask(t, n, "task", `select 'new' as item`, nil) // has the old name now

	versions, err := n.Versions(t.Context(), "renamed", 0, 10)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, v := range versions {
		got = append(got, fmt.Sprintf("%d %s by %s: %s, paused %v, conflicts %v", v.Version, v.Name, v.CreatedBy, v.Title, v.Paused, v.ConflictsWith))
		if time.Since(v.CreatedAt).Abs() > time.Minute {
			t.Errorf("version %d of %s", v.Version, v.CreatedAt)
		}
	}
	want := "3 renamed by bob: second, paused true, conflicts []; 2 renamed by ann: second, paused false, conflicts []; 1 task by a manager: first, paused false, conflicts [doomed other]"
	if got := strings.Join(got, "; "); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if page, err := n.Versions(t.Context(), "renamed", 3, 1); err != nil || len(page) != 1 || page[0].Version != 2 {
		t.Errorf("before 3: %+v, %v", page, err)
	}

	restored, err := n.Restore(t.Context(), "renamed", 1, 3, "cyd", nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprintf("%d %s %s, paused %v, %d slots, lease %s, %v, %v, %s", restored.Version, restored.Name, restored.Title, restored.Paused,
		restored.Slots, restored.Lease, restored.Groups, restored.ConflictsWith, restored.Query); got != "4 renamed first, paused true, 2 slots, lease 1m, [team], [other], select 1 as item" {
		t.Error(got)
	}
	if *restored.Position != 7 || restored.Display.Title != "{item}!" {
		t.Errorf("restored to position %v, display %v", restored.Position, restored.Display)
	}
	if restored, err = n.Restore(t.Context(), "renamed", 3, 0, "cyd", nil); err != nil || restored.Version != 5 || restored.Title != "second" {
		t.Errorf("%+v, %v", restored, err)
	}
	for _, c := range []struct {
		task    string
		n, only int
		kind    assign.Kind
	}{
		{"renamed", 1, 4, assign.StaleVersion},
		{"renamed", 0, 0, assign.NotFound},
		{"renamed", -1, 0, assign.NotFound},
		{"renamed", 6, 5, assign.NotFound},
		{"renamed", 1 << 40, 0, assign.NotFound},
		{"nothing", 1, 0, assign.NotFound},
	} {
		_, err := n.Restore(t.Context(), c.task, c.n, c.only, "cyd", nil)
		enginetest.WantKind(t, err, c.kind)
	}
	_, err = n.Versions(t.Context(), "nothing", 0, 10)
	enginetest.WantKind(t, err, assign.NotFound)
	if now, err := n.Task(t.Context(), "renamed"); err != nil || now.Version != 5 {
		t.Errorf("version %d after refusals, %v", now.Version, err)
	}
}

// A restore that does not name the version seen is not refused because others change the task at the same time.
func TestRestoreBesideChanges(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	url := schematest.URL(t)
	n := enginetest.Start(t, url, enginetest.Options{})
	enginetest.NewTask(t, n, "task", `select 1 as item`, nil)
	const each = 5
	ended := make(chan error)
	for range 3 {
		go func() {
			for range each {
				_, err := n.Restore(t.Context(), "task", 1, 0, "ann", nil)
				ended <- err
			}
		}()
	}
	for range 3 * each {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	if now, err := n.Task(t.Context(), "task"); err != nil || now.Version != 3*each+1 {
		t.Errorf("version %d, want %d; %v", now.Version, 3*each+1, err)
	}
}

// A manager pauses a task while another one's change is under way. The change does not resume it, unless it says so.
func TestPausedMeanwhile(t *testing.T) {
	t.Parallel()
	n := enginetest.Start(t, schematest.URL(t), enginetest.Options{})
	enginetest.NewTask(t, n, "task", `select 1 as item`, nil)
	for i, change := range []struct {
		body   string
		paused bool
	}{{`{"title":"another"}`, true}, {`{"title":"a third","paused":false}`, false}} {
		calls := 0
		changed, err := n.UpdateTask(t.Context(), "task", i+1, "ann", func(s *assign.Settings) error {
			if calls++; calls == 1 {
				if _, err := n.SetPaused(t.Context(), "task", false, 0, "bob"); err != nil {
					return err
				}
				if _, err := n.SetPaused(t.Context(), "task", true, i+1, "bob"); err != nil {
					return err
				}
			}
			return json.Unmarshal([]byte(change.body), s)
		})
		if err != nil || changed.Paused != change.paused || changed.Version != i+2 {
			t.Errorf("%s: paused %t, version %d, %v", change.body, changed.Paused, changed.Version, err)
		}
		if _, err := n.SetPaused(t.Context(), "task", false, i+1, "bob"); !assign.IsRefusal(err, assign.StaleVersion) {
			t.Errorf("paused by a former version: %v", err)
		}
		if _, err := n.SetPaused(t.Context(), "task", false, 0, "bob"); err != nil {
			t.Error(err)
		}
	}
	versions, err := n.Versions(t.Context(), "task", 0, 10)
	if err != nil || len(versions) != 3 || versions[0].Paused || !versions[1].Paused {
		t.Errorf("versions %+v, %v", versions, err)
	}
}

// A change that is decoded into the settings, as the API's is, is told from what was before also where they are pointers or
// lists.
func TestChangesAreNoticed(t *testing.T) {
	t.Parallel()
	n := audited(t, schematest.URL(t))
	five, lease := 5, assign.Duration(time.Minute)
	enginetest.NewTask(t, n, "task", `select 1 as item`, func(s *assign.Settings) {
		s.MaxOpen, s.MaxAttempts, s.Lease, s.Groups = &five, &five, &lease, []string{"desk"}
	})
	if _, err := n.UpdateTask(t.Context(), "task", 1, "ann", func(s *assign.Settings) error {
		return json.Unmarshal([]byte(`{"max_open":6,"max_attempts":6,"lease":"2m","groups":["team"]}`), s)
	}); err != nil {
		t.Fatal(err)
	}
	want := `["groups", "lease", "max_attempts", "max_open"]`
	if got := enginetest.Query[string](t, n.Pools.API, `select detail ->> 'changed' from getwork.audit where act = 'task.update'`); got != want {
		t.Errorf("the audit says that it changed %s, want %s", got, want)
	}
}

// An inbox's places don't become one, nor one becomes several, while somebody holds its work: not by a change, nor by a restored version.
// What was put off is settled by the change: with one place it binds everybody, with several its own holder.
func TestPlacesChangeOfAnInbox(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := enginetest.Start(t, url, enginetest.Options{})
	enginetest.NewInbox(t, n, "jobs", func(s *assign.Settings) { s.Slots = 2 })
	slots := func(to int) error {
		_, err := n.Change(t, "jobs", func(s *assign.Settings) { s.Slots = to })
		return err
	}
	n.PushKeys(t, "jobs", "a")
	held := n.Take(t, "jobs", "ann")
	enginetest.WantKind(t, slots(1), assign.InUse)
	if err := slots(3); err != nil {
		t.Errorf("from two places to three: %v", err)
	}
	n.Let(t, held, enginetest.GiveBack(time.Hour))
	if err := slots(1); err != nil {
		t.Fatal(err)
	}
	if r := n.Click(t, "jobs", "bob", 1); enginetest.Why(r) != assign.AllHeld {
		t.Errorf("with one place, bob gets %s %s of what ann has put off", r.State, enginetest.Why(r))
	}
	n.PushKeys(t, "jobs", "b")
	held = n.Take(t, "jobs", "bob")
	_, err := manage.Restore(t.Context(), n.Engine, "jobs", 1, 0, "boss", nil)
	enginetest.WantKind(t, err, assign.InUse)
	n.Let(t, held, assign.Disposition{Outcome: "complete"})
	if _, err := manage.Restore(t.Context(), n.Engine, "jobs", 1, 0, "boss", nil); err != nil {
		t.Fatal(err)
	}
	if w := n.Take(t, "jobs", "bob"); w.Item != "a" {
		t.Errorf("with two places, bob gets %s", w.Item)
	}
}

// Two had let go of an item before its places became one: one for an hour, the other for ever. A redrive makes it due when the hour is
// over, and not before; nor is it lost.
func TestRedriveOfWhatAnotherPutOff(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n, db := enginetest.Start(t, url, enginetest.Options{}), enginetest.Pool(t, url)
	enginetest.NewInbox(t, n, "jobs", func(s *assign.Settings) { s.Slots = 2 })
	n.PushKeys(t, "jobs", "a")
	ann, bob := n.Take(t, "jobs", "ann"), n.Take(t, "jobs", "bob")
	n.Let(t, ann, enginetest.GiveBack(time.Hour))
	n.Let(t, bob, assign.Disposition{Outcome: "never"})
	if _, err := n.Change(t, "jobs", func(s *assign.Settings) { s.Slots = 1 }); err != nil {
		t.Fatal(err)
	}
	if got, err := n.Redrive(t.Context(), "jobs", []string{"a"}, "boss"); err != nil || got != 1 {
		t.Fatalf("redriven: %d, %v", got, err)
	}
	if !enginetest.Query[bool](t, db, `select i.due_at = (select max(available_at) from getwork.work where state = 'returned') from getwork.item i`) {
		t.Error("it is not due when ann's hour is over")
	}
}

// A task can't come to name another that is being deleted, and can be changed afterwards.
func TestNamedWhileDeleted(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	db := enginetest.Pool(t, url)
	n := enginetest.Start(t, url, enginetest.Options{})
	enginetest.NewInbox(t, n, "a", nil)
	naming := func(s *assign.Settings) error { s.ConflictsWith = []string{"b"}; return nil }
	for name, do := range map[string]func() error{
		"changed": func() error {
			_, err := n.UpdateTask(context.Background(), "a", 1, "boss", naming)
			return err
		},
		"created": func() error {
			s := assign.DefaultSettings()
			s.Name = "c"
			_ = naming(&s)
			_, err := n.CreateTask(context.Background(), s, "boss")
			return err
		},
	} {
		b := enginetest.NewInbox(t, n, "b", nil)
		tx, err := db.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback(context.Background())
		if _, err := manage.Delete(t.Context(), n.Engine, tx, b, 0); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- do() }()
		enginetest.WantWaiting(t, db, "%getwork.task_state s%for no key update%")
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-done; !assign.IsRefusal(err, assign.Invalid) || !strings.Contains(err.Error(), "no task b") {
			t.Errorf("%s: %v, want that there is no task b", name, err)
		}
	}
	if x, err := n.Change(t, "a", func(s *assign.Settings) { s.Title = "later" }); err != nil || len(x.ConflictsWith) != 0 {
		t.Errorf("changed later: %+v, %v", x.ConflictsWith, err)
	}
	if got := enginetest.Query[int](t, db, `select count(*) from getwork.task_conflict`); got != 0 {
		t.Errorf("%d conflicts are in force", got)
	}
}

// A change of a task that leaves its conflicts alone starts no round for those who linger on the other side.
func TestChangeLeavesPartnersAlone(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	url := schematest.URL(t)
	n := enginetest.Start(t, url, enginetest.Options{})
	db := enginetest.Pool(t, url)
	task := enginetest.NewTask(t, n, "task", `select 1 as item where false`, func(s *assign.Settings) {
		s.FreshFor, s.RerunAfter = assign.Duration(time.Hour), assign.Duration(20*time.Minute)
	})
	other := enginetest.NewTask(t, n, "other", `select 1 as item`, func(s *assign.Settings) { s.ConflictsWith = []string{"task"} })
	r := n.Linger(t, "task", "ann", 1)
	enginetest.Await(t, "the run has left it lingering", func() bool {
		return enginetest.Query[bool](t, db, `select look_after is not null from getwork.work_requested where id = $1`, r.ID)
	})
	rounds := func() int64 {
		n.Wait(t.Context()) // it is looked at once more after a run
		return n.Rounds.Load()
	}
	before := rounds()
	four := 4
	changed, err := n.UpdateTask(t.Context(), "other", other.Version, "boss", func(s *assign.Settings) error { s.MaxOpen = &four; return nil })
	if err != nil {
		t.Fatal(err)
	}
	if now := rounds(); now != before {
		t.Errorf("task %d had %d rounds", task.ID, now-before)
	}
	if _, err := n.UpdateTask(t.Context(), "other", changed.Version, "boss", func(s *assign.Settings) error { s.ConflictsWith = nil; return nil }); err != nil {
		t.Fatal(err)
	}
	if now := rounds(); now == before {
		t.Error("it was not served when the conflict ended")
	}
}
