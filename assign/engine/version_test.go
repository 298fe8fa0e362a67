package engine

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"getwork/assign"
	"getwork/schema/schematest"
)

func change(t *testing.T, n *node, task string, version int, by string, f func(*assign.Settings)) assign.Task {
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
	n := startNode(t, url, nodeOptions{})
	lease := assign.Duration(time.Minute)
	newTask(t, n, "other", `select 1 as item`, nil)
	newTask(t, n, "doomed", `select 1 as item`, nil)
	newTask(t, n, "task", `select 1 as item`, func(s *assign.Settings) {
		s.Position, s.Display = new(7), &assign.Display{Title: "{item}!"}
		s.Title, s.Slots, s.Lease, s.Groups, s.ConflictsWith = "first", 2, &lease, []string{"team"}, []string{"doomed", "other"}
	})
	change(t, n, "task", 1, "ann", func(s *assign.Settings) {
		*s = assign.DefaultSettings()
		s.Name, s.Query, s.Title = "renamed", `select 2 as item`, "second"
	})
	change(t, n, "renamed", 2, "bob", func(s *assign.Settings) { s.Paused = true })
	wantKind(t, n.DeleteTask(t.Context(), "doomed", 7), assign.StaleVersion)
	if err := n.DeleteTask(t.Context(), "doomed", 0); err != nil {
		t.Fatal(err)
	}
	newTask(t, n, "doomed", `select 1 as item`, nil)   // another task, which the old version does not mean
	newTask(t, n, "task", `select 'new' as item`, nil) // has the old name now

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
		wantKind(t, err, c.kind)
	}
	_, err = n.Versions(t.Context(), "nothing", 0, 10)
	wantKind(t, err, assign.NotFound)
	if now, err := n.Task(t.Context(), "renamed"); err != nil || now.Version != 5 {
		t.Errorf("version %d after refusals, %v", now.Version, err)
	}
}

// A restore that does not name the version seen is not refused because others change the task at the same time.
func TestRestoreBesideChanges(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	newTask(t, n, "task", `select 1 as item`, nil)
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
	n := startNode(t, schematest.URL(t), nodeOptions{})
	newTask(t, n, "task", `select 1 as item`, nil)
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
	newTask(t, n, "task", `select 1 as item`, func(s *assign.Settings) {
		s.MaxOpen, s.MaxAttempts, s.Lease, s.Groups = &five, &five, &lease, []string{"desk"}
	})
	if _, err := n.UpdateTask(t.Context(), "task", 1, "ann", func(s *assign.Settings) error {
		return json.Unmarshal([]byte(`{"max_open":6,"max_attempts":6,"lease":"2m","groups":["team"]}`), s)
	}); err != nil {
		t.Fatal(err)
	}
	want := `["groups", "lease", "max_attempts", "max_open"]`
	if got := query[string](t, n.pools.API, `select detail ->> 'changed' from getwork.audit where act = 'task.update'`); got != want {
		t.Errorf("the audit says that it changed %s, want %s", got, want)
	}
}
