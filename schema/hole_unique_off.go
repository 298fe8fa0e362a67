//go:build !hole_unique

package schema

// keepsUnique: the indexes of what is held are unique, and have the last word.
const keepsUnique = true
