package story

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"getwork/assign"
	"getwork/cmd/internal/cluster"
	"getwork/cmd/internal/e2e"
	"getwork/schema/schematest"
)

// A user is away, and a manager releases their work: exactly what the dry run counted, or nothing.
func TestReleaseWhatWasCounted(t *testing.T) {
	schematest.Thorough(t)
	t.Parallel()
	s := newSite(t, 3, "")
	for _, task := range []string{"verify", "call"} {
		s.Task(task, "select i as item from generate_series(1, 20) i")
	}
	away := s.Got(s.As("away", 0), "verify", 5).Work
	s.Got(s.As("away", 1), "call", 3)
	s.Got(s.As("tracy", 1), "verify", 2)
	screen := s.Dial("away", 2)

	dry, a, err := s.As("mary", 0).Release(t.Context(), assign.Release{User: "away", DryRun: true})
	if err != nil || a.Status != 200 || dry.Count != 8 || dry.Token == "" {
		t.Fatalf("dry run: %d %s, %v", a.Status, a.Body, err)
	}
	s.Disposed(s.As("away", 1), away[0], "complete", "")
	_, a, err = s.As("mary", 1).Release(t.Context(), assign.Release{User: "away", Token: dry.Token})
	if err != nil || a.Status != 409 || a.Problem.Type != "/problems/stale-version" {
		t.Errorf("the set has changed: %d %s, %v", a.Status, a.Body, err)
	}
	if held := s.holds("away"); held != 7 {
		t.Fatalf("the user holds %d, want all 7 still", held)
	}
	one, _, err := s.As("mary", 0).Release(t.Context(), assign.Release{User: "away", Task: "call", DryRun: true})
	if err != nil || one.Count != 3 {
		t.Errorf("dry run of one task: %+v, %v", one, err)
	}
	dry, _, err = s.As("mary", 2).Release(t.Context(), assign.Release{User: "away", DryRun: true})
	if err != nil || dry.Count != 7 {
		t.Errorf("dry run: %+v, %v", dry, err)
	}
	answers := make([]cluster.Answer, 6)
	var releasing sync.WaitGroup
	for i := range answers {
		releasing.Go(func() {
			_, answers[i], _ = s.As("mary", i%3).Release(t.Context(), assign.Release{User: "away", Token: dry.Token})
		})
	}
	releasing.Wait()
	told := map[int]int{}
	for _, a := range answers {
		told[a.Status]++
	}
	if !cmp.Equal(told, map[int]int{200: 1, 409: 5}) {
		t.Errorf("six released the same set, and were told %v", told)
	}
	taken := func(e cluster.Event) bool { return e.Work != nil && e.Work.State == "returned" }
	if e2e.ModeNow == e2e.Polling {
		taken = e2e.Without(away)
	}
	s.Hear(screen, "word that it was taken", e2e.Soon, taken)
	if s.holds("away") != 0 || s.holds("tracy") != 2 {
		t.Errorf("they hold %d and %d; want none, and Tracy's 2", s.holds("away"), s.holds("tracy"))
	}
	if _, a, err := s.As("away", 0).Dispose(t.Context(), away[1].ID, "complete", ""); err != nil || a.Status != 409 || a.Problem.Type != "/problems/already-closed" {
		t.Errorf("the former holder completes released work: %d %s, %v", a.Status, a.Body, err)
	}
	if r := s.Got(s.As("quinn", 0), "verify", 2); !cmp.Equal(e2e.Keys(r.Work), []string{"1", "2"}) {
		t.Errorf("another gets %v; want 1, which still matches, and 2, which was released", e2e.Keys(r.Work))
	}
	s.Promises()
}

// holds returns how much a user holds.
func (s *site) holds(user string) int64 {
	s.T.Helper()
	return column[int64](s, `select count(*) from getwork.work where user_name = $1 and state = 'held'`, user)[0]
}

