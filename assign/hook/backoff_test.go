package hook

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"getwork/assign"
)

// When the receiver accepts a test, what failed before and would wait for hours is sent at once, unless it is being sent just now. A
// test that fails, or another event that is delivered, changes nothing.
func TestAcceptedTestEndsBackOff(t *testing.T) {
	t.Parallel()
	var bad atomic.Bool
	d := newDesk(t, failsWhile(&bad))
	w, _ := d.hook(assign.WorkAssignedEvent)
	other, _ := d.hook(assign.WorkClosedEvent)
	for _, item := range []string{"failed", "later", "under way", "of another"} {
		d.exec(`
insert into getwork.hook_event (hook_id, task_id, item, type, body, attempts, next_at)
values ($1, 1, $2, 'work.assigned', json_build_object('type', 'work.assigned', 'data', json_build_object('item', $2::text)), 9, clock_timestamp() + interval '8 hours')`, w.ID, item)
	}
	d.exec(`update getwork.hook_event set hook_id = $1 where item = 'of another'`, other.ID)
	test := func() {
		t.Helper()
		if _, err := d.Test(t.Context(), w.ID, anybody); err != nil {
			t.Fatal(err)
		}
		d.once()
	}
	sent := func() []string {
		var all []string
		for _, s := range d.receiver.all() {
			if s != "webhook.test " {
				all = append(all, s)
			}
		}
		slices.Sort(all)
		return all
	}
	bad.Store(true)
	test()
	d.exec(`delete from getwork.hook_event where type = 'webhook.test'`) // or it would be tried again in 5 s, and accepted
	bad.Store(false)
	d.exec(`update getwork.hook set failures = 0, retry_at = null`)
	d.assign("new")
	d.once()
	d.once()
	if got := sent(); !slices.Equal(got, []string{"work.assigned new"}) {
		t.Errorf("sent before a test was accepted: %v", got)
	}
	d.exec(`update getwork.hook_event set next_at = clock_timestamp() + interval '29 seconds' where item = 'under way'`)
	test()
	d.once()
	if got, want := sent(), []string{"work.assigned failed", "work.assigned later", "work.assigned new"}; !slices.Equal(got, want) {
		t.Errorf("sent after a test was accepted: %v, want %v", got, want)
	}
}

// Several events that fail beside each other count as one failure of their hook, or half a second of refusals would silence it for a
// minute. A pause that ends later than any can was written before the database's clock was set back: the hook is tried at once.
func TestPauses(t *testing.T) {
	t.Parallel()
	var bad atomic.Bool
	bad.Store(true)
	d := newDesk(t, failsWhile(&bad))
	d.hook(assign.WorkAssignedEvent)
	for _, item := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		d.assign(item)
	}
	d.once()
	if got := d.text(`select failures || ', ' || (retry_at < clock_timestamp() + interval '2 seconds') from getwork.hook`); got != "1, true" {
		t.Errorf("after eight failures at once the hook has failed, and is tried again soon: %s", got)
	}
	bad.Store(false)
	d.exec(`update getwork.hook_event set next_at = clock_timestamp()`)
	d.exec(`update getwork.hook set retry_at = clock_timestamp() + interval '59 minutes'`)
	d.once()
	if got := d.states(); strings.Contains(got, "delivered") {
		t.Errorf("sent to a receiver that asked to be left alone: %s", got)
	}
	d.exec(`update getwork.hook set retry_at = clock_timestamp() + interval '61 minutes'`)
	d.once()
	if got := d.text(`select failures || ' ' || (retry_at is null) from getwork.hook`); got != "0 true" {
		t.Errorf("after a delivery: %s", got)
	}
}
