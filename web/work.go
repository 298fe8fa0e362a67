package web

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/text/unicode/norm"

	"getwork/assign"
	"getwork/assign/manage"
	"getwork/web/sheet"
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
	return s.answerWork(w, r, http.StatusOK, work)
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
	return s.answerWork(w, r, http.StatusOK, work)
}

// until is a time, or null; given says that it was there.
type until struct {
	given bool
	at    *time.Time
}

// UnmarshalJSON notes that there is a value.
func (u *until) UnmarshalJSON(b []byte) error {
	u.given = true
	return json.Unmarshal(b, &u.at)
}

// later puts work that the caller holds aside, or takes it up again. Managers, too, can put aside only their own.
func (s *server) later(w http.ResponseWriter, r *http.Request) error {
	id, err := number(r, "id")
	if err != nil {
		return err
	}
	var body struct {
		Until until `json:"until"`
	}
	if err := decode(w, r, &body); err != nil {
		return err
	}
	if !body.Until.given {
		return refuseField("until", `say until when: {"until":"2030-01-31T09:00:00Z"}, or null to take the work up again`)
	}
	work, err := s.Engine.Later(r.Context(), id, body.Until.at, CallerOf(r).Holder)
	if err != nil {
		return err
	}
	return s.answerWork(w, r, http.StatusOK, work)
}

// disposeMany closes much work in one call, each judged alone. A body that is no list of dispositions, or has an unknown field, refuses
// the call; what a single call would refuse is that work's result.
func (s *server) disposeMany(w http.ResponseWriter, r *http.Request) error {
	var body struct {
		Dispositions []json.RawMessage `json:"dispositions"`
	}
	if err := decode(w, r, &body); err != nil {
		return err
	}
	if body.Dispositions == nil {
		return refuseField("dispositions", "name the work to let go of: {\"dispositions\":[{\"id\":\"17\",\"outcome\":\"complete\"}]}")
	}
	all := make([]assign.Disposal, len(body.Dispositions))
	ids := make([]int64, len(all))
	for i, raw := range body.Dispositions {
		var one struct {
			ID string `json:"id"`
			assign.Disposition
		}
		err := decodeBytes(raw, &one)
		if err == nil {
			ids[i], err = bodyID("id", one.ID)
		}
		if err != nil {
			return inList("dispositions", i, err)
		}
		all[i] = assign.Disposal{ID: ids[i], Disposition: one.Disposition}
	}
	if err := assign.CheckMany(ids, "dispositions", ".id"); err != nil {
		return err
	}
	c := CallerOf(r)
	return s.many(w, r, ids, func(may []int) ([]assign.Result, error) {
		return s.Engine.DisposeMany(r.Context(), some(all, may), c.Holder, c.Role == Manager, prefersMinimal(r))
	})
}

// extendMany renews the leases of much work that the caller holds.
func (s *server) extendMany(w http.ResponseWriter, r *http.Request) error {
	var body struct {
		IDs []string `json:"ids"`
	}
	if err := decode(w, r, &body); err != nil {
		return err
	}
	if body.IDs == nil {
		return refuseField("ids", "name the work to extend: {\"ids\":[\"17\"]}")
	}
	ids := make([]int64, len(body.IDs))
	for i, text := range body.IDs {
		var err error
		if ids[i], err = bodyID(fmt.Sprintf("ids[%d]", i), text); err != nil {
			return err
		}
	}
	if err := assign.CheckMany(ids, "ids", ""); err != nil {
		return err
	}
	return s.many(w, r, ids, func(may []int) ([]assign.Result, error) {
		return s.Engine.ExtendMany(r.Context(), some(ids, may), CallerOf(r).Holder)
	})
}

// bodyID reads an id from a body.
func bodyID(field, text string) (int64, error) {
	id, err := strconv.ParseInt(text, 10, 64)
	if err != nil || id < 1 {
		return 0, refuseField(field, "%s is the id of work, such as \"17\", not %q", field, text)
	}
	return id, nil
}

// some returns the elements at those places.
func some[T any](all []T, at []int) []T {
	if len(at) == len(all) {
		return all
	}
	chosen := make([]T, len(at))
	for i, place := range at {
		chosen[i] = all[place]
	}
	return chosen
}

