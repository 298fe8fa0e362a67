package engine

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"getwork/assign"
	"getwork/schema/schematest"
)

// The row that a round writes for a click is also its answer, so it must be what anybody reads later.
func TestAnAnswerIsWhatIsRead(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	newTask(t, n, "shelf", `select i as item, 'ä "quoted" <b>' as note, 1.50::numeric as amount from generate_series(1, 9) i order by i`,
		func(s *assign.Settings) {
			s.FreshFor, s.Lease = assign.Duration(time.Hour), new(assign.Duration(time.Minute))
		})
	newTask(t, n, "plain", `select i as item from generate_series(1, 2) i order by i`, fresh(time.Hour))
	newInbox(t, n, "inbox", func(s *assign.Settings) { s.Slots = 2 })
	n.push(t, "inbox", "a", "b")
	n.endedRequest(t, n.click(t, "shelf", "first", 1).ID)
	n.endedRequest(t, n.click(t, "plain", "first", 1).ID)
	lease := assign.Duration(30 * time.Second)
	for i, click := range []struct {
		task  string
		click assign.Click
		want  assign.State
	}{
		{"shelf", assign.Click{Holder: assign.Holder{User: "ann"}, Count: 3}, assign.Assigned},
		{"shelf", assign.Click{Holder: assign.Holder{User: "ann", Instance: "2"}, Count: 2, Linger: assign.Duration(time.Minute), Lease: &lease}, assign.Assigned},
		{"shelf", assign.Click{Holder: assign.Holder{User: "bob"}, Count: 5, Groups: []string{"a", "b"}, Key: "key"}, assign.Partial},
		{"shelf", assign.Click{Holder: assign.Holder{User: "cyd"}, Count: 1}, assign.None},
		{"shelf", assign.Click{Holder: assign.Holder{User: "dee"}, Count: 1, Linger: assign.Duration(time.Minute)}, assign.Pending},
		{"plain", assign.Click{Holder: assign.Holder{User: "ann", Instance: "2"}, Count: 1, Lease: &lease, Anything: true}, assign.Assigned},
		{"inbox", assign.Click{Holder: assign.Holder{User: "ann"}, Count: 5}, assign.Partial},
		{"inbox", assign.Click{Holder: assign.Holder{User: "ann"}, Count: 1}, assign.None},
	} {
		got, err := n.GetWork(t.Context(), click.task, click.click)
		if err != nil {
			t.Fatal(err)
		}
		if got.State != click.want {
			t.Errorf("click %d is %s, want %s", i, got.State, click.want)
		}
		read, err := n.Request(t.Context(), got.ID, got.Holder(), false)
		if err != nil {
			t.Fatal(err)
		}
		got.EtaSeconds, read.EtaSeconds = nil, nil
		if a, b := asJSON(t, got), asJSON(t, read); a != b {
			t.Errorf("click %d was answered\n%s\nand is read as\n%s", i, a, b)
		}
		if read.Lease != nil != (click.task == "plain") {
			t.Errorf("click %d: lease %v", i, read.Lease)
		}
		if got.TaskID != read.TaskID || len(got.Work) > 0 && got.Work[0].TaskID != read.TaskID {
			t.Errorf("click %d: another task", i)
		}
	}
}

// A click is recorded with its user's groups as they are, whatever is in their names, whether it is answered at once or waits.
func TestGroupsAreRecordedAsTheyAre(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	db := pool(t, url)
	newInbox(t, n, "inbox", nil)
	n.push(t, "inbox", "a")
	newTask(t, n, "paused", `select 1 as item`, func(s *assign.Settings) { s.Paused = true })
	for i, groups := range [][]string{{`a "b"`, `c\d`, `\"`, "{e}", "null", "", "f g", "ü"}, {}, nil} {
		for _, task := range []string{"inbox", "paused"} {
			c := assign.Click{Holder: assign.Holder{User: fmt.Sprint(task, i)}, Groups: groups, Count: 1}
			r, err := n.GetWork(t.Context(), task, c)
			if err != nil {
				t.Fatal(err)
			}
			got := query[[]string](t, db, `select groups from getwork.work_requested where id = $1`, r.ID)
			if got == nil || !slices.Equal(got, groups) {
				t.Errorf("%s: %q, want %q", task, got, groups)
			}
		}
	}
	r, err := n.GetWork(t.Context(), "inbox", assign.Click{Holder: assign.Holder{User: "root"}, Count: 1, Anything: true})
	if err != nil {
		t.Fatal(err)
	}
	if got := query[[]string](t, db, `select groups from getwork.work_requested where id = $1`, r.ID); got != nil {
		t.Errorf("who needs no groups has %q", got)
	}
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Of one holder's clicks in a batch one is recorded, and all are answered with it; also if the holder has a waiting request.
func TestOneHolderInOneBatch(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	db := pool(t, url)
	newInbox(t, n, "inbox", nil)
	n.push(t, "inbox", "a", "b", "c")
	batch := func(linger time.Duration, users ...string) (clicks []*click) {
		for i, u := range users {
			c := assign.Click{Holder: assign.Holder{User: u}, Count: 1 + i, Linger: assign.Duration(linger)}
			clicks = append(clicks, &click{Click: c, holder: c.Holder, done: make(chan struct{})})
		}
		n.recordBatch(t.Context(), "inbox", clicks)
		for _, k := range clicks {
			if k.err != nil {
				t.Fatal(k.err)
			}
		}
		return clicks
	}
	k := batch(0, "ann", "bob", "ann")
	if k[0].answer.ID != k[2].answer.ID || fmt.Sprint(items(*k[0].answer), items(*k[2].answer), items(*k[1].answer)) != "[a] [a] [b c]" {
		t.Errorf("got %v, %v and %v", k[0].answer, k[1].answer, k[2].answer)
	}
	first := batch(time.Hour, "cyd")[0].answer
	again := batch(time.Hour, "dee", "cyd")
	if first.State != assign.Pending || again[1].answer.ID != first.ID || again[0].answer.ID == first.ID {
		t.Errorf("cyd waits as %v, and then as %v", first, again[1].answer)
	}
	if n := query[int](t, db, `select count(*) from getwork.work_requested`); n != 4 {
		t.Errorf("%d requests, want 4", n)
	}
}

// Another node records the same holder after this round has read the waiting requests. The round plans again, and the holder
// gets the other node's request.
func TestTheSameHolderRecordedElsewhere(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	read := newGate(StepRead)
	n := startNode(t, url, nodeOptions{Steps: read.hold})
	db := pool(t, url)
	task := newInbox(t, n, "inbox", nil)
	answered := make(chan assign.Request)
	go func() {
		r, err := n.GetWork(t.Context(), "inbox", assign.Click{Holder: assign.Holder{User: "ann"}, Count: 1, Linger: assign.Duration(time.Hour)})
		if err != nil {
			t.Error(err)
		}
		answered <- r
	}()
	<-read.reached
	other := query[int64](t, db, `
insert into getwork.work_requested (task_id, user_name, wanted, requested, linger_until)
values ($1, 'ann', 1, 1, now() + interval '1 hour') returning id`, task.ID)
	close(read.open)
	if r := <-answered; r.ID != other || r.State != assign.Pending {
		t.Errorf("ann got %+v, want the request %d that waits", r, other)
	}
	n.push(t, "inbox", "a")
	if r := n.endedRequest(t, other); fmt.Sprint(items(r)) != "[a]" {
		t.Errorf("ann got %v, want [a]", items(r))
	}
}
