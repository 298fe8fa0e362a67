package web

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/gorilla/mux"

	"getwork/assign"
)

// segment returns a decoded part of the path: the router matches paths as they were sent. Text that PostgreSQL can't
// store is not found.
func segment(r *http.Request, name string) (string, error) {
	v, err := url.PathUnescape(mux.Vars(r)[name])
	if err != nil {
		return "", assign.Refuse(assign.Invalid, "the path has a percent sign that is not followed by two hex digits")
	}
	if !isText(v) {
		return "", assign.Refuse(assign.NotFound, "there is nothing at this address")
	}
	return v, nil
}

// isText reports whether PostgreSQL can store s as text: it is UTF-8 without NUL.
func isText(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }

// number returns an id in the path. Text that is no id is not found.
func number(r *http.Request, name string) (int64, error) {
	v, err := segment(r, name)
	if err != nil {
		return 0, err
	}
	id, err := strconv.ParseInt(v, 10, 64)
	if err != nil || id < 1 {
		return 0, assign.Refuse(assign.NotFound, "%q is not an id", v)
	}
	return id, nil
}

func taskTag(t assign.Task) string { return fmt.Sprintf(`"%d"`, t.Version) }

func answerTask(w http.ResponseWriter, status int, t assign.Task) error {
	w.Header().Set("ETag", taskTag(t))
	return answer(w, status, t)
}

func (s *server) listTasks(w http.ResponseWriter, r *http.Request) error {
	all, err := s.Records.Tasks(r.Context())
	if err != nil {
		return err
	}
	who := CallerOf(r).Who()
	tasks := []assign.Task{}
	for i := range all { // other callers share this slice
		if who.May(all[i].Groups) && CallerOf(r).covers(all[i].Name) {
			tasks = append(tasks, shown(who, all[i]))
		}
	}
	return answer(w, http.StatusOK, map[string]any{"tasks": tasks})
}

// shown returns a task as the caller may read it.
func shown(who assign.Who, t assign.Task) assign.Task {
	if !who.MayReadQueries() {
		return t.Withheld()
	}
	return t
}

// noTask is the message of [assign.NoTask]; callers who may not see a task get the same as if it did not exist.
const noTask = "no task %q; GET /api/v1/tasks lists all tasks"

func (s *server) showTask(w http.ResponseWriter, r *http.Request) error {
	name, err := segment(r, "task")
	if err != nil {
		return err
	}
	t, err := s.Records.Task(r.Context(), name)
	who := CallerOf(r).Who()
	if err == nil && !who.May(t.Groups) {
		err = assign.Refuse(assign.NotFound, noTask, name)
	}
	if err != nil {
		return err
	}
	return answerTask(w, http.StatusOK, shown(who, t))
}

func (s *server) createTask(w http.ResponseWriter, r *http.Request) error {
	settings := assign.DefaultSettings()
	body, err := readBody(w, r, &settings)
	if err != nil {
		return err
	}
	if err := decodeSettings(body, &settings); err != nil {
		return err
	}
	if settings.Query != "" || settings.Recheck != "" {
		if err := s.mayWriteQueries(r); err != nil {
			return err
		}
	}
	t, err := s.Engine.CreateTask(r.Context(), settings, CallerOf(r).Holder.User)
	if err != nil {
		return err
	}
	w.Header().Set("Location", "/api/v1/tasks/"+t.Name)
	return answerTask(w, http.StatusCreated, t)
}

// decodeSettings reads the fields that a body names. Both [] and null mean no groups.
func decodeSettings(body []byte, s *assign.Settings) error {
	former := s.Display
	s.Display = nil // it is replaced as a whole: decoding into the former one would keep its fields
	err := decodeBytes(body, s)
	var named map[string]json.RawMessage
	if json.Unmarshal(body, &named) == nil && named["display"] == nil {
		s.Display = former
	}
	if s.Groups == nil {
		s.Groups = []string{}
	}
	for _, field := range neverNull {
		if err == nil && string(named[field]) == "null" {
			err = refuseField(field, "%s is never null; leave it out to keep it as it is", field)
		}
	}
	return err
}

// neverNull are the settings that always have a value. Null would be taken for none, and make a version without a change.
var neverNull = []string{"name", "title", "description", "query_timeout", "fresh_for", "stale_for", "max_candidates", "max_request", "slots", "backoff", "rerun_after", "paused"}

