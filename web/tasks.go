package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gorilla/mux"

	"getwork/assign"
	"getwork/assign/manage"
	"getwork/assign/rights"
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

// withTask finds a task's name in the path.
func withTask(h func(w http.ResponseWriter, r *http.Request, name string) error) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		name, err := segment(r, "task")
		if err != nil {
			return err
		}
		return h(w, r, name)
	}
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

func taskTag(t assign.Task) string { return versionTag(t.Version) }

func versionTag(version int) string { return fmt.Sprintf(`"%d"`, version) }

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

func (s *server) showTask(w http.ResponseWriter, r *http.Request, name string) error {
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
	t, err := manage.CreateTask(r.Context(), s.Engine, settings, CallerOf(r).Holder.User)
	if err != nil {
		return err
	}
	w.Header().Set("Location", "/api/v1/tasks/"+t.Name)
	return answerTask(w, http.StatusCreated, t)
}

// decodeSettings reads the fields that a body names. Both [] and null mean no groups.
func decodeSettings(body []byte, s *assign.Settings) error {
	former := *s
	s.Display, s.OnComplete, s.Outcomes, s.Result = nil, nil, nil, nil // they are replaced as a whole: decoding into the former ones would keep their fields
	err := decodeBytes(body, s)
	var named map[string]json.RawMessage
	if known := json.Unmarshal(body, &named) == nil; known && named["display"] == nil {
		s.Display = former.Display
	}
	if _, is := named["on_complete"]; !is {
		s.OnComplete = former.OnComplete
	}
	if _, is := named["outcomes"]; !is {
		s.Outcomes = former.Outcomes
	}
	if _, is := named["result"]; !is {
		s.Result = former.Result
	}
	if s.Groups == nil {
		s.Groups = []string{}
	}
	for _, of := range assign.AllSettings {
		if err == nil && neverNull(of) && string(named[of.Name]) == "null" {
			err = refuseField(of.Name, "%s is never null; leave it out to keep it as it is", of.Name)
		}
	}
	return err
}

// neverNull reports whether a setting always has a value. Null would be taken for none, and make a version without a change.
func neverNull(of assign.Setting) bool { return !of.MayBeNull() && of.Type.Kind() != reflect.Slice }

