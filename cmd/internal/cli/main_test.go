package cli

import (
	"testing"

	"getwork/cmd/internal/e2e"
	_ "getwork/cmd/internal/serve" // what its processes are built from: the test cache notices a change
)

func TestMain(m *testing.M) { e2e.Main(m) }
