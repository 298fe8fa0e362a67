package main

import (
	"os"
	"testing"

	"getwork/cmd/internal/cluster"
	"getwork/schema/schematest"
)

func TestMain(m *testing.M) {
	code := schematest.Main(m)
	cluster.Clean()
	os.Exit(code)
}
