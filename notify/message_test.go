package notify

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func ExampleMessage_Encode() {
	fmt.Println(Message{Node: "k3v9", Round: &Round{Task: 7, ID: 4711, Requests: 3}}.Encode())
	fmt.Println(Message{Node: "k3v9", Changes: []Change{{Task: 7, Requests: []int64{51, 52}}, {Task: 8, Settings: true}}}.Encode())
	// Output:
	// {"node":"k3v9","round":{"task":7,"id":4711,"requests":3}}
	// {"node":"k3v9","changes":[{"task":7,"requests":[51,52]},{"task":8,"settings":true}]}
}

func TestEncodeSaysItMoreCoarselyWhenItDoesNotFit(t *testing.T) {
	ids := make([]int64, 1000)
	for i := range ids {
		ids[i] = 1_000_000_000 + int64(i)
	}
	round := &Round{Task: 1, ID: 2, Requests: 3}
	many := make([]Change, 1000)
	for i := range many {
		many[i] = Change{Task: int64(i), Work: []int64{1}}
	}
	for _, c := range []struct {
		name     string
		in, want Message
	}{
		{"fits", Message{Node: "a", Round: round, Changes: []Change{{Task: 1, Runs: []int64{1}}}},
			Message{Node: "a", Round: round, Changes: []Change{{Task: 1, Runs: []int64{1}}}}},
		{"many ids", Message{Node: "a", Round: round, Changes: []Change{
			{Task: 1, Requests: ids, Waiting: true, Settings: true}, {Task: 2, Settings: true}, {Task: 3, Work: []int64{1}}}},
			Message{Node: "a", Round: round, Changes: []Change{
				{Task: 1, Many: true, Waiting: true, Settings: true}, {Task: 2, Settings: true}, {Task: 3, Many: true}}}},
		{"many tasks", Message{Node: "a", Round: round, Changes: many}, Message{Node: "a", Round: round, All: true}},
		{"long node", Message{Node: strings.Repeat("a", 9000), Round: round}, Message{Round: round, All: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			payload := c.in.Encode()
			if len(payload) > MaxPayload {
				t.Errorf("payload has %d bytes, more than %d", len(payload), MaxPayload)
			}
			got, err := Decode(payload)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("message (-want +got):\n%s", diff)
			}
		})
	}
	if len(many[0].Work) != 1 || len(ids) != 1000 {
		t.Error("Encode changed the message that it was given")
	}
}

// TestEncodeNeverLosesATask checks, on random messages of any size, that each fits, and that its receiver reads at least
// what was changed.
func TestEncodeNeverLosesATask(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		m := randomMessage(random)
		payload := m.Encode()
		if len(payload) > MaxPayload {
			t.Fatalf("payload has %d bytes, more than %d", len(payload), MaxPayload)
		}
		got, err := Decode(payload)
		if err != nil {
			t.Fatal(err)
		}
		if !covers(got, m) {
			t.Fatalf("%+v\nwas sent as\n%s", m, payload)
		}
	}
}

func FuzzEncodeFits(f *testing.F) {
	f.Add("n1", 3, 200, int64(1))
	f.Add("", 0, 0, int64(0))
	f.Add(strings.Repeat("\x00", 2000), 1, 1, int64(-1))
	f.Add("\xff\u2028<&>", 700, 1, int64(1<<62))
	f.Fuzz(func(t *testing.T, node string, tasks, ids int, first int64) {
		m := Message{Node: node, Round: &Round{Task: first, ID: first, Requests: ids}}
		for i := range min(max(tasks, 0), 700) {
			c := Change{Task: first + int64(i), Settings: i%2 == 0}
			for k := range min(max(ids, 0), 20) {
				c.Requests = append(c.Requests, first-int64(k))
			}
			m.Changes = append(m.Changes, c)
		}
		payload := m.Encode()
		if len(payload) > MaxPayload {
			t.Fatalf("payload has %d bytes, more than %d", len(payload), MaxPayload)
		}
		if strings.ContainsRune(payload, 0) {
			t.Fatal("payload holds a NUL, which PostgreSQL refuses")
		}
		got, err := Decode(payload)
		if err != nil {
			t.Fatal(err)
		}
		if !covers(got, m) || cmp.Diff(got.Round, m.Round) != "" {
			t.Fatalf("%+v\nwas sent as\n%s", m, payload)
		}
	})
}

func FuzzDecode(f *testing.F) {
	f.Add(`{"node":"a","changes":[{"task":1,"many":true}]}`)
	f.Add(`{"task":1}{}`)
	f.Add(``)
	f.Fuzz(func(t *testing.T, payload string) {
		m, err := Decode(payload)
		if err != nil {
			return
		}
		again, err := Decode(m.Encode())
		if err != nil || !covers(again, m) {
			t.Fatalf("%q decodes to %+v, which is sent as %q (%v)", payload, m, m.Encode(), err)
		}
	})
}

func randomMessage(random *rand.Rand) Message {
	m := Message{Node: "node", All: random.IntN(20) == 0}
	if random.IntN(2) == 0 {
		m.Round = &Round{Task: random.Int64(), ID: random.Int64(), Requests: random.IntN(1000)}
	}
	some := func() []int64 {
		ids := make([]int64, random.IntN(1+random.IntN(120)))
		for i := range ids {
			ids[i] = random.Int64() >> random.IntN(60)
		}
		return ids
	}
	for i := range random.IntN(1 + random.IntN(200)) {
		m.Changes = append(m.Changes, Change{Task: int64(i), Requests: some(), Work: some(), Runs: some(),
			Settings: random.IntN(2) == 0, Waiting: random.IntN(2) == 0})
	}
	return m
}

// covers reports whether got makes its receiver read everything that sent names.
func covers(got, sent Message) bool {
	if got.All {
		return true
	}
	if sent.All || len(got.Changes) != len(sent.Changes) {
		return false
	}
	for i, s := range sent.Changes {
		g := got.Changes[i]
		if g.Task != s.Task || g.Settings != s.Settings || g.Waiting != s.Waiting {
			return false
		}
		if g.Many {
			continue
		}
		if s.Many || fmt.Sprint(g.Requests, g.Work, g.Runs) != fmt.Sprint(s.Requests, s.Work, s.Runs) {
			return false
		}
	}
	return true
}
