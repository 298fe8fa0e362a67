// Package look tests how the page looks, in both browsers: each state on each screen, its size, its texts and languages, and
// what axe finds.
package look

import (
	"testing"

	"getwork/cmd/lab/page"
)

func TestMain(m *testing.M) { page.Main(m) }
