package assign

// What must never happen is kept from happening by more than one thing, so that a mistake in one is no loss. To prove that
// each does its part, and that a test which says "nothing was lost" can say no, each can be switched off in a build for
// tests: by a tag hole_NAME, which chooses between the two values of a constant. In other builds nothing of it is left.
//
//	lookagain     the look after every round, one that found nothing included
//	sweep         the look every two seconds, which serves whom nobody serves
//	unique        the unique indexes of what is held (package schema)
//	assignlock    the lock under which a round reads and decides
//	lockfirst     nothing is read before the lock
//	isolation     READ COMMITTED, whatever the server's default is
//	pendingcheck  a round's writes repeat that who is answered still waits
//	forupdate     a round locks those whom it reads
//	leasecheck    a holder's writes repeat that his lease is not over
//	watchdog      a listener that hears nothing of its own echo is given up (package notify)
//
// They are in pairs, and what one lets through the other holds; leasecheck and watchdog stand alone. But
//
//   - any other look at the task, by a click, a closing, a change or a refresh, serves all who wait: a wake-up is lost only
//     until then;
//   - the indexes cover that nobody holds what another holds. What was put off or is never to return, four eyes and max_open
//     are kept by the assign lock alone;
//   - nothing covers the level but, now and then, PostgreSQL: above READ COMMITTED it refuses to change a row that was changed
//     since. A lock that had to wait comes with what was true when the waiting began, so to have it first helps only where it
//     was free; and no run ends, since it does not see its own row.
var holes []string

// Holes names the defences that were switched off by build tags (hole_sweep and others): none, but in builds for tests.
func Holes() []string { return holes }
