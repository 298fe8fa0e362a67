//go:build hole_isolation

package assign

// isolationLevel is off: the server's default decides.
const isolationLevel = ""

func init() { holes = append(holes, "isolation") }