// updateTask changes the fields that the body names, if the task is still as the caller read it (If-Match). A body that only
// pauses or resumes the task needs no If-Match.
func (s *server) updateTask(w http.ResponseWriter, r *http.Request) error {
	name, err := segment(r, "task")
	if err != nil {
		return err
	}
	t, err := s.Records.Task(r.Context(), name)
	if err != nil {
		return err
	}
	body, err := readBody(w, r, &assign.Settings{})
	if err != nil {
		return err
	}
	by := CallerOf(r).Holder.User
	if paused := pausedAlone(body); paused != nil {
		only, err := onlyVersion(r, t)
		if err != nil {
			return err
		}
		if t, err = s.Engine.SetPaused(r.Context(), name, *paused, only, by); err != nil {
			return err
		}
		return answerTask(w, http.StatusOK, t)
	}
	if err := ifMatch(r, t); err != nil {
		return err
	}
	t, err = s.Engine.UpdateTask(r.Context(), name, t.Version, by, func(settings *assign.Settings) error {
		before := *settings
		err := decodeSettings(body, settings)
		if err == nil && (settings.Query != before.Query || settings.Recheck != before.Recheck) {
			err = s.mayWriteQueries(r)
		}
		if err == nil {
			err = withinToken(CallerOf(r), &before, settings)
		}
		return err
	})
	if err != nil {
		return err
	}
	return answerTask(w, http.StatusOK, t)
}

// pausedAlone returns what a body says that only pauses or resumes a task; nil: it says something else.
func pausedAlone(body []byte) *bool {
	var fields map[string]json.RawMessage
	var only struct {
		Paused *bool `json:"paused"`
	}
	if json.Unmarshal(body, &fields) != nil || len(fields) != 1 || fields["paused"] == nil || decodeBytes(body, &only) != nil {
		return nil
	}
	return only.Paused
}

// ifMatch refuses a change by a caller who has not read the task's present version. The write compares the version again.
func ifMatch(r *http.Request, t assign.Task) error {
	headers := r.Header.Values("If-Match")
	if len(headers) == 0 {
		return assign.Refuse(assign.NoVersion, "send the task's ETag as If-Match, so that no change is lost")
	}
	for tag := range strings.SplitSeq(strings.Join(headers, ","), ",") {
		if tag = strings.TrimSpace(tag); tag == "*" || tag == taskTag(t) {
			return nil
		}
	}
	return assign.Refuse(assign.StaleVersion, "task %q is at %s, not %s; read it again and repeat your change",
		t.Name, taskTag(t), strings.Join(headers, ", "))
}

// onlyVersion returns the version of the task that a change which needs no If-Match is for; 0: any. If it is there, it is heeded.
func onlyVersion(r *http.Request, t assign.Task) (int, error) {
	if tags := r.Header.Values("If-Match"); len(tags) == 0 || strings.Contains(strings.Join(tags, ","), "*") {
		return 0, nil
	}
	return t.Version, ifMatch(r, t)
}

// withinToken refuses a change by a token for some tasks that concerns others: a rule between them, or another name.
func withinToken(c *Caller, before, after *assign.Settings) error {
	for _, name := range append([]string{after.Name}, after.ConflictsWith...) {
		if !c.covers(name) && name != before.Name && !slices.Contains(before.ConflictsWith, name) {
			return assign.Refuse(assign.Forbidden, "this token is for the tasks %s, and %s is none of them", strings.Join(c.Tasks, ", "), name)
		}
	}
	return nil
}

func (s *server) deleteTask(w http.ResponseWriter, r *http.Request) error {
	name, err := segment(r, "task")
	if err != nil {
		return err
	}
	t, err := s.Records.Task(r.Context(), name)
	if err != nil {
		return err
	}
	only, err := onlyVersion(r, t)
	if err != nil {
		return err
	}
	if err := s.Engine.DeleteTask(r.Context(), name, only); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// listRuns answers with runs, newest first.
func (s *server) listRuns(w http.ResponseWriter, r *http.Request) error {
	name, err := segment(r, "task")
	if err != nil {
		return err
	}
	before, limit, err := readCursor(r)
	if err != nil {
		return err
	}
	runs, more, err := readPage(limit, func(limit int) ([]assign.Run, error) {
		return s.Records.Runs(r.Context(), name, before, limit)
	})
	if err != nil {
		return err
	}
	return answerPage(w, "runs", runs, more, func(run assign.Run) int64 { return run.ID })
}
