package e2e

import (
	"flag"
	"os"
	"slices"
	"strings"
	"testing"

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
//	GETWORK_TEST_MODE=pooled go test -race ./cmd/internal/e2e/story
//	GETWORK_TEST_MODE=pooled go -C cmd/lab test -race -count=1 ./story ./fault
//
// runs the tests of the protocol in that mode.
var ModeNow = mode(os.Getenv("GETWORK_TEST_MODE"))

// protocol lists the tests that run in a mode if no others are named: they test who is served, by whom and when, and
// what happens when a process dies.
var protocol = []string{
	"TestHolderKilled", "TestAllKilled", "TestRunnerFrozen", "TestFaultLongAfterAnother",
	"TestOliverAndTracy", "TestVolunteerSignup", "TestClusteredPoller", "TestAgentsShareAList",
	"TestAgentKilled", "TestAgentDrains",
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
