//go:build hole_lockfirst

package assign

// readFirst fixes what a transaction sees, where the level is one that fixes it, half a second before it has its lock.
const readFirst = " cross join (select pg_sleep(0.5)) early"

func init() { holes = append(holes, "lockfirst") }
