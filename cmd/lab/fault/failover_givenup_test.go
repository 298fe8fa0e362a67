package fault

import (
	"context"
	"testing"
	"time"

	"getwork/cmd/internal/e2e"
	"getwork/cmd/lab/patroni"
)

// givenUp cuts the line to the standbys, so that a commit waits for them, and then its caller goes away. Nobody may see
// the write then, because it would never have been if the primary died now; but PostgreSQL shows it as soon as the wait
// is cancelled.
func givenUp(t *testing.T, database *patroni.Cluster) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	database.AwaitWhole(ctx)
	s := bankOf(t, database, database.ProxyURL)
	oliver := s.As("oliver", 0)
	held := s.Got(oliver, "quick", 1).Work[0]
	primary := database.Primary(ctx)
	primary.Mute(ctx)
	defer primary.Thaw()

	leaving, leave := context.WithCancel(ctx)
	left := make(chan struct{})
	go func() {
		defer close(left)
		if _, a, err := oliver.Dispose(leaving, held.ID, "complete", ""); err == nil {
			t.Errorf("answered %d, though no standby has the write", a.Status)
		}
	}()
	const waits = `select count(*) > 0 from pg_stat_activity where datname = current_database() and wait_event = 'SyncRep' and application_name like 'getwork%'`
	s.Await("the commit waits for a standby", e2e.Soon, waits)
	leave()
	<-left
	state := func() string { return column[string](s, `select state from getwork.work where id = $1`, held.ID)[0] }
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for until := time.Now().Add(3 * time.Second); time.Now().Before(until); <-tick.C {
		if now := state(); now != "held" {
			t.Fatalf("the request is shown as %s, though no standby has it", now)
		}
	}
	primary.Thaw()
	e2e.Await(t, "the request is shown once a standby has it", 20*time.Second, func() bool { return state() == "completed" })
}
