package story

import (
	"crypto/rand"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"getwork/assign"
	"getwork/cmd/internal/cluster"
	"getwork/cmd/internal/e2e"
	"getwork/schema/schematest"
)

// saturday is eight jobs with forty places in all.
const saturday = `
create table job (id text primary key, starts_at timestamptz not null, places integer not null);
insert into job values
  ('gate', '2026-05-01 08:00Z', 3), ('kitchen', '2026-05-01 08:30Z', 8), ('stage', '2026-05-01 09:00Z', 12),
  ('first aid', '2026-05-01 09:30Z', 2), ('parking', '2026-05-01 10:00Z', 5), ('lights', '2026-05-01 10:30Z', 1),
  ('children', '2026-05-01 11:00Z', 4), ('clean-up', '2026-05-01 18:00Z', 5)`

const (
	volunteers = 120
	jobPlaces  = 40
)

// A hundred and twenty volunteers sign up for forty places at once, each for at most one job, at any isolation level
// that is the database's default.
func TestVolunteerSignup(t *testing.T) {
	t.Parallel()
	for _, level := range []string{"read committed", "repeatable read", "serializable"} {
		t.Run(level, func(t *testing.T) {
			t.Parallel()
			if level == "repeatable read" { // between the two others
				schematest.Thorough(t)
			}
			s := newSite(t, 3, e2e.DatabaseAt(t, level))
			if got := column[string](s, `show default_transaction_isolation`); got[0] != level {
				t.Fatalf("transactions begin as %s", got[0])
			}
			s.Exec(saturday)
			s.Create(map[string]any{"name": "sign-up", "query": "select id as item, places as slots, starts_at from job order by starts_at",
				"fresh_for": "10m", "max_open": 1, "max_request": 1})
			s.signUp()
			s.leave()
			s.lastPlace()
			s.noOverbooking()
			s.Promises()
		})
	}
}

// signUp starts everybody at once: a third click, a third claim a job and click if it is full, and a third do both on
// two nodes at the same time.
func (s *site) signUp() {
	s.T.Helper()
	names := column[string](s, `select id from job order by id`)
	var mu sync.Mutex
	said := map[string]int{}
	hear := func(what string) {
		mu.Lock()
		defer mu.Unlock()
		said[what]++
	}
	var all sync.WaitGroup
	for i := range volunteers {
		who, job := fmt.Sprintf("volunteer-%03d", i), names[i%len(names)]
		all.Go(func() {
			var both sync.WaitGroup
			if i%3 == 2 {
				both.Go(func() { hear(s.clicksAny(s.As(who, i/3%3))) })
			}
			answer := "click"
			if i%3 > 0 {
				answer = s.claims(s.As(who, (i/3+1)%3), job)
				hear("claim " + answer)
			}
			if i%3 < 2 && answer != "ok" { // a click, or a refused claim
				hear(s.clicksAny(s.As(who, i/3%3)))
			}
			both.Wait()
		})
	}
	all.Wait()
	s.T.Logf("they were told: %v", said)
	for what := range said {
		known := []string{"click assigned", "click none all_held", "click none at_limit",
			"claim ok", "claim his", "claim no-slot", "claim not-available"}
		if !slices.Contains(known, what) {
			s.T.Errorf("somebody was told %q", what)
		}
	}
	if n := column[int64](s, `select count(*) from getwork.work where state = 'held'`); n[0] != jobPlaces || said["click assigned"]+said["claim ok"] != jobPlaces {
		s.T.Errorf("%d have places, %d were told so; want %d", n[0], said["click assigned"]+said["claim ok"], jobPlaces)
	}
	if said["click none all_held"] == 0 {
		s.T.Error("nobody was told that all places are taken")
	}
}

// clicksAny asks for any job, and again with the same key, as clients do, while that can't be answered in time. It returns the outcome.
func (s *site) clicksAny(who cluster.Client) string {
	key := rand.Text()
	click := func() (assign.Request, cluster.Answer, error) {
		return who.GetWork(s.T.Context(), "sign-up", 1, "Prefer", "wait=60", "Idempotency-Key", key)
	}
	r, a, err := click()
	for range 5 {
		if err != nil || a.Status != 503 {
			break
		}
		r, a, err = click()
	}
	switch {
	case err != nil || a.Status != 201:
		return fmt.Sprintf("click %d %s %v", a.Status, a.Body, err)
	case r.State == assign.Assigned:
		return "click assigned"
	}
	return fmt.Sprintf("click %s %s", r.State, e2e.Why(r))
}

// claims asks for one job, and again, as clients do, while that can't be answered in time or the node is busy.
func (s *site) claims(who cluster.Client, job string) string {
	w, a, err := who.Claim(s.T.Context(), "sign-up", job)
	for range 20 {
		if err != nil || a.Status != 503 && a.Status != 429 {
			break
		}
		if a.Status == 429 { // each claim of a job that is not on the shelf is a run; the answer says when to come again
			<-time.After(time.Second)
		}
		w, a, err = who.Claim(s.T.Context(), "sign-up", job)
	}
	switch {
	case err != nil:
		return err.Error()
	case a.Status == 201 && w.Item == job:
		return "ok"
	case a.Status == 200 && w.Item == job: // the volunteer's click got it a moment before
		return "his"
	case a.Status == 409:
		return a.Problem.Type[len("/problems/"):]
	}
	return fmt.Sprintf("%d %s", a.Status, a.Body)
}

