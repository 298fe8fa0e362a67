package plan

// View is a task as a node sees it when it decides what to do for it next: read before any lock, or under the run lock.
type View struct {
	Locked  bool // read under the run lock
	Deleted bool
	Paused  bool
	Held    bool // held back: a back-off or the delay of a retry runs
	Inbox   bool // the task has no query
	Recheck bool // the shelf's candidates are rechecked before they are handed out
	Serves  bool // the shelf can be handed out
	Stale   bool // although it has expired: Serves is true, too

	Pending bool // requests wait
	Waits   bool // one of them can be served
	Due     bool // one of those lingers, and asks for a run whatever the shelf has
	Over    bool // a request has lingered for long enough
	FellDue bool // an item of the inbox has fallen due
	Freed   bool // something can be handed out again: serve lingering requests, too
	Refresh bool // the task is in use, and its shelf about to end; never while it is paused, deleted or held back
}

// Action is what a node does next for a task.
type Action int

const (
	// Nothing waits for the next event or timer. Under the run lock, the node releases it and asks once more.
	Nothing Action = iota
	// EndLingering ends the requests that have lingered for long enough. The node then asks again without Over.
	EndLingering
	// ServeWithoutRun starts a round from the inbox or the shelf.
	ServeWithoutRun
	// Recheck rechecks the shelf, and then starts a round. It needs no run lock, so a node that has it releases it first.
	Recheck
	// Refresh starts a run ahead of need, if another run slot stays free for waiting requests.
	Refresh
	// Run starts a run for waiting requests, or to replace a shelf that goes on serving although it has expired. For Run, Refresh and
	// CancelDeleted a node without the run lock takes a run slot and the lock, and asks again: the lock's last holder may have served everybody a millisecond ago.
	Run
	// CancelDeleted cancels requests that were recorded while the task was deleted.
	CancelDeleted
)

// Next decides what a node does next for a task.
func Next(v View) Action {
	switch {
	case v.Over && !v.Locked:
		return EndLingering
	case v.Deleted && v.Waits:
		return CancelDeleted
	case v.Deleted, v.Paused, v.Recheck && v.Held: // a recheck is a query, too
		return Nothing
	case v.servesWithoutRun() && v.Recheck:
		return Recheck
	case v.servesWithoutRun():
		return ServeWithoutRun
	case v.Refresh && v.Stale && !v.Waits: // soon requests will wait for it
		return Run
	case v.Refresh && !v.Waits:
		return Refresh
	case !v.Waits, v.Inbox, v.Held && !v.Serves:
		return Nothing
	}
	return Run
}

// servesWithoutRun reports whether waiting requests can be served without a run. Under the run lock a fresh shelf serves
// them; if one is Due, a run is needed even so, unless the task is held back. Without the lock an inbox serves them, and a
// shelf with a recheck; and lingering requests are served when something can be handed out again. A click on any other
// shelf takes the run lock first.
func (v View) servesWithoutRun() bool {
	if v.Locked {
		return v.Serves && v.Waits && (!v.Due || v.Held)
	}
	again := v.Pending && (v.Freed || v.FellDue)
	return v.Inbox && (v.Waits || again) || v.Serves && (v.Recheck && v.Waits && !v.Due || again)
}
