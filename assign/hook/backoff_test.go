package hook

import (
	"slices"
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
