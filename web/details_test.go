package web

import (
	"bufio"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"

	"getwork/assign"
)

// A push beyond the limits names the field and the limit, also if it nests deeper than encoding/json reads.
func TestPushedDetailsAreLimited(t *testing.T) {
	t.Parallel()
	n := start(t, stationOptions{})
	n.newInbox(t, "inbox", "")
	push := func(details string) reply {
		return n.call(t, "POST", "/api/v1/tasks/inbox/items", asAgent("axel"), `[{"item":"a"},{"item":"b","details":`+details+`}]`)
	}
	deep := func(levels int) string {
		return `{"a":` + strings.Repeat("[", levels-1) + strings.Repeat("]", levels-1) + "}"
	}
	for _, levels := range []int{65, 3000, 9996, 100_000} {
		r := push(deep(levels))
		r.refused(400, "invalid", "[1].details")
		if !strings.Contains(r.body, "at most 64 levels") {
			t.Error(r.body)
		}
	}
	r := push(`{"a":"` + strings.Repeat("x", assign.MaxDetails) + `"}`)
	r.refused(400, "invalid", "[1].details")
	if !strings.Contains(r.body, "at most 65536 bytes") {
		t.Error(r.body)
	}
	if pushed := read[assign.Pushed](push(deep(64)).want(200)); pushed.Accepted != 2 {
		t.Errorf("%+v", pushed)
	}
}

// hold makes a user hold n items that are larger than a push may be, so that a few are as much as an answer carries.
func (n *station) hold(t *testing.T, task, user string, items, size int) {
	t.Helper()
	n.exec(t, `insert into getwork.work (task_id, item, user_name, details)
		select task_id, $2 || i, $2, json_build_object('scan', repeat('x', $4)) from getwork.task_state, generate_series(1, $3) i where name = $1`, task, user, items, size)
}

// carried returns how many works have their details, and how many say that these are left out; the details have at most 8 MiB.
func carried(t *testing.T, what string, works []assign.Work) (whole, bare int) {
	t.Helper()
	size := 0
	for _, w := range works {
		switch size += len(w.Details); {
		case w.DetailsLeftOut && string(w.Details) == "{}":
			bare++
		case !w.DetailsLeftOut && len(w.Details) > 1000:
			whole++
		default:
			t.Errorf("%s: %d bytes of details, left out: %t", what, len(w.Details), w.DetailsLeftOut)
		}
	}
	if size > 8<<20+2*len(works) {
		t.Errorf("%s carries %d bytes of details", what, size)
	}
	return whole, bare
}

// An answer, a page, a snapshot and a table carry at most 8 MiB of details, and the rest of their work without. Large answers in flight
// are bounded; what says what was done has no details then, and what can be asked for again is refused.
func TestLargeDetailsAreLeftOut(t *testing.T) {
	t.Parallel()
	n := start(t, stationOptions{})
	n.newInbox(t, "inbox", "")
	n.hold(t, "inbox", "ann", 12, 1_000_000)
	ann, observer := as("ann"), as("otto", "X-Getwork-Role", "observer")
	const whole, bare = 8, 4
	check := func(what string, works []assign.Work, wantWhole, wantBare int) {
		t.Helper()
		if w, b := carried(t, what, works); w != wantWhole || b != wantBare {
			t.Errorf("%s has %d with their details, and %d without", what, w, b)
		}
	}
	large := func(path string, h headers) reply { // to compare 8 MiB with the description would take seconds
		t.Helper()
		response, err := n.Client().Do(n.request(t, "GET", path, h, ""))
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		b, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return reply{t: t, status: response.StatusCode, header: response.Header, body: string(b)}
	}
	snapshot := func() []assign.Work {
		t.Helper()
		response, err := n.Client().Do(n.request(t, "GET", "/api/v1/events", ann, ""))
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		for lines := bufio.NewReader(response.Body); ; {
			line, err := lines.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			if data, ok := strings.CutPrefix(line, `data: {"type":"snapshot"`); ok {
				var message struct{ Snapshot assign.Pipeline }
				if err := json.Unmarshal([]byte(`{"type":"snapshot"`+data), &message); err != nil {
					t.Fatal(err)
				}
				return message.Snapshot.Work
			}
		}
	}
	held := read[assign.Pipeline](large("/api/v1/pipeline", ann).want(200)).Work
	check("the pipeline", held, whole, bare)
	check("a manager's view of it", read[assign.Pipeline](large("/api/v1/pipeline?user=ann", manager()).want(200)).Work, whole, bare)
	check("a page", read[struct{ Work []assign.Work }](large("/api/v1/work?user=ann", observer).want(200)).Work, whole, bare)
	check("a snapshot", snapshot(), whole, bare)
	last := held[len(held)-1]
	if !last.DetailsLeftOut {
		t.Error("the last has its details")
	}
	one := fmt.Sprint("/api/v1/work/", last.ID)
	check("one work", []assign.Work{read[assign.Work](large(one, ann).want(200))}, 1, 0)
	rows, err := csv.NewReader(strings.NewReader(large("/api/v1/work?user=ann&format=csv", observer).want(200).body)).ReadAll()
	filled := 0
	for _, row := range rows[1:] {
		if row[12] != "" {
			filled++
		}
	}
	if err != nil || len(rows) != 1+whole+bare || filled != whole {
		t.Errorf("the table has %d rows, %d of them with details, %v", len(rows), filled, err)
	}

	// All of it is given back, so that everybody's part is free.
	room := &n.feed.Room
	empty := func() {
		t.Helper()
		await(t, "all room is given back", func() bool {
			counted, ok := room.Take("x", assign.MaxInFlight)
			room.Give("x", counted)
			return ok
		})
	}
	empty()
	counted, _ := room.Take("ann", 15<<20)
	busy := n.call(t, "GET", "/api/v1/pipeline", ann, "")
	busy.refused(429, "busy")
	if after, err := strconv.Atoi(busy.header.Get("Retry-After")); err != nil || after < 1 {
		t.Errorf("Retry-After: %q", busy.header.Get("Retry-After"))
	}
	large(one, ann).want(200) // 1 MB fits
	check("a snapshot without room", snapshot(), 0, whole+bare)
	large("/api/v1/pipeline?user=ann", manager()).want(200) // others have their part
	room.Give("ann", counted)
	counted, _ = room.Take("zoe", assign.MaxInFlight)
	n.call(t, "GET", "/api/v1/pipeline?user=ann", manager(), "").refused(429, "busy")
	if w := read[assign.Work](n.call(t, "POST", one+"/extend", ann, "").want(200)); !w.DetailsLeftOut {
		t.Error("an answer that must be given carries details for which there is no room")
	}
	n.call(t, "GET", "/api/v1/tasks", ann, "").want(200)
	n.call(t, "GET", "/api/v1/pipeline", as("bob"), "").want(200) // small ones wait for nobody
	room.Give("zoe", counted)
	large("/api/v1/pipeline", ann).want(200)
	empty()

	// A client that leaves in the middle gives its room back, too.
	response, err := n.Client().Do(n.request(t, "GET", "/api/v1/pipeline", ann, ""))
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.CopyN(io.Discard, response.Body, 1000)
	response.Body.Close()
	empty()
}
