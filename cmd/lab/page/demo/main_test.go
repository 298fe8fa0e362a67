// Package demo tests the page of getwork demo, with the pages of its nodes in it.
package demo

import (
	"testing"

	"getwork/cmd/lab/page"
)

func TestMain(m *testing.M) { page.Main(m) }
