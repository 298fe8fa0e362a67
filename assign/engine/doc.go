// Package engine hands out work: many users click at about the same time, one heavy query runs for all of them, and all
// get items of their own.
//
// # The steps
//
// A click goes through these steps:
//
//  1. Record (record.go, recordBatch). The request is inserted and committed before any lock is tried. Clicks that come while
//     the node's last transaction for the task is in flight are recorded together. With a fresh shelf, 1 and 6 are one transaction;
//     while it is in hot use, a batch waits a millisecond for others, and takes in who comes while it waits for its lock.
//  2. Lock (run.go, runLock). A new transaction begins with
//     select … from task where id = $1 for no key update skip locked.
//  3. Busy. If no row comes back, another session runs the query. The click is answered "pending"; its result is pushed,
//     or found by asking again.
//  4. Look (run.go, underLock). A free lock is no reason to run: its last holder may have served us. A later
//     statement reads the waiting requests, the shelf and the settings, and [plan.Next] decides.
//  5. Run (run.go, runQuery; package ranking). The query runs on the lock's own connection, under a savepoint, read only, with
//     a time limit and the query role's rights. With a query database it runs there.
//  6. Assign (round.go, serve and write). The assign lock is taken. Later statements read who waits by now (waiting.go), including those who
//     came during the query, and of those who linger as many as there is something for. Package plan decides. Work, requests and
//     the task's state are written, one NOTIFY last.
//  7. Push (package feed). Every node hears the NOTIFY, reads the round's rows once, and delivers to each holder their own.
//     The bytes leave in ws/socket.go (write), or in web/events.go for server-sent events.
//  8. Look again (serve.go, runServeLoop). After every commit: a request that was recorded after step 6 had read, and found
//     the lock taken before it was free, is on nobody's list.
//  9. Rescue (rescuer.go, rescueOnce). Every node reads every two seconds which requests nobody serves, because their node died
//     between 1 and 2, or the holder of the lock did. While a run is under way it checks more often whether the run is alive.
//
// Which of these a node does next for a task is decided by one pure function, [plan.Next]. The loop around it, a single pass
// and what it reads are serve.go. The node's slots for queries are slots.go; previews, explanations and claims have one of
// their own there.
//
// While a shelf is fresh, leftovers of the last run are handed out in the click's own transaction: steps 1 and 6 at once
// (inlinerequests.go). The answer is built from what was written, so nothing is read again. While such a task is in use, its
// next run starts before the shelf ends (refresh.go). If a task has a recheck, it is asked whether the best of the shelf
// still match, before the assign lock is taken (supply.go).
//
// # Two locks, one order
//
// The run lock is the row of task, which is never updated, so nothing waits behind a query. The assign lock is the row of
// task_state, held for milliseconds. Every transaction that makes a work row held takes it, and a pause, a change or a
// deletion is decided under it. Their SQL is runLock (run.go) and lockAssign (round.go); managers take the same rows in package manage.
// Every transaction takes locks in one order: run lock, assign lock, rows of work_requested by id, new rows of work by user and seat,
// rows of work by id, the inbox's items after their work, audit_head. Inserts of requests are sorted by holder. The sweep of leases takes requests after work, but
// skips those that are locked.
//
// # States of a request
//
//	pending ──► assigned    all that was wanted          (n, n)
//	        ──► partial     less, which was all there is (m, m)
//	        ──► none        nothing, and why             (0, 0)
//	        ──► failed      the query failed             (0, 0)
//	        ──► cancelled   by somebody, or with what    (0, 0)
//	                        it stood on
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
// An inbox (inbox.go) has items of its own, and is served under the assign lock alone. A claim (claim.go) takes one named item;
// could.go says, without the lock, whom a claim would give it. Items that become free or fall due are handed to lingering requests at
// once ([Engine.WakeLingering]). Every node sweeps leases that have run out (lease.go).
//
// # Above
//
// What managers do to tasks and to work is package manage, why an item is not handed out is package explain, and the removal of old
// rows is package tidy. This package imports none of them.
//
// # Credentials that have ended
//
// A request is bound to the credential that its user showed, and is valid until that credential expires (credential.go). The
// transaction that ends a credential also cancels the requests that wait under it ([Engine.EndCredentials]). Every node checks
// for requests that committed beside it ([Engine.CancelEnded], endrequest.go). A round checks the credentials of those whom it
// would serve under the assign lock, so it is right even if the other two are late. A user who asks again, or logs in again,
// gets the same request, which is then bound to the newer credential.
//
// # Absence
//
// Whoever is away has no room in a round ([plan.Away]). What they wait for and hold when it begins is in away.go.
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
//
// # Races
//
// ARCHITECTURE.md has the thirteen that define the design. These are the others, each with its defence and its test:
//
//   - The node that should free an expired lease dies or freezes. There is no leader: every node sweeps, with skip locked, and
//     the database's clock decides. TestThreeNodesExpireOnce, TestFrozenNode
//   - Something becomes free while people linger, and nobody serves them. The node that frees it wakes the task. If that node
//     dies first, the look_after of their requests finds it later. TestLingeringIsServedByEvent
//   - A program was killed, and its waiting request is given its old item, lease after lease. The sweep that ends a program's
//     lease ends its pending request, too. TestWhatASilentProgramWaitsForEndsWithItsLease
//   - A server's default isolation level shows a transaction the database as it was before its lock. The level is set with
//     begin, and a statement of its own reads who waits. TestOtherIsolationDefaults
//   - Runs hold all of a pooler's connections, and each waits for one more. Where pools share a pooler, a node begins one run
//     at a time. TestPoolerWithFewConnections
//   - A node admits clicks by settings that it remembers, and the task was changed, renamed or deleted on another. The assign
//     lock's answer has name and version. If they differ, the clicks are admitted again by settings that are read.
//     TestRememberedTaskIsConfirmed
//   - A batch waits for its lock. Those who come meanwhile join it if what the node remembers of the task admits them, and what is
//     read after the lock confirms that; their keys and credentials are read after it, too. Those whose callers have gone meanwhile
//     are left out. Its lock is a round's, with those of conflicting tasks. TestClicksJoinABatchThatWaits,
//     TestCallersGoWhileTheirBatchWaits, TestTaskChangesWhileABatchWaits, TestLateBatchBesideAConflictingTask
//   - A constraint refuses the plan of a round that records clicks. The round has no savepoint, so its transaction begins again,
//     behind those who have waited for its lock meanwhile. TestRefusedClickBeginsAgain
//   - A batch of clicks has inserted a request that a round waits for, and would now move another, which that round has
//     locked, to a new log-in. The batch is given up, the request is moved in a transaction of its own, and the batch begins
//     again. TestAskingAgainRebinds
//   - The cancellation of what an ended credential left finds a request whose user asks again with a new log-in. Its write
//     repeats the credential and the time that it found. TestAskingAgainBesideTheLook
//   - Two batches of clicks deadlock on each other's holders. Inserts are sorted by holder, on every node.
//     TestBatchesInOppositeOrder
//   - Rounds of two tasks, which share no lock, each give one user the last item that a limit over all tasks leaves. Users have
//     seats (quota.go), and a unique index lets one round have a seat; the other plans again. TestLimitOverTwoTasks
//   - Two such rounds deadlock on each other's users. New work with seats is sorted by user and seat. TestSeatsInOppositeOrder,
//     TestSubstitutesBesideARound
//   - The same click is recorded twice. A unique index allows one pending request per holder and task, and one request per
//     key. TestOnePendingRequest, TestIdempotencyKeyRaces
//   - After a restore or a fail-over, transaction ids start elsewhere, and every closing seems older than the shelf's run. A
//     run records its cluster's system identifier and timeline; in another life its shelf is not fresh.
//     TestTransactionsOfAFormerServer
//   - Items that were handed out while the query ran are on its shelf, and the first round would look each of them up under
//     the assign lock. They are left out once more after the candidates were copied. TestNewShelfLacksWhatIsGone
//   - A round that has the assign lock has read that somebody is here, and commits after their absence began. It was right: what it gave
//     is found by its condition, and treated as what they held before. So is what a dead node left (away.go). TestClickBesideAnAbsence,
//     TestAbsenceIsTreatedByAnyNode
//   - A lease of 30 s that is given after a query of 31 s is born expired. Times come from clock_timestamp(); now() has stood
//     still since the lock. TestTimesCountFromTheEndOfTheQuery
//   - A round was woken for a returned item, and a click that comes first takes the item from somebody who lingers and was not
//     read. A round plans for those up to the first of them whom it has not read. If anything is left, it reads on.
//     TestTheLongestLineIsServedInOrder
//   - Two busy tasks take the run slots again and again. A slot that becomes free goes to the task whose oldest request was
//     due first; a task that has just run queues behind all that waited by then. The database is asked which is next, so the
//     slot can go to a task that this node has not heard of. TestAPlaceGoesToWhoHasWaitedForLongest
//   - A refresh takes the last run slot, and waiting requests can't run. It takes a slot only if another stays free.
//     TestRefreshLeavesAPlace
//   - Something on the shelf no longer matches. The recheck is asked before the assign lock is taken. A round that needs more
//     than was rechecked begins again. TestRecheckOnTheShelf
//
// # Costs
//
// What a click, a completion or a sweep costs does not grow with the history, because held work, work that is put off and work
// that is over are in partial indexes of their own (TestOneItemsHistoryIsNotRead, TestWorkHistoryByIndex;
// BenchmarkLife). A reader that wants both held and closed work asks for both in one statement: work that is
// closed between two could be seen by neither.
//
// Rounds are slow, under the assign lock, where rules keep a user from tens of thousands of items, or an item from thousands
// who linger; where thousands who linger are put off at once; and where tens of thousands of full items stand before the first
// free one.
package engine
