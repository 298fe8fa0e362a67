// Package manage tests what managers and observers do: tasks, items, the floor, people, walls, searches and web hooks.
package manage

import (
	"testing"

	"getwork/cmd/lab/page"
)

func TestMain(m *testing.M) { page.Main(m) }
