package engine

import (
	"strings"
	"testing"

	"getwork/assign"
	"getwork/schema/schematest"
)

// A query whose rows are larger than a node can keep fails, and says why; the node goes on with other tasks.
func TestMoreDetailsThanANodeKeeps(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	db := pool(t, url)
	execute(t, db, `create table loan as select i as id, repeat('x', 100000) as scan from generate_series(1, 200) i`)
	for name, o := range map[string]nodeOptions{"here": {maxRuns: 1}, "elsewhere": {maxRuns: 1, queries: reader(t, url, "loan")}} {
		n := startNode(t, url, o)
		n.Ranker.MaxDetails = 5 << 20
		newTask(t, n, name, `select id as item, scan from loan order by id`, nil)
		r := n.endedRequest(t, n.click(t, name, "ann", 1).ID)
		if r.State != assign.Failed || r.Error == nil || !strings.Contains(*r.Error, "more than 5 MiB for the first 52 items; return fewer or smaller columns") {
			t.Errorf("%s: the request is %s, %v", name, r.State, r.Error)
		}
		_, err := n.Ranker.Preview(t.Context(), name, nil, 100)
		wantKind(t, err, assign.QueryRefused)
		newTask(t, n, name+"-small", `select id as item, left(scan, 10) as scan from loan order by id`, nil)
		if r := n.endedRequest(t, n.click(t, name+"-small", "ann", 1).ID); r.State != assign.Assigned {
			t.Errorf("%s: the next is %s, %v", name, r.State, r.Error)
		}
	}
}
