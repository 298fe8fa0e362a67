package torture

import (
	"context"
	"encoding/json"
	"maps"
	"math/rand/v2"
	"net/http"

	"getwork/cmd/lab/torture/history"
)

// giveBack is the code for which managers take work back.
const giveBack = "back"

// outcomes are the reasons of tasks that require one. Managers change between two lists, of which each has one that the other lacks.
func outcomes(list int) []map[string]any {
	return []map[string]any{
		{"code": "done", "label": "Done", "do": "complete"},
		{"code": giveBack, "label": "Back", "do": "return", "after": "0s"},
		{"code": "not-mine", "label": "Not mine", "do": "return", "after": "0s", "to": "others"},
		{"code": "gone", "label": "Gone", "do": "never"},
		{"code": sometimes[list], "label": "Sometimes", "do": "complete"},
	}
}

var sometimes = [2]string{"half", "twice"}

// coded returns the job with reasons, one of which is required, and with fields of results.
func coded(j job) job {
	maps.Copy(j.settings, map[string]any{"require_code": true, "outcomes": outcomes(0),
		"result": []map[string]any{{"name": "pages", "type": "number", "min": 0, "max": 9, "required": true}, {"name": "kind", "type": "string", "enum": []string{"a", "b"}}}})
	j.coded = true
	return j
}

// disposition is how work ends.
type disposition struct {
	Outcome, After, To, Code string
	Result                   map[string]any
	terse                    bool // what the code says is not said again
}

// reasoned returns it with a reason; sometimes without one, or with one that the task may not have now, which is refused.
func (d disposition) reasoned(rng *rand.Rand) disposition {
	if d.Outcome == "fail" || rng.IntN(20) == 0 {
		return d
	}
	d.terse = rng.IntN(2) == 0
	if d = d.surely(); d.Outcome == "complete" {
		d.Result["pages"] = rng.IntN(10)
		if rng.IntN(3) == 0 {
			d.Result["kind"] = []string{"a", "b"}[rng.IntN(2)]
		}
		if rng.IntN(3) == 0 {
			d.Code = sometimes[rng.IntN(2)]
		}
	}
	return d
}

// surely returns it with a reason that is always there.
func (d disposition) surely() disposition {
	switch {
	case d.Outcome == "complete":
		d.Code, d.Result = "done", map[string]any{"pages": 1}
	case d.Outcome == "never":
		d.Code = "gone"
	case d.To == "others":
		d.Code = "not-mine"
	case d.Outcome == "return":
		d.Code = giveBack
	}
	return d
}

// body is what is sent.
func (d disposition) body() map[string]any {
	b := map[string]any{}
	for name, value := range map[string]string{"outcome": d.Outcome, "after": d.After, "to": d.To, "code": d.Code} {
		if value != "" {
			b[name] = value
		}
	}
	if d.Result != nil {
		b["result"] = d.Result
	}
	if d.Code != "" && d.terse {
		delete(b, "outcome")
		delete(b, "to")
		if d.After == "0s" {
			delete(b, "after")
		}
	}
	return b
}

// call is what is recorded.
func (d disposition) call(w held) history.Call {
	c := history.Call{Kind: history.Dispose, Task: w.Task, Item: w.Item, Work: w.ID, Outcome: d.Outcome, After: d.After, To: d.To, Code: d.Code}
	if d.Result != nil {
		c.Result, _ = json.Marshal(d.Result)
	}
	return c
}

// coded reports whether a task requires reasons.
func (c *crowd) coded(task string) bool {
	for _, j := range c.jobs {
		if j.name == task {
			return j.coded
		}
	}
	return false
}

// recode changes a task's reasons.
func (m *manager) recode(ctx context.Context) {
	for _, j := range m.crowd.jobs {
		if j.coded {
			m.do(ctx, history.Call{Kind: history.Update, Task: j.name},
				request{method: http.MethodPatch, path: "/api/v1/tasks/" + j.name, body: map[string]any{"outcomes": outcomes(m.rng.IntN(2))}, header: []string{"If-Match", "*"}})
		}
	}
}
