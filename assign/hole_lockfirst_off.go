//go:build !hole_lockfirst

package assign

// readFirst is what is read before a lock: nothing. Its statement is the first of its transaction that sees anything.
const readFirst = ""
