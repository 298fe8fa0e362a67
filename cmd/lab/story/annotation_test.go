package story

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"getwork/assign"
	"getwork/cmd/internal/cluster"
	"getwork/cmd/internal/e2e"
	"getwork/schema/schematest/timeout"
)

const (
	documents = 24              // come each morning
	nextDay   = 3 * time.Second // how long a night is: what is put off until tomorrow comes back after that
	remark    = "two lines:\n\"blurred\", and a stamp; see page 2"
)

var annotators = []string{"ann", "ben", "cleo", "dan", "eva", "finn", "gus", "hal"}

// team is an annotation team: three people label each document, independently of each other, and somebody else reviews one in ten.
type team struct {
	*site
	lease time.Duration
}

// A team's week: somebody is away on Tuesday, puts work aside on Wednesday, or goes home without a word on Thursday. On Friday evening
// each document was labelled by three people, and the export says so; exactly those that were drawn were reviewed, by others.
func TestAnnotationTeam(t *testing.T) {
	t.Parallel()
	s := &team{site: newSite(t, 3, ""), lease: timeout.Scale(8 * time.Second)}
	s.open()
	s.monday()
	s.tuesday()
	aside := s.wednesday()
	s.thursday(aside)
	s.friday()
	s.review()
	labels := s.export("label")
	s.threeOfEach(labels)
	s.reviewed(labels, s.export("review"))
	s.Promises()
}

// open creates both tasks. Each names the other, so the second name is added to the first task.
func (s *team) open() {
	s.T.Helper()
	s.Create(map[string]any{"name": "label", "done_by": 3, "lease": s.lease.String(), "on_away": "release", "require_code": true,
		"outcomes": []assign.Outcome{
			{Code: "labelled", Label: "Labelled", Do: "complete", Note: "none"},
			{Code: "illegible", Label: "I can't read it", Do: "return", After: new(assign.Duration(0)), To: "others", Note: "must"},
			{Code: "tomorrow", Label: "Tomorrow", Do: "return", After: new(assign.Duration(nextDay))},
		},
		"result": []assign.ResultField{
			{Name: "kind", Type: "string", Enum: []any{"invoice", "letter", "receipt"}, Required: true},
			{Name: "pages", Type: "number", Min: 1, Max: 99, Required: true},
			{Name: "signed", Type: "boolean"},
			{Name: "dated", Type: "date"},
		}})
	s.Create(map[string]any{"name": "review", "conflicts_with": []string{"label"}, "require_code": true, "outcomes": []assign.Outcome{
		{Code: "agreed", Label: "Agreed", Do: "complete"},
		{Code: "wrong", Label: "Wrong", Do: "complete", Note: "must"},
	}})
	if err := s.As("mary", 0).UpdateTask(s.T.Context(), "label", map[string]any{"on_complete": map[string]any{"task": "review", "share": 0.1}}); err != nil {
		s.T.Fatal(err)
	}
}

// come pushes a day's documents.
func (s *team) come(day string) {
	s.T.Helper()
	var all []assign.NewItem
	for i := range documents {
		all = append(all, assign.NewItem{Item: fmt.Sprintf("%s-%02d", day, i), Details: json.RawMessage(fmt.Sprintf(`{"scan":"https://scans.example/%s/%d"}`, day, i))})
	}
	if got, err := s.As("scanner", 0).Push(s.T.Context(), "label", all...); err != nil || got.Accepted != documents {
		s.T.Fatalf("push the documents of %s: %+v, %v", day, got, err)
	}
}

// night ends when what was put off until tomorrow is back.
func (s *team) night() {
	s.T.Helper()
	s.Await("the night is over", 4*nextDay, `
select not exists (select from getwork.work where state = 'returned' and available_at > clock_timestamp() or state = 'held' and later_until > clock_timestamp())`)
}

// monday also shows what is refused: an end without a code, and a label without its fields.
func (s *team) monday() {
	s.T.Helper()
	s.come("mon")
	ann := s.As("ann", 0)
	w := s.Got(ann, "label", 1).Work[0]
	s.refused(ann, w, map[string]any{"outcome": "complete"}, "code")
	s.refused(ann, w, map[string]any{"code": "labelled", "result": map[string]any{"kind": "poem", "pages": 0}}, "result.kind", "result.pages")
	s.ends(ann, w, map[string]any{"code": "tomorrow"})
	s.work(annotators...)
}

