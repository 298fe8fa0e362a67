//go:build hole_lookagain

package assign

// looksAgain is off: who found the lock taken after its holder had read who waits is in nobody's list.
const looksAgain = false

func init() { holes = append(holes, "lookagain") }
