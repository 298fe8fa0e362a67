//go:build hole_pendingcheck

package assign

// stillPending is off: a round ends what it has read, whatever has become of it.
const stillPending = ""

func init() { holes = append(holes, "pendingcheck") }
