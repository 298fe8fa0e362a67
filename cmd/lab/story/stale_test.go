package story

import (
	"os/exec"
	"strings"
	"testing"

	"getwork/assign"
	"getwork/cmd/internal/cluster"
	"getwork/cmd/internal/e2e"
)

// After a pause the shelf has expired. With stale_for nobody waits for the query even so: clicks on every node get items from the
// expired shelf, and read how old it is, while its refresh runs. Then they get the new ranking's.
func TestAnExpiredListServesBesideItsQuery(t *testing.T) {
	t.Parallel()
	s := newSite(t, 2, "")
	s.Create(map[string]any{"name": "letters", "query": `select i as item from generate_series(1, 90) i, (select pg_sleep(1)) slept order by i`,
		"fresh_for": "500ms", "stale_for": "1h"})
	first, _, err := s.As("ann", 0).GetWork(t.Context(), "letters", 2)
	if err == nil {
		first, err = s.As("ann", 0).Await(t.Context(), first.ID)
	}
	if err != nil || first.State != assign.Assigned || first.Stale || first.RankedAt == nil {
		t.Fatalf("ann got %s from the run, stale %v, ranked at %v, %v", first.State, first.Stale, first.RankedAt, err)
	}
	click := func(user string, node int) assign.Request {
		t.Helper()
		r, a, err := s.As(user, node).GetWork(t.Context(), "letters", 2)
		if err != nil || a.Status != 201 || r.State != assign.Assigned || r.RankedAt == nil {
			t.Fatalf("%s got %d %s, ranked at %v, %v: the user waits", user, a.Status, r.State, r.RankedAt, err)
		}
		return r
	}
	e2e.Await(t, "the shelf has expired, and no run is under way", e2e.Soon, func() bool {
		return column[bool](s, `select fresh_until < clock_timestamp() and not exists (select from getwork.run where state = 'running') from getwork.task_state`)[0]
	})
	out, err := exec.CommandContext(t.Context(), cluster.Binary(t), "get", "letters", "--url", s.Nodes[1].URL, "--user", "bob").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "a newer ranking is under way") {
		t.Errorf("getwork get: %v\n%s", err, out)
	}
	click("cyd", 0)
	e2e.Await(t, "the refresh is over", e2e.Soon, func() bool {
		return column[int64](s, `select count(*) from getwork.run where state = 'finished'`)[0] > 1
	})
	if r := click("dan", 1); !r.RankedAt.After(*first.RankedAt) {
		t.Errorf("after the refresh dan got items ranked at %v", r.RankedAt)
	}
	if bob := column[bool](s, `select stale from getwork.work_requested where user_name = 'bob'`)[0]; !bob {
		t.Error("bob was not told that the shelf had expired")
	}
}
