package e2e

import (
	"flag"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"getwork/cmd/internal/cluster"
	"getwork/schema/schematest/pgbouncer"
)

// mode is how a site's nodes reach their database.
type mode string

// The possible values of GETWORK_TEST_MODE.
const (
	direct  mode = ""
	Polling mode = "polling" // without LISTEN
	Pooled  mode = "pooled"  // everything except LISTEN and migrations goes through PgBouncer in transaction mode
)

// ModeNow is the value of GETWORK_TEST_MODE. The protocol must hold in each mode:
//
//	GETWORK_TEST_MODE=pooled go test -race ./cmd/internal/e2e/story ./cmd/internal/e2e/fault
//
// runs the tests of the protocol in that mode.
var ModeNow = mode(os.Getenv("GETWORK_TEST_MODE"))

// protocol lists the tests that run in a mode if no others are named: they test who is served, by whom and when, and
// what happens when a process dies.
var protocol = []string{
	"TestSixtyUsersOneQuery", "TestPartialAndNone", "TestOnePendingRequest", "TestIdempotencyKey", "TestClickThatWaits", "TestStatusOnEveryNode",
	"TestHolderKilled", "TestAllKilled", "TestTerminatedInARound", "TestTerminatedIdle", "TestRunnerFrozen", "TestFrozenWithTheAssignLock",
	"TestListenerTerminated", "TestPostgresAway", "TestFaultLongAfterAnother",
	"TestOliverAndTracy", "TestFourEyes", "TestVolunteerSignup", "TestRacesOnOneRow", "TestClusteredPoller", "TestAgentsShareAList",
	"TestReleaseWhatWasCounted", "TestPauseAndResume", "TestAgentKilled", "TestAgentDrains", "TestAgentAfterARestart",
}

// skips lists the tests of the protocol that have no meaning in a mode, with the reason.
var skips = map[mode]map[string]string{
	Polling: {"TestListenerTerminated": "there is no listener that could be terminated"},
}

// choose makes a mode run the tests of the protocol, unless others are named.
func (m mode) choose() {
	flag.Parse()
	if m == direct || flag.Lookup("test.run").Value.String() != "" {
		return
	}
	if err := flag.Set("test.run", "^("+strings.Join(protocol, "|")+")$"); err != nil {
		panic(err)
	}
}

// options returns the options of nodes on the database with that URL.
func (m mode) options(t *testing.T, url string, args ...string) cluster.Options {
	t.Helper()
	if why := skips[m][t.Name()]; why != "" {
		t.Skip(why)
	}
	switch m {
	case direct:
	case Polling:
		args = append(slices.Clone(args), "--no-listen")
	case Pooled:
		if pgbouncer.Program() == "" {
			t.Fatal("this mode needs PgBouncer: apt-get install pgbouncer")
		}
		bouncer := pgbouncer.Start(t, url, pgbouncer.Options{})
		args = append(slices.Clone(args), "--pooled", "--listen-database-url", url)
		url = bouncer.URL
	default:
		t.Fatalf("GETWORK_TEST_MODE is %q: there are %s and %s", m, Polling, Pooled)
	}
	return cluster.Options{DatabaseURL: url, Args: args}
}

// Late returns the longest delay until a node tells what others have done: none, or the time until it reads again.
func (m mode) Late() time.Duration {
	if m == Polling {
		return 4 * time.Second // it reads every two seconds
	}
	return time.Second
}
