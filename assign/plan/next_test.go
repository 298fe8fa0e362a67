package plan_test

import (
	"testing"

	"getwork/assign/plan"
)

func TestNext(t *testing.T) {
	for _, c := range []struct {
		name string
		view plan.View
		want plan.Action
	}{
		{"nobody waits", plan.View{}, plan.Nothing},
		{"a click without a shelf", plan.View{Pending: true, Waits: true}, plan.Run},
		{"and under the lock", plan.View{Locked: true, Pending: true, Waits: true}, plan.Run},
		{"the last holder has served it", plan.View{Locked: true, Pending: true}, plan.Nothing},
		{"a click on a fresh shelf takes the lock first", plan.View{Serves: true, Pending: true, Waits: true}, plan.Run},
		{"and is served under it", plan.View{Locked: true, Serves: true, Pending: true, Waits: true}, plan.ServeWithoutRun},
		{"a recheck needs no lock", plan.View{Serves: true, Recheck: true, Pending: true, Waits: true}, plan.Recheck},
		{"nor keeps it", plan.View{Locked: true, Serves: true, Recheck: true, Pending: true, Waits: true}, plan.Recheck},
		{"a click on an inbox", plan.View{Inbox: true, Pending: true, Waits: true}, plan.ServeWithoutRun},
		{"somebody lingers on an inbox", plan.View{Inbox: true, Pending: true}, plan.Nothing},
		{"until something is pushed", plan.View{Inbox: true, Pending: true, Freed: true}, plan.ServeWithoutRun},
		{"or falls due", plan.View{Inbox: true, Pending: true, FellDue: true}, plan.ServeWithoutRun},
		{"or their time is over", plan.View{Inbox: true, Pending: true, Over: true, Freed: true}, plan.EndLingering},
		{"work is let go of while somebody lingers on a fresh shelf", plan.View{Serves: true, Pending: true, Freed: true}, plan.ServeWithoutRun},
		{"or on one that is over", plan.View{Pending: true, Freed: true}, plan.Nothing},
		{"it is time for another run for those who linger", plan.View{Locked: true, Serves: true, Pending: true, Waits: true, Due: true}, plan.Run},
		{"but not during a back-off", plan.View{Locked: true, Held: true, Serves: true, Pending: true, Waits: true, Due: true}, plan.ServeWithoutRun},
		{"a back-off without a shelf", plan.View{Held: true, Pending: true, Waits: true}, plan.Nothing},
		{"a back-off with a recheck", plan.View{Held: true, Serves: true, Recheck: true, Pending: true, Waits: true}, plan.Nothing},
		{"a shelf about to end", plan.View{Serves: true, Refresh: true}, plan.Refresh},
		{"and under the lock", plan.View{Locked: true, Serves: true, Refresh: true}, plan.Refresh},
		{"a shelf that has expired, and goes on serving, takes the last slot for its refresh", plan.View{Serves: true, Stale: true, Refresh: true}, plan.Run},
		{"and under the lock", plan.View{Locked: true, Serves: true, Stale: true, Refresh: true}, plan.Run},
		{"a click on it is served first", plan.View{Locked: true, Serves: true, Stale: true, Refresh: true, Pending: true, Waits: true}, plan.ServeWithoutRun},
		{"what found too little on it waits for the run", plan.View{Locked: true, Serves: true, Stale: true, Refresh: true, Pending: true, Waits: true, Due: true}, plan.Run},
		{"a shelf about to end while somebody waits", plan.View{Locked: true, Serves: true, Refresh: true, Pending: true, Waits: true}, plan.ServeWithoutRun},
		{"paused", plan.View{Paused: true, Held: true, Serves: true, Pending: true, Waits: true, Freed: true}, plan.Nothing},
		{"deleted", plan.View{Deleted: true, Pending: true, Waits: true}, plan.CancelDeleted},
		{"deleted while paused", plan.View{Locked: true, Deleted: true, Paused: true, Held: true, Pending: true, Waits: true}, plan.CancelDeleted},
		{"deleted, and nobody waits", plan.View{Deleted: true, Serves: true}, plan.Nothing},
	} {
		if got := plan.Next(c.view); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

// FuzzNext compares Next with the conditions that it replaced in four places of the engine: first for every possible view,
// which plain go test does, too.
func FuzzNext(f *testing.F) {
	for bits := range uint16(1 << 15) {
		if got, want := nextOf(bits); got != want {
			f.Fatalf("%+v: %d, want %d", viewOf(bits), got, want)
		}
	}
	f.Add(uint16(0))
	f.Fuzz(func(t *testing.T, bits uint16) {
		if got, want := nextOf(bits); got != want {
			t.Errorf("%+v: %d, want %d", viewOf(bits), got, want)
		}
	})
}

func nextOf(bits uint16) (got, want plan.Action) {
	v := viewOf(bits)
	if v.Locked {
		return plan.Next(v), naivelyLocked(v)
	}
	return plan.Next(v), naivelyUnlocked(v)
}

// viewOf returns a view that a node can see: an inbox has no shelf, a request that asks for a run waits, and so on.
func viewOf(bits uint16) plan.View {
	bit := func(n int) bool { return bits>>n&1 == 1 }
	v := plan.View{
		Locked: bit(0), Deleted: bit(1), Paused: bit(2), Held: bit(3), Inbox: bit(4), Recheck: bit(5), Serves: bit(6),
		Pending: bit(7), Waits: bit(8), Due: bit(9), Over: bit(10), FellDue: bit(11), Freed: bit(12), Refresh: bit(13), Stale: bit(14),
	}
	v.Serves = v.Serves && !v.Inbox
	v.Stale = v.Stale && v.Serves
	v.FellDue = v.FellDue && v.Inbox
	v.Held = v.Held || v.Paused
	v.Refresh = v.Refresh && !v.Deleted && !v.Held && !v.Inbox
	v.Pending = v.Pending || v.Waits || v.Due
	v.Waits = v.Waits || v.Due
	return v
}

func naivelyServes(p plan.View) bool { return (p.Serves || p.Inbox) && !p.Paused && !p.Deleted }

func naivelyNothing(p plan.View) bool {
	return !p.Refresh && (!p.Waits || p.Paused && !p.Deleted || p.Held && (!p.Serves || p.Recheck) && !p.Deleted)
}

func naivelyUnlocked(p plan.View) plan.Action {
	if p.Over {
		return plan.EndLingering
	}
	rechecks := p.Recheck && !p.Held
	if naivelyServes(p) && (!p.Recheck || rechecks) && (p.Waits && p.Inbox || p.Waits && rechecks && !p.Due || p.Pending && (p.Freed || p.FellDue)) {
		if p.Recheck {
			return plan.Recheck
		}
		return plan.ServeWithoutRun
	}
	switch {
	case naivelyNothing(p):
		return plan.Nothing
	case !p.Waits && !p.Stale:
		return plan.Refresh
	case p.Deleted:
		return plan.CancelDeleted
	}
	return plan.Run
}

func naivelyLocked(p plan.View) plan.Action {
	switch {
	case naivelyNothing(p):
		return plan.Nothing
	case p.Deleted:
		return plan.CancelDeleted
	case p.Serves && p.Waits && (!p.Due || p.Held) && p.Recheck:
		return plan.Recheck
	case p.Serves && p.Waits && (!p.Due || p.Held):
		return plan.ServeWithoutRun
	case p.Inbox: // it was deleted when the node looked first; there is no query to run
		return plan.Nothing
	case !p.Waits && !p.Stale:
		return plan.Refresh
	}
	return plan.Run
}
