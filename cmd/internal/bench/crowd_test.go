package bench

import (
	"strings"
	"testing"
	"time"

	"getwork/schema/schematest"
)

func TestIdle(t *testing.T) { // not in parallel with others, which use the same server
	figures := taken(t, idleFigures(nil), func(r *rounds) error { return idleFor(t.Context(), r, 2*time.Second) }) // at least one sweep of the node falls into each window
	// A node that sweeps every two seconds uses some CPU, but far less than a processor.
	if node := figures[0].Median(); node <= 0 || node > 500 {
		t.Errorf("a node uses %v ms/s", node)
	}
	if database := figures[1].Median(); database > 500 {
		t.Errorf("the database uses %v ms/s", database)
	}
}

// A node's cost for the database is judged if it is more than what the same thing differs by, and never if it is negative.
func TestIdleVerdict(t *testing.T) {
	t.Parallel()
	at := func(ms float64) cost { return cost{database: ms} }
	for name, c := range map[string]struct {
		round idleRound
		want  Verdict
	}{
		"cheap":           {idleRound{alone: [2]cost{at(5), at(5.1)}, with: [2]cost{at(5.4), at(5.5)}}, GoalMet},
		"dear":            {idleRound{alone: [2]cost{at(5), at(5.1)}, with: [2]cost{at(9), at(9.2)}}, GoalNotMet},
		"a noisy machine": {idleRound{alone: [2]cost{at(5), at(3)}, with: [2]cost{at(5), at(6)}}, WithinNoise},
		"nothing":         {idleRound{alone: [2]cost{at(9), at(5)}, with: [2]cost{at(5), at(5)}}, ""},
	} {
		f := idleFigures(nil)[1]
		f.Values = []float64{c.round.difference()}
		f.compareIdle([]idleRound{c.round})
		if got, _, known := (&Report{}).Verdict(f); got != c.want || known != (c.want != "") {
			t.Errorf("%s: %q %v, want %q, with %v ms/s more", name, got, known, c.want, f.Values)
		}
	}
}

func TestMemory(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	taken(t, memoryFigures(&Env{Quick: true}), func(r *rounds) error { return memoryOf(t.Context(), r, 50) })
}

func TestWaiting(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	taken(t, waitingFigures(&Env{Quick: true}), func(r *rounds) error { return waitingOf(t.Context(), r, 20) })
}

// Nobody is told anything while the query lacks its last row. The pushed items are checked: the check fails if
// the database says something else.
func TestCrowdChecks(t *testing.T) {
	t.Parallel()
	err := testEnv(t).onCrowd(t.Context(), 5, 1, func(c *crowd) error {
		if left := c.left.Load(); left != 5 {
			t.Errorf("%d of 5 wait before the query ends", left)
		}
		p, err := c.push(t.Context())
		if err != nil {
			return err
		}
		if p.first <= 0 || p.first > p.half || p.half > p.last || p.size < 100 {
			t.Errorf("%+v", p)
		}
		if err := c.exec(t.Context(), "break a promise", []string{`delete from getwork.work where item = '15'`}); err != nil {
			return err
		}
		if err := c.check(t.Context(), crowdTask); err == nil {
			t.Error("an item that nobody holds was pushed, and the check did not notice")
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// If a node ends, all who wait on it notice.
func TestCrowdOfDeadNode(t *testing.T) {
	t.Parallel()
	err := testEnv(t).onCrowd(t.Context(), 3, 1, func(c *crowd) error {
		c.kill()
		_, err := c.push(t.Context())
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "socket of user-") {
		t.Errorf("error %v", err)
	}
}

func TestEndsRequest(t *testing.T) {
	t.Parallel()
	for message, want := range map[string]bool{
		`{"type":"request","request":{"id":"1","state":"pending"}}`:  false,
		`{"request":{"id":"1","state":"assigned"},"type":"request"}`: true,
		`{"type":"run","run":{}}`:                                    false,
	} {
		if endsRequest([]byte(message)) != want {
			t.Errorf("%s ends a request: %v", message, !want)
		}
	}
}
