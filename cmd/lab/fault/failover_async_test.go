package fault

import (
	"context"
	"os"
	"testing"
	"time"

	"getwork/cmd/lab/patroni"
)

// Without synchronous replication a fail-over loses answered writes that had not reached a standby; the test logs how
// many. GETWORK_TEST_ASYNC=1 runs it.
func TestAsynchronousReplicationLoses(t *testing.T) {
	if os.Getenv("GETWORK_TEST_ASYNC") == "" {
		t.Skip("only a demonstration: GETWORK_TEST_ASYNC=1 runs it")
	}
	database := patroni.Start(t, patroni.Options{})
	for _, c := range []struct {
		name   string
		behind int // the number of answers while the standbys receive nothing
	}{{"standbys at hand", 0}, {"standbys cut off", 500}} {
		t.Run(c.name, func(t *testing.T) { loseAsynchronously(t, database, c.behind) })
	}
}

func loseAsynchronously(t *testing.T, database *patroni.Cluster, behind int) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	database.AwaitWhole(ctx)
	s, l := bankOf(t, database, database.ProxyURL), newLedger(t)
	finish := l.load(s)
	enough(t, l, 300)
	primary := database.Primary(ctx)
	began := time.Now()
	if behind > 0 {
		primary.Mute(ctx)
		enough(t, l, behind)
	}
	finish()
	t.Logf("%d answers in the last %v of the primary", behind, time.Since(began))
	primary.Kill()
	database.Primary(ctx)
	primary.Start()
	s.DB.Reset()
	s.allReady()
	l.missing(s)
	s.SendHome()
	s.Promises() // the remaining rows are consistent
}