// tuesday is a day on which Ann falls ill. What she held is for others at once, and she gets nothing until she is back.
func (s *team) tuesday() {
	s.T.Helper()
	s.night()
	s.come("tue")
	ann, mary := s.As("ann", 1), s.As("mary", 2)
	mary.Role = "manager"
	hers := s.Got(ann, "label", 2)
	a := s.asks(mary, 201, "POST", "/api/v1/absences", map[string]any{"user": "ann", "until": time.Now().Add(time.Hour).UTC()})
	var absence assign.Absence
	if err := a.Decode(&absence); err != nil {
		s.T.Fatal(err)
	}
	s.Await("what Ann held has gone back", e2e.Soon, `
select count(*) = 2 from getwork.work where id = any($1) and state = 'returned' and code = '_away'`, ids(hers.Work))
	if r := s.Got(ann, "label", 1); e2e.Why(r) != assign.Away {
		s.T.Errorf("Ann is away, and is told %s %s", r.State, e2e.Why(r))
	}
	s.work(annotators[1:]...)
	s.asks(mary, 200, "DELETE", fmt.Sprint("/api/v1/absences/", absence.ID), nil)
}

// wednesday is a day on which Cleo puts one document aside until tomorrow: it stays hers.
func (s *team) wednesday() assign.Work {
	s.T.Helper()
	s.night()
	s.come("wed")
	cleo := s.As("cleo", 2)
	aside := s.Got(cleo, "label", 1).Work[0]
	s.asks(cleo, 200, "POST", fmt.Sprint("/api/v1/work/", aside.ID, "/later"), map[string]any{"until": time.Now().Add(2 * nextDay).UTC()})
	s.work(annotators...)
	if done := column[bool](s.site, `select done_at is not null from getwork.item where item = $1`, aside.Item); done[0] {
		s.T.Errorf("%s is done, and Cleo has put it aside", aside.Item)
	}
	return aside
}

// thursday is a day on which Ben goes home without a word: when his lease is over, others get what he held.
func (s *team) thursday(aside assign.Work) {
	s.T.Helper()
	s.night()
	s.come("thu")
	cleo := s.As("cleo", 0)
	if p, err := cleo.Pipeline(s.T.Context()); err != nil || len(p.Work) != 1 || p.Work[0].ID != aside.ID {
		s.T.Errorf("Cleo has put aside %s, and holds %+v, %v", aside.Item, p.Work, err)
	}
	s.ends(cleo, aside, labelled("cleo", aside.Item))
	his := s.Got(s.As("ben", 1), "label", 2)
	s.work(slices.DeleteFunc(slices.Clone(annotators), func(name string) bool { return name == "ben" })...)
	if n := column[int64](s.site, `select count(*) from getwork.work where id = any($1) and state = 'expired' and code = '_expired'`, ids(his.Work)); n[0] != 2 {
		s.T.Errorf("of Ben's two documents %d have expired", n[0])
	}
}

func (s *team) friday() {
	s.T.Helper()
	s.night()
	s.come("fri")
	s.work(annotators...)
}

// work has these people label at the same time, until nothing is left to do that nobody has put aside.
func (s *team) work(people ...string) {
	s.T.Helper()
	ctx, cancel := context.WithTimeout(s.T.Context(), timeout.Scale(time.Minute))
	defer cancel()
	var all sync.WaitGroup
	for i, name := range people {
		all.Go(func() {
			for n := i; ctx.Err() == nil; n++ {
				r, a, err := s.As(name, n%3).Linger(ctx, "label", 2, "500ms", "Prefer", "wait=20")
				if err != nil || a.Status != 201 {
					s.T.Errorf("%s asks for documents: %d %s, %v", name, a.Status, a.Body, err)
					return
				}
				if r.State == assign.None && s.nothingLeft(ctx) {
					return
				}
				for _, w := range r.Work {
					s.label(ctx, s.As(name, (n+1)%3), w)
				}
			}
			s.T.Errorf("%s still works late at night", name)
		})
	}
	all.Wait()
	if s.T.Failed() {
		s.T.FailNow()
	}
}

func (s *team) nothingLeft(ctx context.Context) (so bool) {
	err := s.DB.QueryRow(ctx, `
select not exists (
  select from getwork.item i join getwork.task_state s using (task_id)
  where s.name = 'label' and i.done_at is null and not exists (
    select from getwork.work w where w.task_id = i.task_id and w.item = i.item and w.state = 'held' and w.later_until is not null))`).Scan(&so)
	if err != nil {
		s.T.Error(err)
	}
	return so
}

