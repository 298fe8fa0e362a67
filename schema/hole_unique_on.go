//go:build hole_unique

package schema

// keepsUnique is off: in a schema that this build makes nothing refuses to have a place of an item held twice. One that is
// there already stays as it is.
const keepsUnique = false

func init() { holes = append(holes, "unique") }
