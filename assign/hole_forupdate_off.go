//go:build !hole_forupdate

package assign

// forUpdate has a round lock the requests that it reads until it commits: a cancel that comes later finds them answered.
const forUpdate = "\nfor update"
