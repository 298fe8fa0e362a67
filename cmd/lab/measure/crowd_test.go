package measure

import (
	"context"
	"strings"
	"testing"
	"time"

	"getwork/cmd/internal/bench"
	"getwork/cmd/internal/bench/stage"
	"getwork/schema/schematest"
)

func TestIdle(t *testing.T) { // not in parallel with others, which use the same server
	figures := taken(t, bench.Measurement{Figures: idleFigures, Take: func(ctx context.Context, r *bench.Rounds) error { return idleFor(ctx, r, 2*time.Second) }}) // at least one sweep of the node falls into each window
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
	at := func(ms float64) stage.Cost { return stage.Cost{Database: ms} }
	for name, c := range map[string]struct {
		round idleRound
		want  bench.Verdict
	}{
		"cheap":           {idleRound{alone: [2]stage.Cost{at(5), at(5.1)}, with: [2]stage.Cost{at(5.4), at(5.5)}}, bench.GoalMet},
		"dear":            {idleRound{alone: [2]stage.Cost{at(5), at(5.1)}, with: [2]stage.Cost{at(9), at(9.2)}}, bench.GoalNotMet},
		"a noisy machine": {idleRound{alone: [2]stage.Cost{at(5), at(3)}, with: [2]stage.Cost{at(5), at(6)}}, bench.WithinNoise},
		"nothing":         {idleRound{alone: [2]stage.Cost{at(9), at(5)}, with: [2]stage.Cost{at(5), at(5)}}, ""},
	} {
		f := idleFigures(nil)[1]
		f.Values = []float64{c.round.difference()}
		compareIdle(f, []idleRound{c.round})
		if got, _, known := (&bench.Report{}).Verdict(f); got != c.want || known != (c.want != "") {
			t.Errorf("%s: %q %v, want %q, with %v ms/s more", name, got, known, c.want, f.Values)
		}
	}
}

func TestMemory(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	taken(t, bench.Measurement{Figures: memoryFigures, Take: func(ctx context.Context, r *bench.Rounds) error { return memoryOf(ctx, r, 50) }})
}

func TestWaiting(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	taken(t, bench.Measurement{Figures: waitingFigures, Take: func(ctx context.Context, r *bench.Rounds) error { return waitingOf(ctx, r, 20) }})
}

// Nobody hears anything while the query lacks its last row. The pushed items are checked: the check fails if
// the database says something else.
func TestCrowdChecks(t *testing.T) {
	t.Parallel()
	err := onCrowd(t.Context(), testEnv(t), 5, 1, func(c *crowd) error {
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
		if err := c.Exec(t.Context(), "break a promise", []string{`delete from getwork.work where item = '15'`}); err != nil {
			return err
		}
		if err := c.Check(t.Context(), crowdTask); err == nil {
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
	err := onCrowd(t.Context(), testEnv(t), 3, 1, func(c *crowd) error {
		c.Kill()
		_, err := c.push(t.Context())
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "socket of user-") {
		t.Errorf("error %v", err)
	}
}
