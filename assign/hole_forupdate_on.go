//go:build hole_forupdate

package assign

// forUpdate is off: a request can be cancelled between the reading and the writing of the round.
const forUpdate = ""

func init() { holes = append(holes, "forupdate") }
