//go:build hole_sweep

package assign

// rescues is off: what nobody serves stays so.
const rescues = false

func init() { holes = append(holes, "sweep") }
