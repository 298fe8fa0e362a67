package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"getwork/assign"
	"getwork/schema/schematest"
)

const rows3 = `select * from (values
  (1, 'a', null::json),
  (2, repeat('x', 70000), null),
  (3, 'c', (repeat('[', 3000) || repeat(']', 3000))::json),
  (4, 'd', '{"fine":true}')) loan (item, note, deep)`

// A query's rows whose details are beyond the limits are handed out without them, and counted in the run: from the run's own result,
// from the shelf, by a claim, here and on a query database.
func TestDetailsBeyondTheLimits(t *testing.T) {
	t.Parallel()
	bare := func(w assign.Work) string {
		var details map[string]any
		if err := json.Unmarshal(w.Details, &details); err != nil {
			t.Errorf("item %s: %v", w.Item, err)
		}
		if w.DetailsLeftOut != (len(details) == 0) {
			t.Errorf("item %s: left out %t, %.100s", w.Item, w.DetailsLeftOut, w.Details)
		}
		return fmt.Sprintf("%s:%t", w.Item, w.DetailsLeftOut)
	}
	all := func(works []assign.Work) string {
		said := make([]string, len(works))
		for i, w := range works {
			said[i] = bare(w)
		}
		return strings.Join(said, " ")
	}
	for _, where := range []string{"here", "elsewhere"} {
		url := schematest.URL(t) // of its own: any node may run a task's query
		db := pool(t, url)
		o := nodeOptions{MaxRuns: 1}
		if where == "elsewhere" {
			o.Queries = reader(t, url, "getwork.blocked")
		}
		n := startNode(t, url, o)
		task := newTask(t, n, where, rows3, func(s *assign.Settings) { s.FreshFor = *lasting(time.Hour) })
		first := n.endedRequest(t, n.click(t, where, "ann", 2).ID)
		shelf := n.click(t, where, "bob", 2)
		if got := all(first.Work) + " " + all(shelf.Work); got != "1:false 2:true 3:true 4:false" {
			t.Errorf("%s: %s", where, got)
		}
		if read, err := n.Records.Request(t.Context(), shelf.ID, assign.Holder{User: "bob"}, false); err != nil || all(read.Work) != "3:true 4:false" {
			t.Errorf("%s: %s, %v", where, all(read.Work), err)
		}
		runs, err := n.Records.Runs(t.Context(), where, 0, 10)
		if err != nil || len(runs) != 1 || runs[0].LeftOut == nil || *runs[0].LeftOut != 2 || *runs[0].PassedOver != 0 || *runs[0].Candidates != 4 {
			t.Errorf("%s: %+v, %v", where, runs, err)
		}
		newTask(t, n, where+"-claim", rows3, nil)
		w, _, err := n.Claim(t.Context(), where+"-claim", "3", assign.Who{Holder: assign.Holder{User: "cid"}, Anything: true})
		if err != nil || bare(w) != "3:true" {
			t.Errorf("%s: claimed %s, %v", where, bare(w), err)
		}
		p, err := n.Ranker.Preview(t.Context(), where+"-claim", nil, 10)
		if err != nil || p.LeftOut != 1 || len(p.Rows) != 3 || !p.Rows[1].LeftOut || string(p.Rows[1].Details) != "{}" || p.Rows[2].LeftOut {
			t.Errorf("%s: %+v, %v", where, p.Rows, err)
		}
		x, err := n.Explain(t.Context(), where+"-claim", "2")
		if err != nil || !x.Matches || !x.LeftOut || string(x.Details) != "{}" {
			t.Errorf("%s: %+v, %v", where, x, err)
		}
		if got := query[int](t, db, `select count(*)::int from getwork.work where task_id = $1 and details::text = 'null'`, task.ID); got != 2 {
			t.Errorf("%s: %d", where, got)
		}
	}
}

// A push beyond the limits is refused, and nothing of it is pushed.
func TestPushedDetails(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	db := pool(t, url)
	n := startNode(t, url, nodeOptions{})
	newInbox(t, n, "inbox", nil)
	agent := assign.Who{Holder: assign.Holder{User: "bot"}, Anything: true}
	large := json.RawMessage(`{"scan":"` + strings.Repeat("x", 1000) + `"}`)
	_, err := n.Push(t.Context(), "inbox", []assign.NewItem{{Item: "fine", Details: large}, {Item: "bomb", Details: json.RawMessage(`{"a":` + strings.Repeat("[", 64) + strings.Repeat("]", 64) + `}`)}}, agent)
	wantKind(t, err, assign.Invalid)
	var refusal *assign.Refusal
	if !errors.As(err, &refusal) || len(refusal.Fields) != 1 || refusal.Fields[0].Field != "[1].details" || !strings.Contains(refusal.Detail, "64 levels") {
		t.Errorf("%+v", refusal)
	}
	if got := query[int](t, db, `select count(*)::int from getwork.item`); got != 0 {
		t.Errorf("%d items were pushed", got)
	}
}
