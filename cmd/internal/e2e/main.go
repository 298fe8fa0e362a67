package e2e

import (
	"os"

	"go.uber.org/goleak"

	"getwork/cmd/internal/cluster"
	"getwork/schema/schematest"
)

// Runner runs a package's tests. It is a [testing.M], or one with something around it.
type Runner = schematest.Runner

// Main runs a package's tests in the mode that GETWORK_TEST_MODE names, and ends the process. Call it in TestMain.
func Main(m Runner) {
	ModeNow.choose()
	go watchClock()
	code := schematest.Main(m, goleak.IgnoreAnyFunction("getwork/cmd/internal/e2e.watchClock"))
	cluster.Clean()
	os.Exit(code)
}
