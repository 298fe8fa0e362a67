package web

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"golang.org/x/text/unicode/norm"

	"getwork/assign"
)

// dispose closes work.
func (s *server) dispose(w http.ResponseWriter, r *http.Request) error {
	id, err := number(r, "id")
	if err != nil {
		return err
	}
	var d assign.Disposition
	if err := decode(w, r, &d); err != nil {
		return err
	}
	c := CallerOf(r)
	work, err := s.Engine.Dispose(r.Context(), id, d, c.Holder, c.Role == Manager)
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, work)
}

// extend renews the lease of work that the caller holds. Managers, too, can extend only their own.
func (s *server) extend(w http.ResponseWriter, r *http.Request) error {
	id, err := number(r, "id")
	if err != nil {
		return err
	}
	if err := decodeIfAny(w, r, &struct{}{}); err != nil {
		return err
	}
	work, err := s.Engine.Extend(r.Context(), id, CallerOf(r).Holder)
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, work)
}

func (s *server) reassign(w http.ResponseWriter, r *http.Request) error {
	id, err := number(r, "id")
	if err != nil {
		return err
	}
	var body struct {
		User string `json:"user"`
	}
	if err := decode(w, r, &body); err != nil {
		return err
	}
	if err := assign.CheckUser(body.User); err != nil {
		return err
	}
	if !norm.NFC.IsNormalString(body.User) { // rights.CheckName refuses it at log-in: nobody could get at the work
		return assign.RefuseField("user", "a user name is in Unicode's normal form C; this one has marks apart from their letters: type it anew instead of pasting it")
	}
	work, err := s.Engine.Reassign(r.Context(), id, body.User, CallerOf(r).Holder.User)
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, work)
}

// release takes back the work of a user, of a task, or of a user in a task: a dry run counts, then exactly that set is
// released. It refuses an empty filter instead of ignoring it: a script whose variable is empty must not release more.
func (s *server) release(w http.ResponseWriter, r *http.Request) error {
	var body struct {
		User   *string `json:"user"`
		Task   *string `json:"task"`
		DryRun bool    `json:"dry_run"`
		Token  string  `json:"token"`
	}
	if err := decode(w, r, &body); err != nil {
		return err
	}
	filter := assign.Release{DryRun: body.DryRun, Token: body.Token}
	for field, named := range map[string]struct{ from, to *string }{"user": {body.User, &filter.User}, "task": {body.Task, &filter.Task}} {
		switch {
		case named.from == nil:
		case *named.from == "":
			return refuseField(field, "name a %s, or leave it out", field)
		default:
			*named.to = *named.from
		}
	}
	if body.DryRun && body.Token != "" {
		return refuseField("token", "a dry run returns a token, and takes none")
	}
	if c := CallerOf(r); c.Tasks != nil && !slices.Contains(c.Tasks, filter.Task) {
		return assign.Refuse(assign.Forbidden, "this token is for the tasks %s; name one of them in task", strings.Join(c.Tasks, ", "))
	}
	released, err := s.Engine.Release(r.Context(), filter, CallerOf(r).Holder.User)
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, released)
}

// noWork is the refusal of work that there is not; callers who may not see it get the same.
const noWork = "no work %d; GET /api/v1/pipeline lists yours"

// showWork answers with work in any state. Workers and agents see their own. Observers do not see other people's notes.
func (s *server) showWork(w http.ResponseWriter, r *http.Request) error {
	id, err := number(r, "id")
	if err != nil {
		return err
	}
	work, err := s.Records.Work(r.Context(), id)
	if err != nil {
		return err
	}
	if c := CallerOf(r); work.User != c.Holder.User && c.Role != Manager {
		if c.Role != Observer {
			return assign.Refuse(assign.NotFound, noWork, id)
		}
		work.Note = nil
	}
	return answer(w, http.StatusOK, work)
}

// listWork answers with work of all times, newest first. Observers do not see other people's notes.
func (s *server) listWork(w http.ResponseWriter, r *http.Request) error {
	v, err := parameters(r)
	if err != nil {
		return err
	}
	filter := assign.WorkFilter{Task: v.Get("task"), User: v.Get("user"), Item: v.Get("item"), State: assign.WorkState(v.Get("state")), Value: v.Get("value")}
	before, limit, err := readCursor(r)
	if err != nil {
		return err
	}
	filter.Before = before
	asCSV := false
	switch v.Get("format") {
	case "", "json":
	case "csv":
		asCSV = true
		if v.Get("limit") == "" {
			limit = maxPageSize // a file is not read page by page
		}
	default:
		return refuseField("format", "a format is json or csv, not %q", v.Get("format"))
	}
	read := func(limit int) ([]assign.Work, error) {
		filter.Limit = limit
		return readPatiently(s, w, r, func(ctx context.Context) ([]assign.Work, error) { return s.Records.WorkHistory(ctx, filter) })
	}
	var works []assign.Work
	var more bool
	if filter.Value == "" {
		works, more, err = readPage(limit, read)
	} else { // it might be given up while it looks for one row more; then the caller would see none
		works, err = read(limit)
		more = len(works) == limit
	}
	if err != nil {
		return err
	}
	if c := CallerOf(r); c.Role != Manager {
		for i := range works {
			if works[i].User != c.Holder.User {
				works[i].Note = nil
			}
		}
	}
	if asCSV {
		return answerCSV(w, r, works, more)
	}
	return answerPage(w, "work", works, more, func(work assign.Work) int64 { return work.ID })
}
