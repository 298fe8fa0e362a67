// Package access tests how people and programs come to the page: log-in and log-out, roles and tokens, proxies in between,
// upgrades, and the client for pages of others.
package access

import (
	"testing"

	"getwork/cmd/lab/page"
)

func TestMain(m *testing.M) { page.Main(m) }
