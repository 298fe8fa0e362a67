package report

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"getwork/assign"
)

// slowReader answers when the test lets it, and records the questions.
type slowReader struct {
	mu    sync.Mutex
	asked []string
	most  int // at once
	now   int
	pass  chan struct{}
}

func (r *slowReader) read(_ context.Context, q string) (string, error) {
	r.mu.Lock()
	r.asked = append(r.asked, q)
	n := len(r.asked)
	r.now++
	r.most = max(r.most, r.now)
	r.mu.Unlock()
	<-r.pass
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now--
	return fmt.Sprint(q, " ", n), nil
}

// One read runs at a time. A caller who asks the same question during it waits for the next read, and shares it with all who
// ask the same before it begins.
func TestTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &slowReader{pass: make(chan struct{})}
		turns := newSingleFlight(r.read)
		var all sync.WaitGroup
		var mu sync.Mutex
		answers := map[string]int{}
		ask := func(ctx context.Context, q string) {
			all.Go(func() {
				a, err := turns.ask(ctx, q)
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					a = err.Error()
				}
				answers[a]++
			})
			synctest.Wait()
		}
		ask(t.Context(), "a")
		gone, leave := context.WithCancel(t.Context())
		ask(gone, "a") // a caller that goes away still reads for those who share the answer
		for range 20 {
			ask(t.Context(), "a")
		}
		leave()
		synctest.Wait()
		r.pass <- struct{}{}
		synctest.Wait()
		ask(t.Context(), "a")
		r.pass <- struct{}{}
		r.pass <- struct{}{}
		all.Wait()
		if got := fmt.Sprint(answers); got != "map[a 1:1 a 2:21 a 3:1]" && got != "map[a 1:1 a 2:20 a 3:1 context canceled:1]" {
			t.Errorf("answers %s", got)
		}
		if r.most != 1 || len(turns.next) != 0 {
			t.Errorf("%d at once; %d are left", r.most, len(turns.next))
		}
	})
}

// A caller that waits too long for its turn is refused as busy; a caller that goes away returns at once.
func TestTurnsEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &slowReader{pass: make(chan struct{})}
		turns := newSingleFlight(r.read)
		var first sync.WaitGroup
		first.Go(func() { _, _ = turns.ask(t.Context(), "a") })
		synctest.Wait()
		var others sync.WaitGroup
		others.Go(func() {
			if _, err := turns.ask(t.Context(), "b"); !assign.IsRefusal(err, assign.Busy) {
				t.Errorf("waited too long: %v", err)
			}
		})
		synctest.Wait()
		others.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), readWithin/2)
			defer cancel()
			if _, err := turns.ask(ctx, "b"); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("went away: %v", err)
			}
		})
		others.Wait()
		close(r.pass)
		first.Wait()
		if a, err := turns.ask(t.Context(), "b"); a != "b 2" || err != nil {
			t.Errorf("later: %s, %v", a, err)
		}
	})
}
