package e2e

import (
	"fmt"
	"slices"
	"time"

	"getwork/assign"
	"getwork/cmd/internal/cluster"
)

// Pushed waits until a live channel reports the end of a request of its user. A node that does not listen sends a
// snapshot without the request; then Pushed reads the request.
func (s *Site) Pushed(socket *cluster.Socket, node int, r assign.Request, within time.Duration) assign.Request {
	s.T.Helper()
	deadline := time.Now().Add(within)
	for {
		e := s.Hear(socket, fmt.Sprintf("word of the end of %s's request %d", r.User, r.ID), time.Until(deadline), func(e cluster.Event) bool {
			return Ended(r.ID)(e) || ModeNow == Polling && e.Snapshot != nil &&
				!slices.ContainsFunc(e.Snapshot.Requests, func(waits assign.Request) bool { return waits.ID == r.ID })
		})
		if e.Request != nil {
			return *e.Request
		}
		now, a, err := s.As(r.User, node).Request(s.T.Context(), r.ID)
		if err != nil || a.Status != 200 {
			s.T.Fatalf("request %d of %s: %d %s, %v", r.ID, r.User, a.Status, a.Body, err)
		}
		if now.State != assign.Pending { // otherwise the snapshot was older than the request
			return now
		}
	}
}

// Without accepts a snapshot in which none of that work is held any more.
func Without(work []assign.Work) func(cluster.Event) bool {
	return func(e cluster.Event) bool {
		return e.Snapshot != nil && !slices.ContainsFunc(e.Snapshot.Work, func(held assign.Work) bool {
			return slices.ContainsFunc(work, func(w assign.Work) bool { return w.ID == held.ID })
		})
	}
}
