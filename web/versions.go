package web

import (
	"math"
	"net/http"

	"getwork/assign"
)

// listVersions answers with a task's versions, newest first.
func (s *server) listVersions(w http.ResponseWriter, r *http.Request) error {
	name, err := segment(r, "task")
	if err != nil {
		return err
	}
	before, limit, err := readCursor(r)
	if err != nil {
		return err
	}
	versions, more, err := readPage(limit, func(limit int) ([]assign.Version, error) {
		return s.Records.Versions(r.Context(), name, before, limit)
	})
	if err != nil {
		return err
	}
	return answerPage(w, "versions", versions, more, func(v assign.Version) int64 { return int64(v.Version) })
}

// listTaskLog answers with when a task was changed, paused and resumed, newest first.
func (s *server) listTaskLog(w http.ResponseWriter, r *http.Request) error {
	name, err := segment(r, "task")
	if err != nil {
		return err
	}
	before, limit, err := readCursor(r)
	if err != nil {
		return err
	}
	changes, more, err := readPage(limit, func(limit int) ([]assign.TaskChange, error) {
		return s.Records.TaskLog(r.Context(), name, before, limit)
	})
	if err != nil {
		return err
	}
	return answerPage(w, "log", changes, more, func(c assign.TaskChange) int64 { return c.Key() })
}

// restoreVersion gives a task its former settings, as a new version. With If-Match, only if the task is as the caller
// read it.
func (s *server) restoreVersion(w http.ResponseWriter, r *http.Request) error {
	name, err := segment(r, "task")
	if err != nil {
		return err
	}
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
	t, err = s.Engine.Restore(r.Context(), name, int(n), only, c.Holder.User, func(before, after *assign.Settings) error { return withinToken(c, before, after) })
	if err != nil {
		return err
	}
	return answerTask(w, http.StatusOK, t)
}
