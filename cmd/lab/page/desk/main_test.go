// Package desk tests what a worker does at their desk: they ask for work, hold it, take notes, let go of it, and change their mind.
package desk

import (
	"testing"

	"getwork/cmd/lab/page"
)

func TestMain(m *testing.M) { page.Main(m) }
