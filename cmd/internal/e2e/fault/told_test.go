package fault

import (
	"testing"
	"time"

	"getwork/assign"
	"getwork/cmd/internal/cluster"
	"getwork/schema/schematest"
)

// Users with a live channel are told of everything that concerns them, even if the node that committed it announces
// nothing: it is killed or freezes while its answer is on the way. With few changes the transaction itself sends the
// NOTIFY; with many the node's announcer does, and other nodes read everybody again when they hear nothing more from
// it.
func TestToldThoughTheNodeDies(t *testing.T) {
	schematest.Thorough(t)
	for name, c := range map[string]struct {
		many bool
		end  func(*cluster.Node)
	}{
		"killed after few changes":  {false, (*cluster.Node).Kill},
		"killed after many changes": {true, (*cluster.Node).Kill},
		"frozen after many changes": {true, (*cluster.Node).Stop},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, 2, "")
			ctx := t.Context()
			manager := s.As("mary", 0)
			manager.Role = "manager"
			if err := manager.CreateTask(ctx, map[string]any{"name": "review", "query": nil, "lease": "1h"}); err != nil {
				t.Fatal(err)
			}
			if _, err := manager.Push(ctx, "review", assign.NewItem{Item: "kept"}, assign.NewItem{Item: "passed on"}); err != nil {
				t.Fatal(err)
			}
			oliver, tracy := s.Dial("oliver", 1), s.Dial("tracy", 1)
			work := map[string]assign.Work{}
			for _, item := range []string{"kept", "passed on"} {
				w, a, err := s.As("oliver", 0).Claim(ctx, "review", item)
				if err != nil || a.Status != 201 {
					t.Fatalf("claim: %d %s %v", a.Status, a.Body, err)
				}
				work[item] = w
				s.Hear(oliver, "what was claimed", time.Minute, func(e cluster.Event) bool { return e.Work != nil && e.Work.ID == w.ID })
			}
			extensions := 1
			if c.many {
				extensions = 10
			}
			for range extensions {
				if _, a, err := s.As("oliver", 0).Extend(ctx, work["kept"].ID); err != nil || a.Status != 200 {
					t.Fatalf("extend: %d %s %v", a.Status, a.Body, err)
				}
			}
			given, a, err := manager.Reassign(ctx, work["passed on"].ID, "tracy")
			c.end(s.Nodes[0])
			if err != nil || a.Status != 200 {
				t.Fatalf("reassign: %d %s %v", a.Status, a.Body, err)
			}

			s.Hear(oliver, "what was taken away", time.Minute, func(e cluster.Event) bool {
				return e.Snapshot != nil && len(e.Snapshot.Work) == 1 || e.Work != nil && e.Work.ID != work["kept"].ID && e.Work.State == "reassigned"
			})
			s.Hear(tracy, "what was given", time.Minute, func(e cluster.Event) bool {
				return e.Snapshot != nil && len(e.Snapshot.Work) == 1 || e.Work != nil && e.Work.ID == given.ID
			})
		})
	}
}
