//go:build !hole_leasecheck

package assign

// What a holder's writes repeat of the work w: its lease is not over. Dispositions may meet work without one, extensions
// do not.
const (
	leaseRunsIfAny = " and (w.lease_expires_at is null or w.lease_expires_at > clock_timestamp())"
	leaseRuns      = " and w.lease_expires_at > clock_timestamp()"
)

// sweepSlowly is by how much the sweep is slowed down, which takes work away when its lease is over: not at all.
const sweepSlowly = 1
