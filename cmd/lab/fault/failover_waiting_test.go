package fault

import (
	"context"
	"fmt"
	"time"

	"getwork/assign"
	"getwork/cmd/internal/cluster"
)

// waiter is a user who waits from before the loss until after it.
type waiter struct {
	request assign.Request
	socket  *cluster.Socket // nil: the waiter polls
	answer  chan assign.Request
}

// waiting has people wait at every node for work that comes only later; some listen on sockets, some poll.
func (s *site) waiting(l *ledger) (all []waiter) {
	s.T.Helper()
	for i := range 2 * len(s.Nodes) {
		at := i % len(s.Nodes)
		w := waiter{answer: make(chan assign.Request, 1)}
		who := s.As(fmt.Sprintf("waiter-%d", i), at)
		if i < len(s.Nodes) {
			w.socket = s.Dial(who.User, at)
		}
		r, a, err := who.Linger(s.T.Context(), "late", 1, "10m")
		if err != nil || a.Status != 202 {
			s.T.Fatalf("%s: %d %s, %v", who.User, a.Status, a.Body, err)
		}
		w.request = r
		l.request(r)
		if w.socket == nil {
			go func() {
				r, err := who.Await(s.T.Context(), w.request.ID)
				if err != nil && s.T.Context().Err() == nil {
					s.T.Errorf("%s: %v", who.User, err)
				}
				w.answer <- r
			}()
		}
		all = append(all, w)
	}
	return all
}

// lateWork pushes the work that they wait for, and checks that each hears of it.
func (s *site) lateWork(l *ledger, all []waiter) {
	s.T.Helper()
	for i := range all {
		item := fmt.Sprintf("late-%d", i)
		l.persist(s, cluster.Client{User: "mary", Role: "agent"}, 0, func(c cluster.Client) (cluster.Answer, error) {
			ctx, cancel := s.patient(0)
			defer cancel()
			return c.Do(ctx, "POST", "/api/v1/tasks/late/items", []assign.NewItem{{Item: item}})
		})
	}
	pushed := time.Now()
	for i, w := range all {
		if w.socket != nil {
			ctx, cancel := context.WithTimeout(s.T.Context(), time.Minute)
			e, err := w.socket.Until(ctx, got(w.request))
			if err == nil && e.Request == nil { // it was over before the node listened again
				var r assign.Request
				r, err = s.As(w.request.User, i%len(s.Nodes)).Await(ctx, w.request.ID)
				e.Request = &r
			}
			cancel()
			if err != nil {
				s.T.Fatalf("%s hears nothing on the former socket: %v; the request is %v", w.request.User, err,
					column[string](s, `select r::text from getwork.work_requested r where id = $1`, w.request.ID))
			}
			l.request(*e.Request)
			continue
		}
		select {
		case r := <-w.answer:
			l.request(r)
		case <-time.After(time.Minute):
			s.T.Fatalf("%s polls in vain", w.request.User)
		}
	}
	s.T.Logf("all waiters were told %v after the push", time.Since(pushed))
}
