package main

import (
	"flag"
	"os"
	"runtime"
	"testing"

	"go.uber.org/goleak"

	"getwork/cmd/internal/cluster"
	"getwork/schema/schematest"
)

func TestMain(m *testing.M) {
	flag.Parse()
	waitTogether()
	modeNow.choose()
	go watchClock()
	code := schematest.Main(m, goleak.IgnoreAnyFunction("getwork/cmd/getwork.watchClock"))
	cluster.Clean()
	os.Exit(code)
}

// waitTogether has parallel tests run four at a time, unless -parallel says otherwise: they wait for processes and time-outs
// more than they compute, and two at a time leave two cores idle.
func waitTogether() {
	said := false
	flag.Visit(func(f *flag.Flag) { said = said || f.Name == "test.parallel" })
	if !said && runtime.GOMAXPROCS(0) < 4 {
		_ = flag.Set("test.parallel", "4")
	}
}
