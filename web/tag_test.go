package web

import (
	"encoding/json"
	"net/http/httptest"
	"testing"
	"time"

	"getwork/assign"
)

// A tag is of everything but what changes with time. The body has that, too, and what is encoded by hand is what
// encoding/json makes of it.
func TestTags(t *testing.T) {
	t.Parallel()
	r := withCaller(httptest.NewRequest("GET", "/", nil), &Caller{Role: Worker})
	why := "column customer does not exist"
	at := time.Unix(1, 0).UTC()
	base := assign.Request{ID: 1, Task: "t", User: "tracy", State: assign.Pending, CreatedAt: at, Work: []assign.Work{{ID: 2, Item: "a", AssignedAt: at}}}
	first, _ := requestTag(r, &base)
	firstOf, _ := pipelineTag(assign.Pipeline{Work: base.Work, Requests: []assign.Request{base}})
	for name, c := range map[string]struct {
		change func(*assign.Request)
		same   bool
	}{
		"nothing":  {func(*assign.Request) {}, true},
		"eta":      {func(r *assign.Request) { r.EtaSeconds = new(2.5) }, true},
		"position": {func(r *assign.Request) { r.Position = new(int64(7)) }, true},
		"expiring": {func(r *assign.Request) { r.Work[0].Expiring = true }, true},
		"state":    {func(r *assign.Request) { r.State = assign.Cancelled }, false},
		"both":     {func(r *assign.Request) { r.Position, r.Work[0].Item = new(int64(7)), "b" }, false},
		"an error": {func(r *assign.Request) { r.Error = &why }, false},
	} {
		req := base
		req.Work = []assign.Work{base.Work[0]}
		c.change(&req)
		tag, body := requestTag(r, &req)
		if want, err := json.Marshal(req.Withheld()); err != nil || string(body) != string(want) {
			t.Errorf("%s: the body is\n%s, not\n%s (%v)", name, body, want, err)
		}
		if (tag == first) != c.same || len(tag) != 26 {
			t.Errorf("%s: the tag is %s, the first one %s", name, tag, first)
		}
		p := assign.Pipeline{Work: req.Work, Requests: []assign.Request{req}}
		p.Requests[0].Work = base.Work
		tag, body = pipelineTag(p)
		if want, err := json.Marshal(p); err != nil || string(body) != string(want) {
			t.Errorf("%s: the pipeline is\n%s, not\n%s (%v)", name, body, want, err)
		}
		if (tag == firstOf) != c.same {
			t.Errorf("%s: the pipeline's tag is %s, the first one %s", name, tag, firstOf)
		}
	}
	if base.Work[0].Expiring {
		t.Error("work that others share was changed")
	}
}
