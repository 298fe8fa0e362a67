package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"getwork/schema/schematest"
)

// localEnv is one whose server's processes are known.
func localEnv(t *testing.T) *Env {
	t.Helper()
	e := testEnv(t)
	e.ServerPID = schematest.Server(t).PID()
	return e
}

func TestWaiting(t *testing.T) {
	t.Parallel()
	figures, err := waitingOf(t.Context(), localEnv(t), 20)
	if err != nil {
		t.Fatal(err)
	}
	if len(figures) != 2 {
		t.Fatalf("%d figures", len(figures))
	}
	for _, f := range figures {
		if len(f.Values) != 1 || f.Values[0] <= 0 || f.Limit == nil || len(f.Limit.Values) != 1 || f.Limit.Values[0] <= 0 || f.Goal == nil {
			t.Errorf("figure %+v", f)
		}
	}
}

// Nobody is told anything while the query lacks its last row, and what was told is checked: it fails when the database
// says something else.
func TestRoomChecks(t *testing.T) {
	t.Parallel()
	e := localEnv(t)
	s, leave, err := e.stage(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer leave()
	r, err := s.enter(t.Context(), 5)
	if err != nil {
		t.Fatal(err)
	}
	defer r.crowd.close()
	if err := r.wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left := r.crowd.served.left.Load(); left != 5 {
		t.Errorf("%d of 5 wait before the query ends", left)
	}
	p, err := r.push(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if p.first <= 0 || p.first > p.half || p.half > p.last || p.size < 100 {
		t.Errorf("%+v", p)
	}
	if err := r.exec(t.Context(), `delete from getwork.work where item = '15'`); err != nil {
		t.Fatal(err)
	}
	if err := r.check(t.Context()); err == nil {
		t.Error("an item that nobody holds was told of, and not missed")
	}
}

// A node that ends tells all who wait on it.
func TestRoomOfDeadNode(t *testing.T) {
	t.Parallel()
	s, leave, err := testEnv(t).stage(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer leave()
	r, err := s.enter(t.Context(), 3)
	if err != nil {
		t.Fatal(err)
	}
	defer r.crowd.close()
	s.nodes.Stop()
	if err := r.crowd.served.wait(t.Context(), r.crowd.broken, time.Minute, "told"); err == nil || !strings.Contains(err.Error(), "socket of user-") {
		t.Errorf("error %v", err)
	}
}

// event is one of a request, whose user is named after its id.
func event(id int, state string, items ...int) told {
	var work []string
	for _, item := range items {
		work = append(work, fmt.Sprintf(`{"item":"%d","state":"held"}`, item))
	}
	text := fmt.Sprintf(`{"request":{"id":"%d","user":"u%[1]d","state":%[2]q,"wanted":3,"requested":%[3]d,"assigned":%[3]d,"work":[%[4]s]}}`,
		id, state, len(items), strings.Join(work, ","))
	var e told
	if err := json.Unmarshal([]byte(text), &e); err != nil {
		panic(err)
	}
	return e
}

func TestCheckAnswers(t *testing.T) {
	items, err := checkAnswers([]told{event(9, "assigned", 4, 6, 5), event(7, "assigned", 1, 2, 3), event(12, "assigned", 7, 8, 9)})
	if err != nil || len(items) != 9 {
		t.Errorf("%v, %v", items, err)
	}
	for name, answers := range map[string][]told{
		"less":                   {event(1, "partial", 1, 2)},
		"nothing":                {event(1, "none")},
		"too many":               {event(1, "assigned", 1, 2, 3, 4)},
		"the earlier has worse":  {event(1, "assigned", 4, 5, 6), event(2, "assigned", 1, 2, 3)},
		"both have the same":     {event(1, "assigned", 1, 2, 3), event(2, "assigned", 3, 5, 6)},
		"a better one left over": {event(1, "assigned", 1, 2, 4)},
	} {
		if _, err := checkAnswers(answers); err == nil {
			t.Errorf("%s: not noticed", name)
		}
	}
}

func TestMemberAnswer(t *testing.T) {
	const pending, ended = `{"type":"request","request":{"id":"1","state":"pending"}}`, `{"request":{"id":"1","state":"assigned"},"type":"request"}`
	if endsRequest([]byte(pending)) || !endsRequest([]byte(ended)) || endsRequest([]byte(`{"type":"run","run":{}}`)) {
		t.Error("the end of a request is told from other events")
	}
	for n, ok := range map[int]bool{0: false, 1: true, 2: false} {
		m := member{user: "u"}
		for range n {
			m.told = append(m.told, []byte(ended))
		}
		if _, err := m.answer(); (err == nil) != ok {
			t.Errorf("told %d times: %v", n, err)
		}
	}
}

func TestLatch(t *testing.T) {
	l, broken := newLatch(2), make(chan error, 1)
	l.down()
	if err := l.wait(t.Context(), broken, time.Millisecond, "there"); err == nil || !strings.Contains(err.Error(), "1 of them were not there") {
		t.Errorf("too late: %v", err)
	}
	lost := errors.New("lost")
	broken <- lost
	if err := l.wait(t.Context(), broken, time.Minute, "there"); !errors.Is(err, lost) {
		t.Errorf("broken: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := l.wait(ctx, broken, time.Minute, "there"); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	l.down()
	if err := l.wait(t.Context(), broken, time.Minute, "there"); err != nil {
		t.Errorf("open: %v", err)
	}
}

func TestTooManySockets(t *testing.T) {
	if err := checkFiles(1 << 30); err == nil || !strings.Contains(err.Error(), "ulimit -Hn") {
		t.Errorf("error %v", err)
	}
}
