package plan

// View is a task as a node sees it when it decides what to do for it next: read before any lock, or under the run lock.
type View struct {
	Locked  bool // read under the run lock
	Deleted bool
	Paused  bool
	Held    bool // back: a back-off or the delay of a retry runs
	Inbox   bool // the task has no query
	Recheck bool // what is on the shelf is rechecked before it is handed out
	Fresh   bool // the shelf can be handed out

	Pending bool // requests wait
	Waits   bool // one of them can be served
	Due     bool // one of those lingers, and asks for a run whatever the shelf says
	Over    bool // one has lingered for long enough
	FellDue bool // an item of the inbox has fallen due
	Stirred bool // something can be handed out again: serve also those who linger
	Refresh bool // the task is used, and its shelf about to end; never while it is paused, deleted or held back
}

// Action is what a node does next for a task.
type Action int

const (
	// Nothing is waiting for the next event or timer. Under the run lock: letting go of it, and asking once more.
	Nothing Action = iota
	// EndLingering is ending the requests that have lingered for long enough, and asking again without Over.
	EndLingering
	// ServeWithoutRun is a round from the inbox or the shelf.
	ServeWithoutRun
	// Recheck is rechecking the shelf, and then a round. It needs no run lock, so a node that has it lets go of it first.
	Recheck
	// Refresh is a run ahead of need, if another run slot stays free for requests that wait.
	Refresh
	// Run is a run for requests that wait. Without the run lock, Run, Refresh and CancelDeleted are taking a run slot and the
	// lock, and asking again: its last holder may have served everybody a millisecond ago.
	Run
	// CancelDeleted is cancelling the requests that were recorded beside the task's deletion.
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
	case v.Refresh && !v.Waits:
		return Refresh
	case !v.Waits, v.Inbox, v.Held && !v.Fresh:
		return Nothing
	}
	return Run
}

// servesWithoutRun reports whether what is there can go to those who wait. Under the run lock that is a fresh shelf, and Due has
// a run made even so, unless the task is held back. Without it an inbox is served, a shelf that is rechecked, and all who
// linger when something can be handed out again; a click on any other shelf takes the run lock first.
func (v View) servesWithoutRun() bool {
	if v.Locked {
		return v.Fresh && v.Waits && (!v.Due || v.Held)
	}
	again := v.Pending && (v.Stirred || v.FellDue)
	return v.Inbox && (v.Waits || again) || v.Fresh && (v.Recheck && v.Waits && !v.Due || again)
}
