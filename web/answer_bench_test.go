package web

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"getwork/assign"
)

// sink is a response that keeps nothing.
type sink struct{ header http.Header }

func (s sink) Header() http.Header       { return s.header }
func (sink) Write(b []byte) (int, error) { return len(b), nil }
func (sink) WriteHeader(int)             {}

// BenchmarkAnswer is the answer to a click with three items, and to a look at a pipeline with them.
func BenchmarkAnswer(b *testing.B) {
	now := time.Now().UTC()
	req := assign.Request{ID: 4711, Task: "clicks", User: "user 12", Wanted: 3, Requested: 3, Assigned: 3, State: assign.Assigned, CreatedAt: now, CompletedAt: &now, RankedAt: &now}
	for i := range 3 {
		req.Work = append(req.Work, assign.Work{ID: int64(9000 + i), Task: "clicks", Item: "117", User: "user 12", AssignedAt: now, Attempt: 1, State: assign.WorkHeld,
			Details: json.RawMessage(`{"customer" : "customer 117", "amount" : 12.50}`)})
	}
	r := withCaller(httptest.NewRequest(http.MethodPost, "/", nil), &Caller{Holder: assign.Holder{User: "user 12"}, Role: Worker})
	p := assign.Pipeline{Work: req.Work, Requests: []assign.Request{}}
	for name, answer := range map[string]func(w http.ResponseWriter){
		"request":  func(w http.ResponseWriter) { _ = answerRequest(w, r, http.StatusCreated, &req) },
		"pipeline": func(w http.ResponseWriter) { answerPipeline(w, r, p) },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				answer(sink{http.Header{}})
			}
		})
	}
}
