package torture

import (
	"strings"
	"testing"
)

func TestDeadlocks(t *testing.T) {
	const log = `2026-07-01 09:00:00 UTC [1] FATAL:  terminating connection due to administrator command
2026-07-01 09:00:01 UTC [2] ERROR:  deadlock detected
2026-07-01 09:00:01 UTC [2] DETAIL:  Process 2 waits for ShareLock on transaction 7; blocked by process 3.
	Process 3 waits for ShareLock on transaction 8; blocked by process 2.
2026-07-01 09:00:02 UTC [4] STATEMENT:  select 'deadlock detected'
`
	found := deadlocks(log)
	if len(found) != 1 || !strings.Contains(found[0], "blocked by process 3") || strings.Contains(found[0], "FATAL") {
		t.Errorf("found %q", found)
	}
}
