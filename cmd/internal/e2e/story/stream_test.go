package story

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"getwork/assign"
	"getwork/cmd/internal/e2e"
)

// People click all the time, on three nodes, and the query takes five seconds. After the first query nobody waits for
// one, although the shelf ends several times; there is never more than one run, and when people have gone home there is
// none. The shelf lasts four times as long as the query, so a refresh has as much time to spare as it takes. No other
// test of this package runs meanwhile.
func TestAStreamOfUsersWaitsForNoQuery(t *testing.T) {
	s := newSite(t, 3, "")
	const query = `select i as item from generate_series(1, 100000) i, (select pg_sleep(5)) slept order by i`
	s.Create(map[string]any{"name": "stream", "query": query, "fresh_for": "20s", "max_candidates": 2000})
	first, _, err := s.As("first", 0).GetWork(t.Context(), "stream", 1)
	if err != nil {
		t.Fatal(err)
	}
	if first, err = s.As("first", 0).Await(t.Context(), first.ID); err != nil || first.State != assign.Assigned {
		t.Fatalf("the first is %s, %v", first.State, err)
	}

	var mu sync.Mutex
	given := map[string]string{}
	var clicking sync.WaitGroup
	pace := time.NewTicker(60 * time.Millisecond)
	defer pace.Stop()
	begun, before := time.Now(), e2e.Overslept.Load()
	for i := 0; time.Since(begun) < 32*time.Second && !t.Failed(); i++ {
		<-pace.C
		user, node := fmt.Sprintf("user-%d", i), i%3
		clicking.Go(func() {
			r, a, err := s.As(user, node).GetWork(t.Context(), "stream", 2)
			if stood := time.Duration(e2e.Overslept.Load() - before); err == nil && a.Status == 202 && stood > 3*time.Second {
				t.Logf("%s waits, on a machine that stood still for %v", user, stood) // that is most of what a refresh has to spare
				return
			}
			if err != nil || a.Status != 201 || r.State != assign.Assigned {
				t.Errorf("%s got %d %s, %v: the user waits", user, a.Status, r.State, err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			for _, w := range r.Work {
				if other := given[w.Item]; other != "" {
					t.Errorf("%s got %s, which %s has", user, w.Item, other)
				}
				given[w.Item] = user
			}
		})
	}
	clicking.Wait()
	if t.Failed() {
		const runs = `
select format('%s %s: %s to %s', id, state, started_at, finished_at) from getwork.run order by id`
		for _, r := range column[string](s, runs) {
			t.Log("run", r)
		}
	}

	finished := `select count(*) from getwork.run where state = 'finished'`
	e2e.Await(t, "the shelf has been renewed twice", 20*time.Second, func() bool { return column[int64](s, finished)[0] >= 3 })
	lost := `select count(*) from getwork.run where state = 'lost'` // as a run that begins beside another calls the other
	if n := column[int64](s, lost)[0]; n > 0 {
		t.Errorf("%d runs began while another was under way", n)
	}

	s.Exec(`update getwork.task_state set used_at = used_at - interval '1 day'`) // the users have gone home
	e2e.Await(t, "no run is under way", 20*time.Second, func() bool {
		return column[int64](s, `select count(*) from getwork.run where state = 'running'`)[0] == 0
	})
	last := column[int64](s, `select max(id) from getwork.run`)[0]
	s.Exec(`update getwork.task_state set fresh_until = clock_timestamp()`)
	looks := time.NewTimer(4 * time.Second) // every node looks at least once in three seconds
	<-looks.C
	if n := column[int64](s, `select max(id) from getwork.run`)[0]; n != last {
		t.Error("a run was started for nobody")
	}
}
