//go:build hole_assignlock

package assign

// forNoKeyUpdate is off: rounds, claims and reassignments of one task run beside each other.
const forNoKeyUpdate = ""

func init() { holes = append(holes, "assignlock") }
