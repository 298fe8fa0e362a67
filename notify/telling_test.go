package notify

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// talk runs an announcer in a bubble of fake time while act has transactions announce by it, and returns all messages as
// the other nodes hear them.
func talk(t *testing.T, fail func(n int) error, act func(tell func(id int64) *Telling)) (heard []sending) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		start, calls := time.Now(), 0
		hear := func(payload string) {
			m, err := Decode(payload)
			if err != nil || m.Node != "n1" {
				t.Errorf("malformed: %s", payload)
			}
			m.Node = ""
			mu.Lock()
			defer mu.Unlock()
			heard = append(heard, sending{time.Since(start), m})
		}
		send := func(_ context.Context, _, payload string) error {
			calls++
			if fail != nil {
				if err := fail(calls - 1); err != nil {
					return err
				}
			}
			hear(payload)
			return nil
		}
		ctx, stop := context.WithCancel(t.Context())
		a := NewAnnouncer(send, "getwork", "n1", nil)
		ended := make(chan error)
		go func() { ended <- a.Run(ctx) }()
		act(func(id int64) *Telling { // a transaction up to its commit
			synctest.Wait() // the announcer has done what there was to do, or the outcome would depend on who runs first
			told := a.TellChanges(Change{Task: 1, Work: []int64{id}})
			if told.Payload != "" {
				hear(told.Payload)
			}
			return told
		})
		stop()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return heard
}

func work(ids ...int64) Message { return one(Change{Task: 1, Work: ids}) }

func again(m Message) Message { m.Again = true; return m }

func compare(t *testing.T, heard, want []sending) {
	t.Helper()
	if diff := cmp.Diff(want, heard); diff != "" {
		t.Errorf("heard (-want +got):\n%s", diff)
	}
}

const ms = time.Millisecond

// A transaction that is alone announces itself, and nothing else is sent: no pledge is open.
func TestTellingAlone(t *testing.T) {
	heard := talk(t, nil, func(tell func(int64) *Telling) {
		for id := range int64(3) {
			tell(id).End(true)
			time.Sleep(100 * ms)
		}
		time.Sleep(time.Hour)
	})
	compare(t, heard, []sending{{0, work(0)}, {100 * ms, work(1)}, {200 * ms, work(2)}})
}

// The second of two transactions sends Again, later changes are gathered, and Even follows when no more come.
func TestTellingOfMany(t *testing.T) {
	heard := talk(t, nil, func(tell func(int64) *Telling) {
		for id := range int64(5) {
			told := tell(id)
			if inside := told.Payload != ""; inside != (id < 2) {
				t.Errorf("the transaction of %d tells by itself: %v", id, inside)
			}
			told.End(true)
			time.Sleep(10 * ms)
		}
		time.Sleep(2 * time.Second)
		tell(5).End(true)
		time.Sleep(time.Hour)
	})
	compare(t, heard, []sending{
		{0, work(0)},
		{10 * ms, again(work(1))},
		{110 * ms, again(work(2, 3, 4))},
		{1110 * ms, Message{Even: true}},
		{2050 * ms, work(5)},
	})
}

// While a transaction that relies on the pledge is under way, the other nodes hear Again; but not for ever.
func TestPledgeOutlastsATransaction(t *testing.T) {
	var slow *Telling
	heard := talk(t, nil, func(tell func(int64) *Telling) {
		tell(1).End(true)
		tell(2).End(true)
		slow = tell(3)
		time.Sleep(3500 * ms)
		slow.End(true)
		slow.End(true)
		time.Sleep(time.Minute)
	})
	compare(t, heard, []sending{
		{0, work(1)}, {0, again(work(2))},
		{1000 * ms, Message{Again: true}}, {2000 * ms, Message{Again: true}}, {3000 * ms, Message{Again: true}},
		{3500 * ms, again(work(3))}, {4500 * ms, Message{Even: true}},
	})
	heard = talk(t, nil, func(tell func(int64) *Telling) {
		tell(1).End(true)
		tell(2).End(true)
		_ = tell(3)
		time.Sleep(time.Hour)
	})
	if last := heard[len(heard)-1]; !last.Message.Even || last.At < forgottenAfter || last.At > forgottenAfter+5*time.Second {
		t.Errorf("last heard: %+v", last)
	}
}

// A pledge counts only when the other nodes have it: not before its transaction has committed, nor if that failed, nor
// longer than it can be renewed.
func TestPledgeStandsOnlyWhileHeard(t *testing.T) {
	talk(t, nil, func(tell func(int64) *Telling) {
		tell(1).End(true)
		open := tell(2)
		if other := tell(3); other.Payload == "" {
			t.Error("left to the announcer before the pledge has committed")
		} else {
			other.End(false)
		}
		if tell(4).Payload == "" {
			t.Error("left to the announcer though the pledge failed")
		}
		open.End(true)
		if late := tell(5); late.Payload != "" {
			t.Error("not left to the announcer though the pledge stands")
		} else {
			late.End(true)
		}
	})
	heard := talk(t, func(n int) error {
		if n < 5 {
			return errors.New("database is away")
		}
		return nil
	}, func(tell func(int64) *Telling) {
		tell(1).End(true)
		tell(2).End(true)
		tell(3).End(true) // can't be sent
		time.Sleep(2500 * ms)
		if told := tell(4); told.Payload == "" {
			t.Error("left to the announcer though it can't send")
		} else {
			told.End(true)
		}
		time.Sleep(time.Minute)
	})
	compare(t, heard, []sending{
		{0, work(1)}, {0, again(work(2))}, {2500 * ms, work(4)}, {5100 * ms, again(work(3))}, {6100 * ms, Message{Even: true}},
	})
}

// A node that ends announces everything, and then Even.
func TestFarewellIsEven(t *testing.T) {
	heard := talk(t, nil, func(tell func(int64) *Telling) {
		tell(1).End(true)
		tell(2).End(true)
		time.Sleep(ms)
		tell(3).End(true)
	})
	last := heard[len(heard)-1].Message
	if !last.Even || last.Again {
		t.Errorf("last heard: %+v", last)
	}
}
