package cli

import (
	"testing"

	"getwork/cmd/internal/e2e"
	_ "getwork/cmd/internal/serve" // the test's processes are built from it, so the test cache notices changes
)

func TestMain(m *testing.M) { e2e.Main(m) }
