package engine

import (
	"fmt"
	"testing"
	"time"

	"getwork/assign"
	"getwork/schema/schematest"
)

// A redrive puts back items that used up their attempts, and items that are named. An item that a user said is never to come
// back stays so unless it is named. The next attempt is the first again.
func TestRedrive(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	for _, kind := range []string{"inbox", "query"} {
		t.Run(kind, func(t *testing.T) {
			url := schematest.URL(t)
			n := startNode(t, url, nodeOptions{})
			db := pool(t, url)
			attempts := 1
			sql := `select i as item from generate_series(1, 5) i order by i`
			if kind == "inbox" {
				sql = ""
			}
			newTask(t, n, "task", sql, func(s *assign.Settings) { s.MaxAttempts, s.RerunAfter = &attempts, assign.Duration(time.Second) })
			if kind == "inbox" {
				n.push(t, "task", "1", "2", "3", "4", "5")
			}
			r := n.endedRequest(t, n.click(t, "task", "ann", 5).ID)
			for i, d := range []assign.Disposition{{Outcome: "fail"}, {Outcome: "never"}, {Outcome: "fail"}, giveBack(time.Hour)} {
				n.let(t, r.Work[i], d)
			}
			redrive := func(want int64, keys ...string) {
				t.Helper()
				got, err := n.Redrive(t.Context(), "task", keys, "boss")
				if err != nil || got != want {
					t.Fatalf("%v: %d, %v, want %d", keys, got, err, want)
				}
			}
			redrive(0, "4", "5", "nothing")
			waiting := n.linger(t, "task", "bob", 2)
			redrive(2)
			if r := n.endedRequest(t, waiting.ID); fmt.Sprint(items(r)) != "[1 3]" || r.Work[0].Attempt != 1 {
				t.Errorf("bob got %v", items(r))
			}
			redrive(0)
			redrive(1, "2", "1")
			if w := n.take(t, "task", "cyd"); w.Item != "2" || w.Attempt != 1 {
				t.Errorf("cyd has %s, attempt %d", w.Item, w.Attempt)
			}
			if got := query[string](t, db, `select string_agg(item || redriven_by, ' ' order by item) from getwork.work where redriven_by is not null`); got != "1boss 2boss 3boss" {
				t.Errorf("recorded: %s", got)
			}
			_, err := n.Redrive(t.Context(), "task", []string{"1", ""}, "boss")
			wantKind(t, err, assign.Invalid)
			_, err = n.Redrive(t.Context(), "nowhere", nil, "boss")
			wantKind(t, err, assign.NotFound)
			if got, err := n.Redrive(t.Context(), "task", []string{}, "boss"); err != nil || got != 0 {
				t.Errorf("none named: %d, %v", got, err)
			}
		})
	}
}
