//go:build hole_leasecheck

package assign

// Both are off: until the sweep comes, who is too late is not told so.
const (
	leaseRunsIfAny = ""
	leaseRuns      = ""
)

// sweepSlowly has the sweep come a second after the last: by chance nobody could be too late in 50 ms.
const sweepSlowly = 20

func init() { holes = append(holes, "leasecheck") }