// leave has two wait, and two leave: each place goes at once to the one who has waited longest, without a run. Those
// who have left may sign up for something else.
func (s *site) leave() {
	s.T.Helper()
	runs := s.States()
	var waiting []assign.Request
	var sockets []*cluster.Socket
	for i, who := range []string{"ada", "ben"} {
		sockets = append(sockets, s.Dial(who, i))
		r, a, err := s.As(who, i+1).Linger(s.T.Context(), "sign-up", 1, "10m")
		if err != nil || a.Status != 202 {
			s.T.Fatalf("%s waits: %d %s, %v", who, a.Status, a.Body, err)
		}
		waiting = append(waiting, r)
	}
	s.Await("both were seen, and linger", e2e.Soon, `
select count(*) = 2 from getwork.work_requested where state = 'pending' and look_after is not null`)
	for i, job := range []string{"kitchen", "stage"} {
		who := s.leaves(job, i)
		told := s.Pushed(sockets[i], i, waiting[i], e2e.Soon)
		if got := e2e.Keys(told.Work); !slices.Equal(got, []string{job}) {
			s.T.Errorf("%s left %s, and %s got %v", who, job, waiting[i].User, got)
		}
		if i == 0 {
			if r, _, err := s.As("ben", 0).Request(s.T.Context(), waiting[1].ID); err != nil || r.State != assign.Pending {
				s.T.Errorf("ben came later, but has %+v, %v", r, err)
			}
		}
	}
	if now := s.States(); now != runs {
		s.T.Errorf("runs before %q, after %q; want none to be needed", runs, now)
	}
	who := s.leaves("lights", 2) // the only place: the shelf, which is older, does not give it again
	for _, want := range []struct{ user, job, answer string }{
		{"ada", "lights", "not-available"}, {who, "lights", "ok"}, {"ada", "stage", "not-available"}, {"cy", "lights", "no-slot"},
	} {
		if answer := s.claims(s.As(want.user, 2), want.job); answer != want.answer {
			s.T.Errorf("%s claims %s and is told %s; want %s", want.user, want.job, answer, want.answer)
		}
	}
}

// leaves has the first who signed up for a job leave it, and returns their name.
func (s *site) leaves(job string, node int) string {
	s.T.Helper()
	who := column[string](s, `select user_name from getwork.work where item = $1 and state = 'held' order by id limit 1`, job)[0]
	p, err := s.As(who, node).Pipeline(s.T.Context())
	if err != nil || len(p.Work) != 1 || p.Work[0].Item != job {
		s.T.Fatalf("%s holds %+v, %v; want %s alone", who, p, err, job)
	}
	s.Disposed(s.As(who, node), p.Work[0], "return", "0s")
	return who
}

// lastPlace has claims race for each of many jobs, one claim more than there are places: one is refused.
func (s *site) lastPlace() {
	s.T.Helper()
	const rounds = 24
	s.Create(map[string]any{"name": "last-place", "query": fmt.Sprintf(
		"select 'job ' || i as item, 1 + i %% 3 as slots from generate_series(1, %d) i", rounds), "fresh_for": "10m"})
	s.Got(s.As("first", 0), "last-place", 1) // half of the claims find the shelf
	for i := range rounds - 1 {
		job, places := fmt.Sprintf("job %d", i+2), 1+(i+2)%3
		if i == rounds/2 {
			s.Exec(`update getwork.task_state set fresh_until = clock_timestamp() where name = 'last-place'`) // and for the other half the query runs
		}
		answers := make([]cluster.Answer, places+1)
		var all sync.WaitGroup
		for j := range answers {
			all.Go(func() {
				_, answers[j], _ = s.As(fmt.Sprintf("claimer-%d", j), (i+j)%3).Claim(s.T.Context(), "last-place", job)
			})
		}
		all.Wait()
		got := map[string]int{}
		for _, a := range answers {
			got[fmt.Sprint(a.Status, a.Problem.Type)]++
		}
		if got["201"] != places || got["409/problems/no-slot"] != 1 {
			s.T.Errorf("%d claimed the %d places of %s at once, and were told %v", places+1, places, job, got)
		}
	}
}

// noOverbooking checks every moment at which somebody got a place.
func (s *site) noOverbooking() {
	s.T.Helper()
	for what, sql := range map[string]string{
		"overbooked": `
select j.id from job j join getwork.work w on w.item = j.id
where j.places < (select count(*) from getwork.work o where o.task_id = w.task_id and o.item = w.item
  and o.assigned_at <= w.assigned_at and w.assigned_at < coalesce(o.closed_at, 'infinity'))`,
		"with two jobs at a time": `
select w.user_name from getwork.work w join getwork.task_state t using (task_id)
where t.name = 'sign-up' and 1 < (select count(*) from getwork.work o where o.task_id = w.task_id and o.user_name = w.user_name
  and o.assigned_at <= w.assigned_at and w.assigned_at < coalesce(o.closed_at, 'infinity'))`,
	} {
		if found := column[string](s, sql); len(found) > 0 {
			s.T.Errorf("%s: %v", what, found)
		}
	}
}
