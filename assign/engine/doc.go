// Package engine hands out work: many users click at about the same time, one heavy query runs for all of them, and all
// get items of their own.
//
// # The steps
//
// A click goes through these steps, each in a function of its own:
//
//  1. Record (record.go; record_insert.go has the statement). The request is inserted and committed before any lock is
//     tried. Clicks that come while the node's last transaction for the task is in flight are recorded together.
//  2. Lock (runlock.go, runLock). A new transaction begins with
//     select … from task where id = $1 for no key update skip locked.
//  3. Busy. If no row comes back, another session runs the query. The click is answered "pending"; its result is pushed,
//     or found by asking again.
//  4. Look (runlock.go, underLock). A free lock is no reason to run: its last holder may have served us. A later
//     statement reads the waiting requests, the shelf and the settings, and [plan.Next] decides.
//  5. Run (run.go; package ranking). The query runs on the lock's own connection, under a savepoint, read only, with a time
//     limit and the query role's rights. With a query database it runs there.
//  6. Assign (round.go). The assign lock is taken. A later statement reads all requests that wait by now, including those
//     that came during the query. Package plan decides. Work, requests and the task's state are written, one NOTIFY last.
//  7. Push (package feed). Every node hears the NOTIFY, reads the round's rows once, and delivers to each holder their own.
//     The bytes leave in ws/writers.go, or in web/events.go for server-sent events.
//  8. Look again (serve.go, runServeLoop). After every commit: a request that was recorded after step 6 had read, and found
//     the lock taken before it was free, is on nobody's list.
//  9. Rescue (rescuer.go). Every node looks every two seconds for requests that nobody serves, because their node died
//     between 1 and 2, or the holder of the lock did. While a run is under way it looks more often whether the run is alive.
//
// Which of these a node does next for a task is decided by one pure function, [plan.Next]. The loop around it is serve.go,
// a single pass is serve_once.go, and what it reads is taskview.go. The node's slots for queries are runslots.go.
//
// While a shelf is fresh, leftovers of the last run are handed out in the click's own transaction: steps 1 and 6 at once
// (inlinerequests.go). The answer is built from what was written, so nothing is read again. While such a task is in use, its
// next run starts before the shelf ends (refresh.go). If a task has a recheck, it is asked whether the best of the shelf
// still match, before the assign lock is taken (shelfrecheck.go).
//
// # Two locks, one order
//
// The run lock is the row of task, which is never updated, so nothing waits behind a query. The assign lock is the row of
// task_state, held for milliseconds. Every transaction that makes a work row held takes it, and a pause, a change or a
// deletion is decided under it. Every transaction takes locks in one order: run lock, assign lock, rows of work_requested by
// id, rows of work by id, audit_head. Inserts of requests are sorted by holder. What managers do is audited in its own
// transaction (transact.go).
//
// # States of a request
//
//	pending ──► assigned    all that was wanted          (n, n)
//	        ──► partial     less, which was all there is (m, m)
//	        ──► none        nothing, and why             (0, 0)
//	        ──► failed      the query failed             (0, 0)
//	        ──► cancelled   by its owner, or with what   (0, 0)
//	                        they came in with
//
// The numbers are requested and assigned; while a request waits they are (n, 0). Nothing leaves an ended state.
//
// # States of work
//
//	held ──► completed               done
//	     ──► returned                back after 0-72 h, to all or to others
//	     ──► failed, or never        back after the back-off; never once its attempts are used up
//	     ──► expired, or never       its lease ran out: back at once, an attempt used
//	     ──► never                   not again, until it is redriven
//	     ──► reassigned              another holder's, who has a row of their own
//
// Each transition is one write that repeats what it relies on. If several meet on a row, one of them changes it.
//
// # Without a run
//
// An inbox (supply_inbox.go) has items of its own, and is served under the assign lock alone. A claim (claim.go,
// supply_item.go) takes one named item. Items that become free or fall due are handed to lingering requests at once
// ([Engine.WakeLingering]). Every node sweeps leases that have run out (lease.go).
//
// # Credentials that have ended
//
// A request is bound to the credential that its user showed, and is valid until that credential expires (credential.go). The
// transaction that ends a credential also cancels the requests that wait under it ([Engine.EndCredentials]). Every node looks
// for requests that committed beside it ([Engine.CancelEnded], endrequest.go). A round checks the credentials of those whom it
// would serve under the assign lock, so it is right even if the other two are late. A user who asks again, or logs in again,
// gets the same request, which is then bound to the newer credential.
//
// # What is promised
//
// An item is held by no more holders than it has places, and by a holder at most once: unique indexes enforce it, and the
// code only avoids violating them. While a run of a task executes, no other starts. Every accepted request ends. Requests
// are served in the order of their ids, each with the best items that it may have. Every answer is committed before it is
// given. A lost NOTIFY, listener or socket costs only time.
//
// # Whose fault
//
// An error of the query itself, its time-out included, ends its requests as failed, and new clicks fail at once until
// a back-off is over. A lost connection, a full disk or getwork's own cancel leaves them pending; the run is repeated after
// 1, 2, 4 … 30 s. See [pg.QueryFault].
package engine
