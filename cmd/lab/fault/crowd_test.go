package fault

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"getwork/cmd/internal/e2e"
	"getwork/schema/schematest"
)

// Ten thousand live channels reconnect at once, as they do after a node has died: all soon have their snapshots, clicks
// are answered meanwhile, and memory is bounded. No other test of the package runs beside it, because it needs all of the machine, and
// measures time.
func TestEverybodyReconnects(t *testing.T) {
	schematest.Thorough(t)
	s := newSite(t, 1, "")
	s.shelf(1000, 10)
	n := openFiles(t, 10_000)
	clicker := s.crowd(1, 0)[0] // connected already: behind ten thousand in the kernel's queue a connection is retried after 1, 3, 7 and 15 s
	before := resident(t, s.Nodes[0])
	over := make(chan struct{})
	var clicks errgroup.Group
	clicks.Go(func() error {
		for i := 0; ; i++ {
			select {
			case <-over:
				t.Logf("%d clicks meanwhile", i)
				return nil
			default:
			}
			still := s.Standstill()
			clicker.user = fmt.Sprintf("clicker-%d", i%100)
			if a, err := clicker.click(time.Minute, 1); err != nil || a.Status != 201 || a.Took-still() > 10*time.Second {
				return fmt.Errorf("click: %d %s after %v, %w", a.Status, a.Body, a.Took, err)
			}
		}
	})
	began, still := time.Now(), s.Standstill()
	var g errgroup.Group
	callers := make([]*caller, n)
	for i := range callers {
		g.Go(func() (err error) {
			if callers[i], err = newCaller(t.Context(), s.Nodes[0], fmt.Sprintf("user-%05d", i)); err != nil {
				return err
			}
			a, err := callers[i].upgrade(3 * time.Minute)
			if err != nil || a.Status != http.StatusSwitchingProtocols {
				return fmt.Errorf("%d %s: %w", a.Status, a.Body, err)
			}
			return callers[i].until(`"type":"snapshot"`)
		})
	}
	defer func() {
		for _, c := range callers {
			if c != nil {
				_ = c.conn.Close()
			}
		}
	}()
	err := g.Wait()
	took := time.Since(began) - still()
	close(over)
	if err != nil {
		t.Error(err)
	}
	if err := clicks.Wait(); err != nil {
		t.Error(err)
	}
	grown := resident(t, s.Nodes[0]) - before
	t.Logf("%d snapshots within %v; the node takes %d MiB more", n, took, grown)
	if took > time.Minute {
		t.Errorf("it took %v", took)
	}
	if grown > n/5 { // most of it is the race detector's
		t.Errorf("the node takes %d MiB more for %d sockets", grown, n)
	}
}

// A node accepts a limited number of live channels, and of each user: one more is refused before anything is spent on
// it, and accepted when another has gone.
func TestTooManySockets(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	s := newSite(t, 1, "", "--max-sockets", "40") // 32 for one user
	callers := s.crowd(43, 0)
	for i, c := range callers[:33] {
		c.user = "mary"
		a, err := c.upgrade(callBound)
		if i < 32 && a.Status != http.StatusSwitchingProtocols || err != nil {
			t.Fatalf("socket %d: %d %s, %v", i, a.Status, a.Body, err)
		}
		if i == 32 && (a.Status != 429 || refusedFor(a) != nil) {
			t.Errorf("one too many of a user: %d %s", a.Status, a.Body)
		}
	}
	for i, c := range callers[33:] {
		a, err := c.upgrade(callBound)
		if i < 8 && a.Status != http.StatusSwitchingProtocols || err != nil {
			t.Fatalf("socket %d: %d %s, %v", i, a.Status, a.Body, err)
		}
		if i >= 8 && (a.Status != 503 || refusedFor(a) != nil) {
			t.Errorf("one too many: %d %s", a.Status, a.Body)
		}
	}
	_ = callers[0].conn.Close()
	e2e.Await(t, "a place is free again", callBound, func() bool {
		a, err := callers[42].upgrade(callBound)
		if err != nil {
			t.Fatal(err)
		}
		return a.Status == http.StatusSwitchingProtocols
	})
}
