package main

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"getwork/cmd/internal/cluster"
	"getwork/schema/schematest"
)

func TestMain(m *testing.M) {
	modeNow.choose()
	go watchClock()
	code := schematest.Main(m, goleak.IgnoreAnyFunction("getwork/cmd/getwork.watchClock"))
	cluster.Clean()
	os.Exit(code)
}
