package feed

import (
	"fmt"
	"testing"
	"time"

	"getwork/assign"
	"getwork/schema/schematest"
)

// What a push reads is planned a few times in a session, and no more: planning takes longer than the reading.
func TestPushesArePlannedOnce(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	url := schematest.URL(t)
	a, b := startNode(t, url, NodeOptions{}), startNode(t, url, NodeOptions{})
	newTask(t, a, "shelf", `select i as item from generate_series(1, 20000) i order by i`, func(s *assign.Settings) {
		s.MaxCandidates, s.FreshFor = 20_000, assign.Duration(time.Hour)
	})
	a.endedRequest(t, a.click(t, "shelf", "first", 1).ID)
	execute(t, a.Pools.API, `analyze`)
	ann := follow(t, b, "ann")
	if err := ann.Start(t.Context(), "worker"); err != nil {
		t.Fatal(err)
	}
	for i := range 40 {
		r := a.click(t, "shelf", "ann", 1+i%3)
		ann.next(fmt.Sprint("result ", i), func(e assign.Event) bool { return e.Type == "request" && e.Request.ID == r.ID })
	}
	schematest.PlannedOnce(t, b.Pools.API)
}
