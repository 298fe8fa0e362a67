package notify

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// wire stands in for the database: it records each message and its time.
type wire struct {
	start time.Time
	fail  func(n int) error // by the number of the call, from 0; nil: never
	calls int
	sent  []sending
}

type sending struct {
	At      time.Duration
	Message Message
}

func (w *wire) send(_ context.Context, channel, payload string) error {
	w.calls++
	if w.fail != nil {
		if err := w.fail(w.calls - 1); err != nil {
			return err
		}
	}
	m, err := Decode(payload)
	if err != nil || channel != "getwork" || m.Node != "n1" {
		return errors.New("malformed announcement on " + channel + ": " + payload)
	}
	w.sent = append(w.sent, sending{time.Since(w.start), Message{Changes: m.Changes, All: m.All}})
	return nil
}

// announce runs an announcer in a bubble of fake time while act calls it, and returns what was sent.
func announce(t *testing.T, fail func(int) error, act func(a *Announcer, stop context.CancelFunc)) *wire {
	t.Helper()
	w := &wire{fail: fail}
	synctest.Test(t, func(t *testing.T) {
		w.start = time.Now()
		ctx, stop := context.WithCancel(t.Context())
		a := NewAnnouncer(w.send, "getwork", "n1", nil)
		ended := make(chan error)
		go func() { ended <- a.Run(ctx) }()
		synctest.Wait()
		act(a, stop)
		stop()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return w
}

func check(t *testing.T, w *wire, want []sending) {
	t.Helper()
	if diff := cmp.Diff(want, w.sent); diff != "" {
		t.Errorf("sent (-want +got):\n%s", diff)
	}
}

func one(c Change) Message { return Message{Changes: []Change{c}} }

func TestAnnouncerSpeaksAtOnceThenGathers(t *testing.T) {
	w := announce(t, nil, func(a *Announcer, _ context.CancelFunc) {
		a.note(Change{Task: 7, Requests: []int64{1}})
		time.Sleep(10 * time.Millisecond) // fake time: the bubble's clock
		a.note(Change{Task: 7, Requests: []int64{2, 3}})
		a.note(Change{Task: 7, Requests: []int64{3, 4}})
		a.note(Change{Task: 7, Work: []int64{9}})
		a.note(Change{Task: 5, Runs: []int64{70}})
		a.Settings(6)
		a.Waiting(6)
		a.note(Change{Task: 8}) // nothing to say
		time.Sleep(95 * time.Millisecond)
		a.note(Change{Task: 7, Work: []int64{10}})
		time.Sleep(10 * time.Second)
		a.note(Change{Task: 7, Work: []int64{11}})
		synctest.Wait()
	})
	check(t, w, []sending{
		{0, one(Change{Task: 7, Requests: []int64{1}})},
		{100 * time.Millisecond, Message{Changes: []Change{
			{Task: 5, Runs: []int64{70}},
			{Task: 6, Settings: true, Waiting: true},
			{Task: 7, Requests: []int64{2, 3, 4}, Work: []int64{9}},
		}}},
		{200 * time.Millisecond, one(Change{Task: 7, Work: []int64{10}})},
		{10*time.Second + 105*time.Millisecond, one(Change{Task: 7, Work: []int64{11}})},
	})
}

func TestAnnouncerIsQuietWhenIdle(t *testing.T) {
	w := announce(t, nil, func(*Announcer, context.CancelFunc) { time.Sleep(24 * time.Hour) })
	if w.calls != 0 {
		t.Errorf("sent %d times with nothing to say", w.calls)
	}
}

func TestAnnouncerNamesOnlyTheTaskAbove200(t *testing.T) {
	w := announce(t, nil, func(a *Announcer, _ context.CancelFunc) {
		a.Settings(1)
		synctest.Wait()
		for id := range int64(200) {
			a.note(Change{Task: 1, Requests: []int64{id}})
			a.note(Change{Task: 2, Requests: []int64{id}})
			a.note(Change{Task: 2, Requests: []int64{id}})
		}
		a.note(Change{Task: 1, Work: []int64{1}})
		a.note(Change{Task: 1, Work: []int64{2}})
		a.Waiting(1)
		time.Sleep(time.Second)
	})
	if len(w.sent) != 2 || len(w.sent[1].Message.Changes) != 2 {
		t.Fatalf("sent %+v", w.sent)
	}
	if diff := cmp.Diff(Change{Task: 1, Many: true, Waiting: true}, w.sent[1].Message.Changes[0]); diff != "" {
		t.Errorf("task with 201 ids (-want +got):\n%s", diff)
	}
	if got := w.sent[1].Message.Changes[1]; got.Many || len(got.Requests) != 200 {
		t.Errorf("task with 200 ids, each noted twice: many %v, %d ids", got.Many, len(got.Requests))
	}
}

// Changes that can't be sent are sent when that is possible again; above maxIDs they name only the task.
func TestAnnouncerKeepsWhatCouldNotBeSent(t *testing.T) {
	failFirst := func(k int) func(int) error {
		return func(n int) error {
			if n < k {
				return errors.New("database is away")
			}
			return nil
		}
	}
	w := announce(t, failFirst(3), func(a *Announcer, _ context.CancelFunc) {
		a.note(Change{Task: 1, Requests: []int64{1}})
		time.Sleep(1500 * time.Millisecond)
		a.note(Change{Task: 1, Requests: []int64{2}})
		time.Sleep(time.Minute)
	})
	check(t, w, []sending{{3 * time.Second, one(Change{Task: 1, Requests: []int64{1, 2}})}})

	w = announce(t, failFirst(100), func(a *Announcer, _ context.CancelFunc) {
		for id := range int64(100) {
			a.note(Change{Task: 1, Requests: []int64{3 * id, 3*id + 1, 3*id + 2}, Runs: []int64{7}})
			time.Sleep(time.Second)
		}
		time.Sleep(time.Minute)
	})
	check(t, w, []sending{{100 * time.Second, one(Change{Task: 1, Runs: []int64{7}, Many: true})}})
}

func TestAnnouncerSaysTheRestWhenStopped(t *testing.T) {
	w := announce(t, nil, func(a *Announcer, stop context.CancelFunc) {
		a.note(Change{Task: 1, Requests: []int64{1}})
		synctest.Wait()
		a.note(Change{Task: 1, Requests: []int64{2}})
		stop()
		synctest.Wait()
		a.note(Change{Task: 1, Requests: []int64{3}}) // too late, and harmless
	})
	check(t, w, []sending{
		{0, one(Change{Task: 1, Requests: []int64{1}})},
		{0, one(Change{Task: 1, Requests: []int64{2}})},
	})
}

func TestAnnouncerStopsThoughSendHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		hang := func(ctx context.Context, _, _ string) error { <-ctx.Done(); return ctx.Err() }
		a := NewAnnouncer(hang, "getwork", "n1", nil)
		a.note(Change{Task: 1, Requests: []int64{1}})
		ended := make(chan error)
		go func() { ended <- a.Run(ctx) }()
		synctest.Wait()
		stop()
		stopped := time.Now()
		<-ended
		if took := time.Since(stopped); took > farewellTimeout {
			t.Errorf("stopped after %s, want %s at most", took, farewellTimeout)
		}
	})
}
