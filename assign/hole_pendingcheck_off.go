//go:build !hole_pendingcheck

package assign

// stillPending is what a round's writes repeat of the requests r that it ends: a cancel that was answered meanwhile stays one.
const stillPending = " and r.state = 'pending'"