// many answers a call for much work: do does it for those that the caller's token may name, and the others are refused one by one, as
// keepWithin refuses a call for one.
func (s *server) many(w http.ResponseWriter, r *http.Request, ids []int64, do func(may []int) ([]assign.Result, error)) error {
	refused, err := s.beyond(r, ids)
	if err != nil {
		return err
	}
	var may []int
	for i := range ids {
		if refused[i] == nil {
			may = append(may, i)
		}
	}
	done, err := do(may)
	if err != nil {
		return err
	}
	results := make([]assign.Result, len(ids))
	var works []assign.Work
	for i, at := range may {
		results[at] = done[i]
		if done[i].Work != nil {
			works = append(works, *done[i].Work)
		}
	}
	for i, refusal := range refused {
		results[i] = assign.Refused(ids[i], refusal)
	}
	size := assign.SizeOf(works, len(ids))
	if !s.fits(r, size) {
		for i := range results {
			if results[i].Work != nil {
				results[i].Work.LeaveOut()
			}
		}
	}
	answerJSON(w, http.StatusOK, assign.AppendResults(make([]byte, 0, size), results))
	return nil
}

func (s *server) reassign(w http.ResponseWriter, r *http.Request) error {
	id, err := number(r, "id")
	if err != nil {
		return err
	}
	var body assign.Reassignment
	if err := decode(w, r, &body); err != nil {
		return err
	}
	if err := checkHolder(body.User); err != nil {
		return err
	}
	work, err := manage.Reassign(r.Context(), s.Engine, id, body, CallerOf(r).Holder.User)
	if err != nil {
		return err
	}
	return s.answerWork(w, r, http.StatusOK, work)
}

// checkHolder refuses names of users to whom work can't be given.
func checkHolder(user string) error {
	if err := assign.CheckUser(user); err != nil {
		return err
	}
	if !norm.NFC.IsNormalString(user) { // rights.CheckName refuses it at log-in: nobody could get at the work
		return assign.RefuseField("user", "a user name is in Unicode's normal form C; this one has marks apart from their letters: type it anew instead of pasting it")
	}
	return nil
}

// release takes back the work of a user, of a task, or of a user in a task: a dry run counts, then exactly that set is
// released. It refuses an empty filter instead of ignoring it: a script whose variable is empty must not release more.
func (s *server) release(w http.ResponseWriter, r *http.Request) error {
	var body struct {
		User   *string `json:"user"`
		Task   *string `json:"task"`
		DryRun bool    `json:"dry_run"`
		Token  string  `json:"token"`
		Code   string  `json:"code"`
	}
	if err := decode(w, r, &body); err != nil {
		return err
	}
	filter := assign.Release{DryRun: body.DryRun, Token: body.Token, Code: body.Code}
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
	released, err := manage.Release(r.Context(), s.Engine, filter, CallerOf(r).Holder.User)
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, released)
}

// noWork is the refusal of work that there is not; callers who may not see it get the same.
const noWork = "no work %d; GET /api/v1/pipeline lists yours"

// showWork answers with work in any state. Workers and agents see their own, and while they hold it how its item was let go of before,
// unless the task's notes are for managers; and of what they completed how it was reviewed. Observers do not see other people's notes.
func (s *server) showWork(w http.ResponseWriter, r *http.Request) error {
	id, err := number(r, "id")
	if err != nil {
		return err
	}
	work, err := s.Records.Work(r.Context(), id)
	if err != nil {
		return err
	}
	c := CallerOf(r)
	sees := c.Role == Manager || c.Role == Observer
	if work.User != c.Holder.User && !sees {
		return assign.Refuse(assign.NotFound, noWork, id)
	}
	if sees || work.State == assign.WorkHeld {
		if work.Earlier, err = s.Records.Earlier(r.Context(), work, sees); err != nil {
			return err
		}
	}
	if work.State == assign.WorkCompleted || work.From != 0 && (sees || work.State == assign.WorkHeld) {
		linked, err := s.Records.Linked(r.Context(), work, sees)
		if err != nil {
			return err
		}
		if len(linked) > 0 {
			work.Earlier = append(linked, work.Earlier...)
		}
	}
	if c.Role == Observer {
		if work.User != c.Holder.User {
			work.Note, work.Result = nil, nil
		}
		for i := range work.Earlier {
			if work.Earlier[i].User != c.Holder.User {
				work.Earlier[i].Note = nil
			}
		}
	}
	if err := s.fit(r, assign.SizeOf([]assign.Work{work}, len(work.Earlier))); err != nil {
		return err
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
				works[i].Note, works[i].Result = nil, nil
			}
		}
	}
	if err := s.fit(r, assign.SizeOf(works, 0)); err != nil {
		return err
	}
	if asCSV {
		return answerCSV(w, r, works, more)
	}
	return answerPage(w, "work", works, more, func(work assign.Work) int64 { return work.ID })
}

