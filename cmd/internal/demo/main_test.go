package demo

import (
	"testing"

	"getwork/cmd/internal/e2e"
)

func TestMain(m *testing.M) { e2e.Main(m) }
