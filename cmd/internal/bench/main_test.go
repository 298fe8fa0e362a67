package bench

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

// testEnv is an Env on a database of this test's own.
func testEnv(t *testing.T) *Env {
	t.Helper()
	return &Env{Binary: cluster.Binary(t), DatabaseURL: schematest.Empty(t), Rounds: 1, Quick: true, Log: t.Logf}
}