// updateTask changes the fields that the body names, if the task is still as the caller read it (If-Match). A body that only
// pauses or resumes the task needs no If-Match.
func (s *server) updateTask(w http.ResponseWriter, r *http.Request, name string) error {
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
		if t, err = manage.SetPaused(r.Context(), s.Engine, name, *paused, only, by); err != nil {
			return err
		}
		return answerTask(w, http.StatusOK, t)
	}
	if err := ifMatch(r, t); err != nil {
		return err
	}
	t, err = manage.UpdateTask(r.Context(), s.Engine, name, t.Version, by, func(settings *assign.Settings) error {
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
	if !namesTag(headers, taskTag(t)) {
		return assign.Refuse(assign.StaleVersion, "task %q is at %s, not %s; read it again and repeat your change",
			t.Name, taskTag(t), strings.Join(headers, ", "))
	}
	return nil
}

// namesTag reports whether If-Match names the tag.
func namesTag(headers []string, is string) bool {
	for tag := range strings.SplitSeq(strings.Join(headers, ","), ",") {
		if tag = strings.TrimSpace(tag); tag == "*" || tag == is {
			return true
		}
	}
	return false
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

func (s *server) deleteTask(w http.ResponseWriter, r *http.Request, name string) error {
	t, err := s.Records.Task(r.Context(), name)
	if err != nil {
		return err
	}
	only, err := onlyVersion(r, t)
	if err != nil {
		return err
	}
	if err := manage.DeleteTask(r.Context(), s.Engine, name, only); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// listOfTask answers with a page of what read finds for a task.
func listOfTask[T any](w http.ResponseWriter, r *http.Request, plural string, read func(ctx context.Context, task string, before int64, limit int) ([]T, error), key func(T) int64) error {
	name, err := segment(r, "task")
	if err != nil {
		return err
	}
	before, limit, err := readCursor(r)
	if err != nil {
		return err
	}
	rows, more, err := readPage(limit, func(limit int) ([]T, error) { return read(r.Context(), name, before, limit) })
	if err != nil {
		return err
	}
	return answerPage(w, plural, rows, more, key)
}

// listRuns answers with runs, newest first.
func (s *server) listRuns(w http.ResponseWriter, r *http.Request) error {
	return listOfTask(w, r, "runs", s.Records.Runs, func(run assign.Run) int64 { return run.ID })
}

// listVersions answers with a task's versions, newest first.
func (s *server) listVersions(w http.ResponseWriter, r *http.Request) error {
	return listOfTask(w, r, "versions", s.Records.Versions, func(v assign.Version) int64 { return int64(v.Version) })
}

// listTaskLog answers with when a task was changed, paused and resumed, newest first.
func (s *server) listTaskLog(w http.ResponseWriter, r *http.Request) error {
	return listOfTask(w, r, "log", s.Records.TaskLog, func(c assign.TaskChange) int64 { return c.Key() })
}

// restoreVersion gives a task its former settings, as a new version. With If-Match, only if the task is as the caller
// read it.
func (s *server) restoreVersion(w http.ResponseWriter, r *http.Request, name string) error {
	n, err := number(r, "n")
	if err != nil {
		return err
	}
	if err := s.mayWriteQueries(r); err != nil {
		return err
	}
	if n > math.MaxInt32 {
		return assign.Refuse(assign.NotFound, "task %q has no version %d", name, n)
	}
	if err := decodeIfAny(w, r, &struct{}{}); err != nil {
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
	c := CallerOf(r)
	t, err = manage.Restore(r.Context(), s.Engine, name, int(n), only, c.Holder.User, func(before, after *assign.Settings) error { return withinToken(c, before, after) })
	if err != nil {
		return err
	}
	return answerTask(w, http.StatusOK, t)
}

// previewRows is how many rows a preview shows by default.
const previewRows = 10

// mayWriteQueries refuses a manager who is not among those who may write queries.
func (s *server) mayWriteQueries(r *http.Request) error {
	if s.QueryAuthors == "" || slices.Contains(CallerOf(r).Groups, s.QueryAuthors) {
		return nil
	}
	return assign.Refuse(assign.Forbidden, "only managers in the group %q may write, preview, compare and restore queries; you can change the other settings of a task, and pause it", s.QueryAuthors)
}

// preview shows what a task's query, or another one for that task, would return. It writes nothing.
func (s *server) preview(w http.ResponseWriter, r *http.Request, name string) error {
	body := struct {
		Query *assign.Query `json:"query"`
		Limit int           `json:"limit"`
	}{Limit: previewRows}
	if err := s.mayWriteQueries(r); err != nil {
		return err
	}
	if err := decodeIfAny(w, r, &body); err != nil {
		return err
	}
	return s.answerPreview(w, r, func(ctx context.Context) (assign.Preview, error) {
		return s.Engine.Ranker.Preview(ctx, name, body.Query, body.Limit)
	})
}

// previewNew does so for a task that does not exist yet; the body has the settings that the query runs with.
func (s *server) previewNew(w http.ResponseWriter, r *http.Request) error {
	if err := s.mayWriteQueries(r); err != nil {
		return err
	}
	settings := assign.DefaultSettings()
	body := struct {
		Query        *assign.Query    `json:"query"`
		QueryTimeout *assign.Duration `json:"query_timeout"`
		Slots        *int             `json:"slots"`
		Limit        int              `json:"limit"`
	}{&settings.Query, &settings.QueryTimeout, &settings.Slots, previewRows}
	if err := decode(w, r, &body); err != nil {
		return err
	}
	return s.answerPreview(w, r, func(ctx context.Context) (assign.Preview, error) {
		return s.Engine.Ranker.PreviewNew(ctx, settings, body.Limit)
	})
}

// compared is how many of the best a comparison lists by default.
const compared = 100

// compare says how another query would rank a task's items, beside its own. It writes nothing.
func (s *server) compare(w http.ResponseWriter, r *http.Request, name string) error {
	body := struct {
		assign.Contender
		Limit int      `json:"limit"`
		Seed  *float64 `json:"seed"`
	}{Limit: compared}
	if err := s.mayWriteQueries(r); err != nil {
		return err
	}
	if err := decode(w, r, &body); err != nil {
		return err
	}
	c, err := readPatiently(s, w, r, func(ctx context.Context) (assign.Comparison, error) {
		return s.Engine.Ranker.Compare(ctx, name, body.Contender, body.Limit, body.Seed)
	})
	if err != nil {
		return err
	}
	if err := s.fit(r, len(c.Old.Plan)+len(c.New.Plan)); err != nil {
		return err
	}
	return answer(w, http.StatusOK, c)
}

// showSchema answers with the tables and columns that a ranking query may read.
func (s *server) showSchema(w http.ResponseWriter, r *http.Request) error {
	if err := s.mayWriteQueries(r); err != nil {
		return err
	}
	schema, err := readPatiently(s, w, r, s.Engine.Ranker.Schema)
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, schema)
}

func (s *server) answerPreview(w http.ResponseWriter, r *http.Request, read func(context.Context) (assign.Preview, error)) error {
	preview, err := readPatiently(s, w, r, read)
	if err != nil {
		return err
	}
	size := len(preview.Plan)
	for i := range preview.Rows {
		size += len(preview.Rows[i].Details)
	}
	if err := s.fit(r, size); err != nil {
		return err
	}
	return answer(w, http.StatusOK, preview)
}

// answerFor is how long a client may take to read an answer that took long to make.
const answerFor = 30 * time.Second

// patiently runs calls that execute a task's query. They may take as long as the query, which the engine bounds, and are
// given up DrainOver after the node began to shut down.
func (s *server) patiently(w http.ResponseWriter, r *http.Request, do func(context.Context) error) error {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	go func() {
		select {
		case <-s.Draining:
		case <-ctx.Done():
			return
		}
		t := time.NewTimer(s.DrainOver) // in which most queries end
		defer t.Stop()
		select {
		case <-t.C:
			cancel()
		case <-ctx.Done():
		}
	}()
	err := do(ctx)
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(answerFor)) // the server's own deadline may be over by now
	if err != nil && ctx.Err() != nil && r.Context().Err() == nil {
		return assign.Refuse(assign.Unavailable, "this node is shutting down; ask again, and another node answers")
	}
	return err
}

// readPatiently is patiently for calls that only read. Their query is cancelled when the caller's rights end or change: whoever is
// blocked must not see what it finds. How long a proxy's word lasts does not bound it, since such a query would never be answered.
func readPatiently[T any](s *server, w http.ResponseWriter, r *http.Request, read func(context.Context) (T, error)) (found T, err error) {
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	if c := CallerOf(r); s.Rights != nil && c.Rights != nil {
		defer s.Rights.Follow(c.Rights, 0, func(why rights.End) { cancel(callEndOf(why)) })()
	}
	err = s.patiently(w, r.WithContext(ctx), func(ctx context.Context) (err error) {
		found, err = read(ctx)
		return err
	})
	if ended := (*assign.Refusal)(nil); errors.As(context.Cause(ctx), &ended) {
		return found, ended
	}
	return found, err
}