// label labels a document, or rarely gives it back.
func (s *team) label(ctx context.Context, who cluster.Client, w assign.Work) {
	body := labelled(who.User, w.Item)
	switch chance := luck(who.User, w.Item); {
	case chance%16 == 0 && s.first(ctx, w):
		body = map[string]any{"code": "illegible", "note": remark}
	case chance%16 == 1 && s.first(ctx, w):
		body = map[string]any{"code": "tomorrow"}
	}
	if a, err := who.Do(ctx, "POST", fmt.Sprint("/api/v1/work/", w.ID, "/disposition"), body); err != nil || a.Status != 200 {
		s.T.Errorf("%s labels %s: %d %s, %v", who.User, w.Item, a.Status, a.Body, err)
	}
}

// first reports whether it is the first time that they have the document.
func (s *team) first(ctx context.Context, w assign.Work) (so bool) {
	if err := s.DB.QueryRow(ctx, `select count(*) = 1 from getwork.work where item = $1 and user_name = $2`, w.Item, w.User).Scan(&so); err != nil {
		s.T.Error(err)
	}
	return so
}

// luck is a number that follows from a person and a document.
func luck(who, item string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(who + " " + item))
	return h.Sum32()
}

// labelled is what somebody finds a document to be. Some leave out what they need not say.
func labelled(who, item string) map[string]any {
	n := luck(who, item)
	result := map[string]any{"kind": []string{"invoice", "letter", "receipt"}[n%3], "pages": 1 + n%99}
	if n%2 == 0 {
		result["signed"], result["dated"] = n%4 == 0, time.Date(2026, 1, 1+int(n%365), 0, 0, 0, 0, time.UTC).Format(time.DateOnly)
	}
	return map[string]any{"code": "labelled", "result": result}
}

// review has people review what was drawn. Ann labels, too, and doesn't get what she has labelled.
func (s *team) review() {
	s.T.Helper()
	for i, name := range []string{"ann", "mia", "noa", "mia"} {
		who := s.As(name, i%3)
		for range 3 + 200*(i/3) { // the last takes all that is left
			r := s.Got(who, "review", 1)
			if len(r.Work) == 0 {
				break
			}
			w := r.Work[0]
			var details struct {
				Scan string
				From string
			}
			if err := json.Unmarshal(w.Details, &details); err != nil || details.Scan == "" {
				s.T.Errorf("%s reviews %s and sees %s, %v", name, w.Item, w.Details, err)
			}
			if of := column[string](s.site, `select item || ' ' || state from getwork.work where id = $1::text::bigint`, details.From); !slices.Equal(of, []string{w.Item + " completed"}) {
				s.T.Errorf("%s reviews %s, from %q: %v", name, w.Item, details.From, of)
			}
			body := map[string]any{"code": "agreed"}
			if luck(name, w.Item)%4 == 0 {
				body = map[string]any{"code": "wrong", "note": remark}
			}
			s.ends(who, w, body)
		}
	}
}

// export reads everything that became of a task, as a table by the names of its columns.
func (s *team) export(task string) (table []map[string]string) {
	s.T.Helper()
	mary := s.As("mary", 1)
	mary.Role = "manager"
	a := s.asks(mary, 200, "GET", "/api/v1/work?format=csv&task="+task, nil)
	if a.Header.Get("Link") != "" {
		s.T.Fatal("the export has more pages than one")
	}
	rows, err := csv.NewReader(bytes.NewReader(a.Body)).ReadAll()
	if err != nil {
		s.T.Fatalf("read the export of %s: %v", task, err)
	}
	for _, row := range rows[1:] {
		named := map[string]string{}
		for i, cell := range row {
			named[rows[0][i]] = cell
		}
		table = append(table, named)
	}
	if n := column[int64](s.site, `select count(*) from getwork.work join getwork.task_state using (task_id) where name = $1`, task); int(n[0]) != len(table) {
		s.T.Errorf("%d rows of work, and %d in the export", n[0], len(table))
	}
	return table
}

// threeOfEach checks in the export that each document was labelled by three people, with a code and a typed result, and that whatever
// else became of it has its reason.
func (s *team) threeOfEach(table []map[string]string) {
	s.T.Helper()
	by, codes := map[string][]string{}, map[string]int{}
	for _, row := range table {
		codes[row["code"]]++
		switch row["state"] {
		case "completed":
			by[row["item"]] = append(by[row["item"]], row["user"])
			s.typed(row)
		case "returned":
			if row["code"] == "illegible" && row["note"] != remark {
				s.T.Errorf("%s: the note is %q", row["item"], row["note"])
			}
		}
	}
	if len(by) != 5*documents {
		s.T.Errorf("%d documents were labelled, of %d", len(by), 5*documents)
	}
	for item, people := range by {
		if slices.Sort(people); len(slices.Compact(slices.Clone(people))) != 3 || len(people) != 3 {
			s.T.Errorf("%s was labelled by %v; want three different people", item, people)
		}
	}
	if codes["labelled"] != 3*5*documents || codes["illegible"] == 0 || codes["tomorrow"] == 0 || codes["_away"] != 2 || codes["_expired"] != 2 || len(codes) != 5 {
		s.T.Errorf("codes in the export: %v", codes)
	}
}