// csvName is the name of the file that a browser saves.
const csvName = "work.csv"

// answerCSV writes work as a table for a spreadsheet. If there is more, the answer's Link names it.
func answerCSV(w http.ResponseWriter, r *http.Request, works []assign.Work, more bool) error {
	h := w.Header()
	h.Set("Content-Type", "text/csv; charset=utf-8")
	h.Set("Content-Disposition", `attachment; filename="`+csvName+`"`)
	h.Set("Cache-Control", "no-store")
	if more {
		next := *r.URL
		q := next.Query()
		q.Set("cursor", strconv.FormatInt(works[len(works)-1].ID, 10))
		next.RawQuery = q.Encode()
		h.Set("Link", fmt.Sprintf(`<%s>; rel="next"`, next.RequestURI()))
	}
	w.WriteHeader(http.StatusOK)
	c := csv.NewWriter(w) // with CRLF, as RFC 4180 has it, this package would change line ends within notes and details
	_ = c.Write([]string{"id", "task", "item", "user", "instance", "state", "assigned_at", "closed_at", "available_at", "attempt", "error", "note", "details", "deadline", "code", "result"})
	for _, work := range works {
		row := []string{strconv.FormatInt(work.ID, 10), work.Task, work.Item, work.User, work.Instance, string(work.State), csvTime(&work.AssignedAt),
			csvTime(work.ClosedAt), csvTime(work.AvailableAt), strconv.Itoa(work.Attempt), csvText(work.Error), csvText(work.Note), csvDetails(work), csvTime(work.Deadline), csvText(work.Code), string(work.Result)}
		for i := range row {
			row[i] = sheet.Text(row[i])
		}
		_ = c.Write(row)
	}
	c.Flush()
	return nil // a client that is gone needs no answer
}

// csvDetails returns the details as JSON, and nothing for those that are left out.
func csvDetails(w assign.Work) string {
	if w.DetailsLeftOut {
		return ""
	}
	return string(w.Details)
}

func csvTime(t *time.Time) string {
	if t == nil {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

func csvText(t *string) string {
	if t == nil {
		return ""
	}
	return *t
}

// listHolders answers with who holds how much of which task, longest held first. The first page has the total, too.
func (s *server) listHolders(w http.ResponseWriter, r *http.Request) error {
	v, err := parameters(r)
	if err != nil {
		return err
	}
	limit, err := queryNumber(r, "limit", pageSize, maxPageSize)
	if err != nil {
		return err
	}
	filter := assign.HolderFilter{Tasks: taskNames(v), User: v.Get("user")}
	cursor := v.Get("cursor")
	if cursor != "" {
		if filter.After, filter.First, err = readHolderCursor(cursor); err != nil {
			return err
		}
	}
	var total assign.HeldTotal
	holders, more, err := readPage(int(limit), func(limit int) (holders []assign.Held, err error) {
		filter.Limit = limit
		holders, total, err = s.Report.Holders(r.Context(), filter)
		return holders, err
	})
	if err != nil {
		return err
	}
	body := map[string]any{"holders": append([]assign.Held{}, holders...)}
	if cursor == "" {
		body["total"] = total
	}
	if more {
		body["next_cursor"] = holderCursor(holders[len(holders)-1])
	}
	return answer(w, http.StatusOK, body)
}

// holderCursor encodes the end of a page: since when, in the database's microseconds, and the lowest id.
func holderCursor(h assign.Held) string {
	return fmt.Sprintf("%d-%d", h.OldestAt.UnixMicro(), h.First)
}

func readHolderCursor(cursor string) (after time.Time, first int64, err error) {
	since, id, _ := strings.Cut(cursor, "-")
	micros, err := strconv.ParseUint(since, 10, 56) // times until the year 4253, all valid in the database
	if err == nil {
		first, err = strconv.ParseInt(id, 10, 64)
	}
	if err != nil {
		return after, 0, refuseField("cursor", "cursor is the next_cursor of the page before, not %q", cursor)
	}
	return time.UnixMicro(int64(micros)), first, nil
}
