package assign

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func orNil[T any](g *rapid.Generator[T]) *rapid.Generator[*T] { return rapid.Ptr(g, true) }

var (
	anyText     = rapid.OneOf(rapid.StringMatching(`[ -~]{0,20}`), rapid.String(), rapid.Just("<b>\"q\" \\ & \u2028\x00\xff</b>"))
	anyTime     = rapid.Map(rapid.Int64Range(0, 1<<52), func(us int64) time.Time { return time.UnixMicro(us).UTC() })
	anyDuration = rapid.Map(rapid.Int64Range(0, 1<<40), Microseconds)
	anyDetails  = rapid.SampledFrom([]json.RawMessage{nil, json.RawMessage(`{}`), json.RawMessage(`{"amount":12.50,"name":"Zoë","tags":["a",null]}`)})

	anyEnding = rapid.Custom(func(t *rapid.T) Ending {
		return Ending{ID: rapid.Int64().Draw(t, "id"), User: anyText.Draw(t, "user"), ClosedAt: anyTime.Draw(t, "closed"), Note: orNil(anyText).Draw(t, "note")}
	})
	anyWork = rapid.Custom(func(t *rapid.T) Work {
		text, count := anyText.Draw, rapid.IntRange(0, 1000).Draw
		return Work{ID: rapid.Int64().Draw(t, "id"), Task: text(t, "task"), Item: text(t, "item"), User: text(t, "user"), Instance: text(t, "instance"),
			Slot: count(t, "slot"), Details: anyDetails.Draw(t, "details"), AssignedAt: anyTime.Draw(t, "assigned"),
			LeaseExpiresAt: orNil(anyTime).Draw(t, "expires"), Attempt: count(t, "attempt"), State: WorkState(text(t, "state")),
			ClosedAt: orNil(anyTime).Draw(t, "closed"), AvailableAt: orNil(anyTime).Draw(t, "available"), Note: orNil(anyText).Draw(t, "note"), Deadline: orNil(anyTime).Draw(t, "deadline"),
			Lease: orNil(anyDuration).Draw(t, "lease"), ClosedBy: orNil(anyText).Draw(t, "by"), Error: orNil(anyText).Draw(t, "error"),
			ToOthers: rapid.Bool().Draw(t, "to others"), Exhausted: rapid.Bool().Draw(t, "exhausted"), Expiring: rapid.Bool().Draw(t, "expiring"), DetailsLeftOut: rapid.Bool().Draw(t, "left out"),
			From: rapid.Int64().Draw(t, "from"), Again: rapid.Bool().Draw(t, "again"), Earlier: rapid.SliceOfN(anyEnding, -1, 2).Draw(t, "earlier")}
	})
	anyRequest = rapid.Custom(func(t *rapid.T) Request {
		text, count := anyText.Draw, rapid.IntRange(0, 1000).Draw
		return Request{ID: rapid.Int64().Draw(t, "id"), Task: text(t, "task"), User: text(t, "user"), Instance: text(t, "instance"),
			Wanted: count(t, "wanted"), Requested: count(t, "requested"), Assigned: count(t, "assigned"), State: State(text(t, "state")),
			Reason: orNil(rapid.Map(anyText, func(s string) Reason { return Reason(s) })).Draw(t, "reason"), Error: orNil(anyText).Draw(t, "error"),
			Lease: orNil(anyDuration).Draw(t, "lease"), CreatedAt: anyTime.Draw(t, "created"), LingerUntil: orNil(anyTime).Draw(t, "linger"),
			CompletedAt: orNil(anyTime).Draw(t, "completed"), RankedAt: orNil(anyTime).Draw(t, "ranked"), Stale: rapid.Bool().Draw(t, "stale"), EtaSeconds: orNil(rapid.Float64Range(0.001, 1e6)).Draw(t, "eta"),
			Position: orNil(rapid.Int64()).Draw(t, "position"), Work: rapid.SliceOfN(anyWork, 0, 3).Draw(t, "work")}
	})
)

// The encoding by hand equals that of encoding/json.
func TestEncodedByHand(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r, w := anyRequest.Draw(t, "request"), anyWork.Draw(t, "work")
		p := Pipeline{Work: r.Work, Requests: []Request{r}}
		for _, e := range []Event{{Type: "request", Body: &r}, {Type: "work", Body: &w}, {Type: "snapshot", Body: p}, {Type: "snapshot", Body: Pipeline{}}} {
			body, err := json.Marshal(e.Body)
			if err != nil {
				t.Fatal(err)
			}
			want := `{"type":"` + e.Type + `","` + e.Type + `":` + string(body) + `}`
			if got, err := e.AppendMessage([]byte("before ")); err != nil || string(got) != "before "+want {
				t.Fatalf("got  %s (%v)\nwant %s", got, err, want)
			}
		}
	})
}

// The encoding by hand has every field, also a new one.
func TestEveryFieldIsEncodedByHand(t *testing.T) {
	t.Parallel()
	for what, v := range map[string]struct {
		body   any
		append func([]byte) []byte
	}{
		"request": {&Request{}, (&Request{}).AppendJSON},
		"work":    {&Work{}, (&Work{}).AppendJSON},
	} {
		typ := reflect.TypeOf(v.body).Elem()
		written := string(v.append(nil))
		for i := range typ.NumField() {
			name, options, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
			if name != "-" && !strings.HasPrefix(options, "omit") && !strings.Contains(written, `"`+name+`":`) {
				t.Errorf("a %s is written without %s: %s", what, name, written)
			}
		}
	}
}

// Line breaks in details would end a line of an event stream.
func TestDetailsWithLineBreaks(t *testing.T) {
	t.Parallel()
	w := Work{Details: json.RawMessage("{\n  \"a\": [1,\r\n 2]\n}")}
	b, err := Event{Type: "work", Body: &w}.AppendMessage(nil)
	if err != nil || strings.ContainsAny(string(b), "\r\n") || !strings.Contains(string(b), `"details":{"a":[1,2]},`) {
		t.Errorf("%s, %v", b, err)
	}
}
