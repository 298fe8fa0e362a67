package web

import (
	"fmt"
	"testing"

	"getwork/assign"
	"getwork/schema/schematest"
)

// A click over several tasks is answered as one on one task.
func TestGetNext(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	n := start(t, stationOptions{identify: believe, rights: true})
	n.newTask(t, "slow", `select 1 as item from pg_sleep(3600)`, "")
	n.newInbox(t, "photos", `,"priority":5`)
	n.newInbox(t, "desk", `,"groups":["desk"]`)
	n.newInbox(t, "queue", `,"pick":"next"`)
	ann := Caller{Holder: assign.Holder{User: "ann"}, Role: Worker, Groups: []string{}}
	post := func(c Caller, body string, more ...string) reply {
		return n.call(t, "POST", "/api/v1/requests", append(c.header(t), more...), body)
	}

	post(ann, `{"tasks":[],"count":1}`).refused(400, "invalid", "tasks")
	post(ann, `{"tasks":["*","photos"],"count":1}`).refused(400, "invalid", "tasks")
	post(ann, `{"tasks":["*"],"count":6}`).refused(400, "invalid", "count")
	post(ann, `{"tasks":["*"],"count":1,"lease":"30s"}`).refused(400, "invalid", "lease")
	post(ann, `{"tasks":["desk"],"count":1}`).refused(404, "not-found")
	post(ann, `{"tasks":["photos","none"],"count":1}`).refused(404, "not-found")
	post(ann, `{"tasks":["queue"],"count":1}`).refused(403, "forbidden")
	n.call(t, "POST", "/api/v1/tasks/queue/requests", ann.header(t), `{"count":1}`).refused(403, "forbidden")
	n.call(t, "POST", "/api/v1/tasks/queue/items/x/claim", ann.header(t), ``).refused(403, "forbidden")
	bot := Caller{Holder: assign.Holder{User: "bot"}, Role: Agent, Groups: []string{}}
	n.call(t, "POST", "/api/v1/tasks/queue/requests", bot.header(t), `{"count":1}`).want(201)

	clicked := post(ann, `{"tasks":["*"],"count":2,"linger":"1h"}`, "Idempotency-Key", "k").want(202).wantHeader("Location", "/api/v1/requests/2")
	got := read[map[string]any](clicked)
	if got["task"] != "*" || got["asking"] != "slow" || got["position"] != 1.0 || fmt.Sprint(got["tasks"]) != "[photos slow queue]" {
		t.Errorf("while it waits: %v", got)
	}
	if again := read[assign.Request](post(ann, `{"tasks":["*"],"count":2,"linger":"1h"}`, "Idempotency-Key", "k").want(202)); again.ID != 2 {
		t.Errorf("the key made request %d", again.ID)
	}
	post(ann, `{"tasks":["photos"],"count":2,"linger":"1h"}`, "Idempotency-Key", "k").refused(422, "idempotency-mismatch")
	for path, want := range map[string]int{"/api/v1/requests/2": 1, "/api/v1/pipeline": 1} {
		if r := n.call(t, "GET", path, ann.header(t), "").want(200); len(read[map[string]any](r)) < want {
			t.Errorf("%s: %s", path, r.body)
		}
	}
	// A token for some tasks sees the request only if it is for those alone, and asks for those alone.
	narrow := ann
	narrow.By, narrow.Tasks = "token", []string{"photos"}
	n.call(t, "GET", "/api/v1/requests/2", narrow.header(t), "").refused(403, "forbidden")
	if p := read[assign.Pipeline](n.call(t, "GET", "/api/v1/pipeline", narrow.header(t), "").want(200)); len(p.Requests) != 0 {
		t.Errorf("a token for other tasks sees %+v", p.Requests)
	}
	post(narrow, `{"tasks":["slow"],"count":1}`).refused(403, "forbidden")

	n.call(t, "POST", "/api/v1/tasks/photos/items", manager(), `[{"item":"a"},{"item":"b"}]`).want(200)
	done := read[assign.Request](n.call(t, "GET", "/api/v1/requests/2", append(ann.header(t), "Prefer", "wait=60"), "").want(200))
	if done.Task != "photos" || done.Assigned != 2 || done.Asking != nil || len(done.Tasks) != 3 {
		t.Errorf("it got %+v", done)
	}
	n.call(t, "POST", "/api/v1/tasks/photos/items", manager(), `[{"item":"c"}]`).want(200)
	narrow.Holder.User = "bob"
	if r := read[assign.Request](post(narrow, `{"tasks":["*"],"count":1}`).want(201)); len(r.Work) != 1 || r.Work[0].Item != "c" || len(r.Tasks) != 1 {
		t.Errorf("at once: %+v", r)
	}
	waiting := read[assign.Request](post(ann, `{"tasks":["slow"],"count":1}`).want(202))
	path := fmt.Sprintf("/api/v1/requests/%d", waiting.ID)
	n.call(t, "DELETE", path, ann.header(t), "").want(200)
	n.call(t, "DELETE", path, ann.header(t), "").want(200)
}