// People wait on three nodes, and a manager pauses the task. Requests that come meanwhile are served when another node
// resumes it, first come, first served.
func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	s := newSite(t, 3, "")
	s.Create(map[string]any{"name": "letters", "query": nil})
	var waiting []assign.Request
	var screens []*cluster.Socket
	for i, who := range []string{"ann", "bob", "cy"} {
		screens = append(screens, s.Dial(who, (i+1)%3))
		r, a, err := s.As(who, i).Linger(t.Context(), "letters", 2, "10m")
		if err != nil || a.Status != 202 {
			t.Fatalf("%s waits: %d %s, %v", who, a.Status, a.Body, err)
		}
		waiting = append(waiting, r)
	}
	if err := s.As("mary", 1).Pause(t.Context(), "letters"); err != nil {
		t.Fatal(err)
	}
	items := make([]assign.NewItem, 5)
	for i := range items {
		items[i].Item = fmt.Sprint("letter ", i)
	}
	if _, err := s.As("mary", 2).Push(t.Context(), "letters", items...); err != nil {
		t.Fatal(err)
	}
	for i := range s.Nodes { // a click takes the same path as a push, behind it
		if r := s.Got(s.As(fmt.Sprint("late-", i), i), "letters", 1); r.State != assign.None || e2e.Why(r) != assign.Paused {
			t.Errorf("a click on a paused task: %+v", r)
		}
		if _, a, err := s.As("late", i).Claim(t.Context(), "letters", "letter 0"); err != nil || a.Status != 409 {
			t.Errorf("a claim of a paused task: %d %s, %v", a.Status, a.Body, err)
		}
	}
	for i, r := range waiting {
		if now, _, err := s.As(r.User, (i+2)%3).Request(t.Context(), r.ID); err != nil || now.State != assign.Pending {
			t.Errorf("%s no longer waits: %+v, %v", r.User, now, err)
		}
	}
	if err := s.As("mary", 0).Resume(t.Context(), "letters"); err != nil {
		t.Fatal(err)
	}
	for i, want := range [][]string{{"letter 0", "letter 1"}, {"letter 2", "letter 3"}, {"letter 4"}} {
		told := s.Pushed(screens[i], (i+1)%3, waiting[i], e2e.Soon)
		if got := e2e.Keys(told.Work); !cmp.Equal(got, want) {
			t.Errorf("%s got %v; want %v", waiting[i].User, got, want)
		}
	}
	s.Promises()
}

// A manager pages through the history of work while it grows: each row that existed at the start is seen once.
func TestLeafThroughWork(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	s := newSite(t, 3, "")
	s.Task("verify", "select i as item from generate_series(1, 400) i")
	var users []string
	for i := range 6 {
		users = append(users, fmt.Sprint("user-", i))
	}
	work := func(user string, node int) {
		for i, w := range s.Got(s.As(user, node), "verify", 5).Work {
			if i < 3 {
				s.Disposed(s.As(user, (node+1)%3), w, "return", "1h")
			}
		}
	}
	for i, user := range users {
		work(user, i%3)
		work(user, (i+1)%3)
	}
	there := column[int64](s, `select id from getwork.work order by id desc`)
	var growing sync.WaitGroup
	for i, user := range users {
		growing.Go(func() {
			for j := range 3 {
				work(user, (i+j)%3)
			}
		})
	}
	seen := s.leafThrough(url.Values{"task": {"verify"}, "limit": {"7"}})
	growing.Wait()
	if i := slices.IndexFunc(seen, func(w assign.Work) bool { return w.ID <= there[0] }); i < 0 || !cmp.Equal(ids(seen[i:]), there) {
		t.Errorf("of the rows %v these were seen: %v", there, ids(seen))
	}
	for _, want := range []struct{ filter, value, sql string }{
		{"user", "user-3", `select id from getwork.work where user_name = $1 order by id desc`},
		{"state", "returned", `select id from getwork.work where state = $1 order by id desc`},
		{"item", "17", `select id from getwork.work where item = $1 order by id desc`},
	} {
		got := ids(s.leafThrough(url.Values{want.filter: {want.value}, "limit": {"4"}}))
		if diff := cmp.Diff(column[int64](s, want.sql, want.value), got); diff != "" {
			t.Errorf("%s %s (-want +got):\n%s", want.filter, want.value, diff)
		}
	}
	s.Promises()
}

// leafThrough reads all pages, newest first, each from another node.
func (s *site) leafThrough(query url.Values) (seen []assign.Work) {
	s.T.Helper()
	limit, _ := strconv.Atoi(query.Get("limit"))
	for turn := 0; ; turn++ {
		page, next, err := s.As("olga", turn%3).WorkPage(s.T.Context(), query)
		if err != nil {
			s.T.Fatal(err)
		}
		for _, w := range page {
			if len(seen) > 0 && seen[len(seen)-1].ID <= w.ID {
				s.T.Fatalf("work %d comes after %d", w.ID, seen[len(seen)-1].ID)
			}
			seen = append(seen, w)
		}
		if next == "" {
			return seen
		}
		if len(page) != limit {
			s.T.Errorf("a page of %d is followed by another; the limit is %d", len(page), limit)
		}
		query.Set("cursor", next)
	}
}

func ids(work []assign.Work) []int64 {
	all := make([]int64, len(work))
	for i, w := range work {
		all[i] = w.ID
	}
	return all
}
