package story

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"getwork/assign"
	"getwork/cmd/internal/cluster"
)

// racer is one of several clients that write the same row at the same time.
type racer struct {
	name string
	as   string // the row's state afterwards, if this racer wins
	call func(context.Context, cluster.Client, int64) (assign.Work, cluster.Answer, error)
}

var racers = []racer{
	{"complete", "completed", func(ctx context.Context, c cluster.Client, id int64) (assign.Work, cluster.Answer, error) {
		return c.Dispose(ctx, id, "complete", "")
	}},
	{"return", "returned", func(ctx context.Context, c cluster.Client, id int64) (assign.Work, cluster.Answer, error) {
		return c.Dispose(ctx, id, "return", "1h")
	}},
	{"never", "never", func(ctx context.Context, c cluster.Client, id int64) (assign.Work, cluster.Answer, error) {
		return c.Dispose(ctx, id, "never", "")
	}},
	{"fail", "failed", func(ctx context.Context, c cluster.Client, id int64) (assign.Work, cluster.Answer, error) {
		return c.Fail(ctx, id, "it did not work")
	}},
	{"reassign", "reassigned", func(ctx context.Context, c cluster.Client, id int64) (assign.Work, cluster.Answer, error) {
		return c.Reassign(ctx, id, "bo")
	}},
	{"reassign to another", "reassigned", func(ctx context.Context, c cluster.Client, id int64) (assign.Work, cluster.Answer, error) {
		return c.Reassign(ctx, id, "cy")
	}},
	{"extend", "", func(ctx context.Context, c cluster.Client, id int64) (assign.Work, cluster.Answer, error) {
		return c.Extend(ctx, id)
	}},
	{"extend again", "", func(ctx context.Context, c cluster.Client, id int64) (assign.Work, cluster.Answer, error) {
		return c.Extend(ctx, id)
	}},
}

// Eight clients on three nodes write the same row at the same time, half of the rows just as the lease ends: one of
// them wins, and all are told the truth.
func TestRacesOnOneRow(t *testing.T) {
	t.Parallel()
	const rows = 60
	s := newSite(t, 3, "")
	s.Create(map[string]any{"name": "rows", "query": nil, "lease": "2s", "max_request": rows, "backoff": "1h"})
	items := make([]assign.NewItem, rows)
	for i := range items {
		items[i].Item = fmt.Sprintf("row-%02d", i)
	}
	if _, err := s.As("mary", 0).Push(t.Context(), "rows", items...); err != nil {
		t.Fatal(err)
	}
	won := map[string]int{}
	var mu sync.Mutex
	var racing sync.WaitGroup
	pace := time.NewTicker(60 * time.Millisecond) // so that the leases end one after another
	defer pace.Stop()
	var work []assign.Work
	for i := range rows {
		<-pace.C
		w, a, err := s.As("ann", i%3).Claim(t.Context(), "rows", items[i].Item)
		if err != nil || a.Status != 201 {
			t.Fatalf("claim: %d %s, %v", a.Status, a.Body, err)
		}
		work = append(work, w)
		racing.Go(func() {
			if i >= rows/2 {
				<-time.After(time.Until(w.LeaseExpiresAt.Add(20*time.Millisecond - rand.N(60*time.Millisecond))))
			}
			winner := s.race(w, i)
			mu.Lock()
			defer mu.Unlock()
			won[winner]++
		})
	}
	racing.Wait()
	t.Logf("won: %v", won)
	for _, w := range work {
		s.oneStory(w)
	}
	if len(won) < 3 || won["expired"]+won["held"] == 0 { // held: nobody won, and the sweep has not come yet
		t.Errorf("there was no race: %v", won)
	}
	s.Promises()
}

// race starts all at once, and returns the winner's state: a state of work, or "held" if nobody closed it and it has
// not expired yet.
func (s *site) race(w assign.Work, i int) string {
	s.T.Helper()
	answers := make([]cluster.Answer, len(racers))
	got := make([]assign.Work, len(racers))
	start := make(chan struct{})
	var racing sync.WaitGroup
	for j, r := range racers {
		racing.Go(func() {
			<-start
			var err error
			if got[j], answers[j], err = r.call(s.T.Context(), s.As("ann", (i+j)%3), w.ID); err != nil {
				s.T.Errorf("%s: %v", r.name, err)
			}
		})
	}
	close(start)
	racing.Wait()
	winner := ""
	for j, r := range racers {
		a := answers[j]
		switch {
		case a.Status == 200 && r.as == "":
			if got[j].State != "held" {
				s.T.Errorf("%s of %s: %s", r.name, w.Item, a.Body)
			}
		case a.Status == 200 && winner != "":
			s.T.Errorf("both %[2]s and %[3]s were told that they had won %[1]s", w.Item, winner, r.as)
		case a.Status == 200:
			winner = r.as
		case a.Status != 409 || a.Problem.Type != "/problems/already-closed" && a.Problem.Type != "/problems/lease-lost":
			s.T.Errorf("%s of %s: %d %s", r.name, w.Item, a.Status, a.Body)
		}
	}
	state := column[string](s, `select state from getwork.work where id = $1`, w.ID)[0]
	if winner != "" && winner != state || winner == "" && state != "expired" && state != "held" {
		s.T.Errorf("%s: %q was told that it had won, but the row is %s", w.Item, winner, state)
	}
	return state
}

// oneStory checks the rows of an item: they follow each other, and there is a second only if the first was passed on.
func (s *site) oneStory(w assign.Work) {
	s.T.Helper()
	s.Await("the lease of who got it from ann ends", 20*time.Second, `select not exists (select from getwork.work where item = $1 and state = 'held')`, w.Item)
	states := column[string](s, `select state from getwork.work where item = $1 order by id`, w.Item)
	switch {
	case states[0] == "reassigned" && len(states) == 2 && states[1] == "expired":
	case states[0] != "reassigned" && len(states) == 1:
	default:
		s.T.Errorf("%s is %v", w.Item, states)
	}
}
