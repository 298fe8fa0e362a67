// Package engine hands out work: many people click at about the same time, one heavy query runs for all of them, and
// everybody gets his own items.
//
// # The steps
//
// A click goes through these, each in a function of its own:
//
//  1. Record (record.go). The request is inserted, and committed, before any lock is tried. Clicks that come while
//     the node's last transaction for the task is in flight are recorded together.
//  2. Lock (look.go, runLock). A new transaction, whose first statement is
//     select … from task where id = $1 for no key update skip locked.
//  3. Busy. No row: somebody else runs the query. The click is answered "pending"; its result is pushed, or found by
//     asking again.
//  4. Look (look.go, underLock). A free lock is no reason to run: its last holder may have served us. A later
//     statement reads who waits, the shelf, and the settings.
//  5. Run (run.go, rank.go). The query runs on the lock's own connection, under a savepoint, read only, with a time
//     limit and the query role's rights. With a query database it runs there (replica.go).
//  6. Assign (round.go). The assign lock is taken; a later statement reads everybody who waits by now, also those who
//     came during the query; package plan decides; work, requests and the task's state are written, one NOTIFY last.
//  7. Push (feed.go). Every node hears the NOTIFY, reads the round's rows once, and delivers to each his own.
//  8. Look again (look.go, look). After every commit: who was recorded after step 6 had read, and found the lock taken
//     before it was free, is in nobody's list.
//  9. Every node looks every two seconds for requests that nobody serves (orphan.go): their node died
//     between 1 and 2, or its holder did. While a run is under way it looks more often, whether the run is alive.
//
// While a shelf is fresh, leftovers of the last run are handed out in the click's own transaction: steps 1 and 6 at once
// (served.go). What was written is the answer; nothing is read again. While such a task is used its next run starts before
// the shelf ends (refresh.go), and a task that has a recheck is asked, before the assign lock is taken, whether the best of
// the shelf still match (matching.go).
//
// # Two locks, one order
//
// The run lock is the row of task, which is never updated: nothing waits behind a query. The assign lock is the row of
// task_state, held for milliseconds: whoever makes a work row held has it, and a pause, a change or a deletion is
// decided under it. Every transaction takes them in one order: run lock, assign lock, rows of work_requested by id,
// rows of work by id. Inserts of requests are sorted by holder.
//
// # States of a request
//
//	pending ──► assigned    all that was wanted          (n, n)
//	        ──► partial     less, which was all there is (m, m)
//	        ──► none        nothing, and why             (0, 0)
//	        ──► failed      the query failed             (0, 0)
//	        ──► cancelled   by its owner                 (0, 0)
//
// The numbers are requested and assigned; while it waits they are (n, 0). Nothing leaves an ended state.
//
// # States of work
//
//	held ──► completed               done
//	     ──► returned                back after 0-72 h, to all or to others
//	     ──► failed, or never        back after the back-off; never once its attempts are used up
//	     ──► expired, or never       its lease ran out: back at once, an attempt used
//	     ──► never                   not again, until it is redriven
//	     ──► reassigned              another's, who has a row of his own
//
// Each transition is one write that repeats what it relies on: of several that meet on a row, one touches it.
//
// # Without a run
//
// An inbox (inbox.go) has items of its own, and is served under the assign lock alone. A claim (claim.go) takes one named
// item. What becomes free or falls due is handed to those who linger at once (Stir). Leases that run out are swept by
// every node (lease.go).
//
// # What is promised
//
// An item is held by no more holders than it has places, and by a holder at most once: unique indexes say so, the code
// only avoids running into them. While a run of a task executes, no other starts. Every accepted request ends. Requests
// are served in the order of their ids, each with the best items that it may have. What was answered is committed. A lost
// NOTIFY, listener or socket costs time only.
//
// # Whose fault
//
// An error of the query itself, its time-out included, ends its requests as failed, and new clicks fail at once until
// a back-off is over. A lost connection, a full disk or our own cancel leaves them pending; the run is repeated after
// 1, 2, 4 … 30 s. See queryFault.
package engine
