// Package schematest gives tests databases of their own on a real PostgreSQL.
//
// A test binary that asks for one starts one private server, without durability and in memory where there is
// room. Each test gets a database that is cloned from a migrated template in some 40 ms. A schema would not do,
// because NOTIFY channels belong to databases, nor would a transaction that is rolled back, because NOTIFY
// happens at the commit.
//
//	func TestMain(m *testing.M) { os.Exit(schematest.Main(m)) }
//
//	func TestClick(t *testing.T) {
//		pool := schematest.Pool(t)
//		…
//	}
//
// GETWORK_TEST_POSTGRES names a running server to be used instead; the login must be a superuser. Tests log in as
// superusers, so that they can terminate a backend or make roles. Roles belong to the server, so tests that make
// some give them unique names.
package schematest

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"
	"time"

	"go.uber.org/goleak"

	"getwork/schema/schematest/timeout"
)

// stopTimeout bounds the server's fast shutdown after the tests; an immediate one follows.
const stopTimeout = 10 * time.Second

// Runner runs a package's tests, as [testing.M] does. Another Runner does something around that, too.
type Runner interface{ Run() int }

// Main runs the tests, ends the server, fails if goroutines are left over, and returns the exit status. Without
// Main the server still ends with the test binary, a moment later. leaks are goroutines to be tolerated.
func Main(m Runner, leaks ...goleak.Option) int {
	waitTogether()
	code := m.Run()
	ctx, cancel := context.WithTimeout(context.Background(), timeout.Scale(stopTimeout))
	defer cancel()
	if err := shared.stop(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "stop PostgreSQL:", err)
		code = max(code, 1)
	}
	if code != 0 {
		return code
	}
	if err := goleak.Find(leaks...); err != nil {
		fmt.Fprintln(os.Stderr, "goroutines left over:", err)
		return 1
	}
	return 0
}

// waitTogether makes parallel tests run four at a time, unless -parallel says otherwise. They wait for processes and
// time-outs more than they compute, so two at a time would leave two cores idle.
func waitTogether() {
	flag.Parse()
	said := false
	flag.Visit(func(f *flag.Flag) { said = said || f.Name == "test.parallel" })
	if !said && runtime.GOMAXPROCS(0) < 4 {
		_ = flag.Set("test.parallel", "4")
	}
}