// typed checks a row's result: a text, a number, and perhaps a truth value and a date.
func (s *team) typed(row map[string]string) {
	s.T.Helper()
	var result, want map[string]any
	said, err := json.Marshal(labelled(row["user"], row["item"])["result"])
	if err == nil {
		err = json.Unmarshal(said, &want)
	}
	if err == nil {
		err = json.Unmarshal([]byte(row["result"]), &result)
	}
	if diff := cmp.Diff(want, result); err != nil || diff != "" || row["code"] != "labelled" {
		s.T.Errorf("%s by %s: code %q, result (-said +exported) %s, %v", row["item"], row["user"], row["code"], diff, err)
	}
}

// reviewed checks that exactly those documents were reviewed that were drawn with the completion that finished them, once each and by
// somebody who had not labelled them.
func (s *team) reviewed(labels, reviews []map[string]string) {
	s.T.Helper()
	drawn := map[string]bool{}
	const last = `
select w.item || ' ' || w.id from getwork.item i join getwork.task_state s using (task_id) join getwork.work w using (task_id, item)
where s.name = 'label' and w.state = 'completed' and w.user_name = i.completed_by[3]`
	all := column[string](s.site, last)
	if len(all) != 5*documents {
		s.T.Errorf("%d documents have a last completion", len(all))
	}
	for _, one := range all {
		var item, id string
		if _, err := fmt.Sscan(one, &item, &id); err != nil {
			s.T.Fatal(err)
		}
		work, err := strconv.ParseInt(id, 10, 64)
		if err != nil {
			s.T.Fatal(err)
		}
		if (&assign.OnComplete{Share: 0.1}).Draws(work) {
			drawn[item] = true
		}
	}
	got := map[string]bool{}
	for _, row := range reviews {
		if row["state"] != "completed" || row["code"] != "agreed" && row["code"] != "wrong" || got[row["item"]] {
			s.T.Errorf("a review of %s is %s, with the code %q, and was there before: %t", row["item"], row["state"], row["code"], got[row["item"]])
		}
		got[row["item"]] = true
		if slices.ContainsFunc(labels, func(l map[string]string) bool {
			return l["item"] == row["item"] && l["user"] == row["user"] && l["state"] == "completed"
		}) {
			s.T.Errorf("%s reviewed %s, which they had labelled", row["user"], row["item"])
		}
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(drawn)), slices.Sorted(maps.Keys(got))); diff != "" || len(drawn) == 0 {
		s.T.Errorf("documents that were drawn, and reviewed (-drawn +reviewed): %s", diff)
	}
	s.T.Logf("%d of %d documents were reviewed", len(got), 5*documents)
}

// asks makes a call, and expects an answer of that status.
func (s *team) asks(who cluster.Client, status int, method, path string, body any) cluster.Answer {
	s.T.Helper()
	a, err := who.Do(s.T.Context(), method, path, body)
	if err != nil || a.Status != status {
		s.T.Fatalf("%s: %s %s: %d %s, %v", who.User, method, path, a.Status, a.Body, err)
	}
	return a
}

// ends lets go of work.
func (s *team) ends(who cluster.Client, w assign.Work, body map[string]any) {
	s.T.Helper()
	s.asks(who, 200, "POST", fmt.Sprint("/api/v1/work/", w.ID, "/disposition"), body)
}

// refused tries to let go of work in a way that is against its task's codes, and expects these fields to be named.
func (s *team) refused(who cluster.Client, w assign.Work, body map[string]any, fields ...string) {
	s.T.Helper()
	a := s.asks(who, 422, "POST", fmt.Sprint("/api/v1/work/", w.ID, "/disposition"), body)
	var named []string
	for _, f := range a.Problem.Errors {
		named = append(named, f.Field)
	}
	if !slices.Equal(named, fields) {
		s.T.Errorf("%v is refused for %v; want %v", body, named, fields)
	}
}

// ids returns the ids of work.
func ids(work []assign.Work) (all []int64) {
	for _, w := range work {
		all = append(all, w.ID)
	}
	return all
}
