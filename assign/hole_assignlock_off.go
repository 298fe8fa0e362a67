//go:build !hole_assignlock

package assign

// forNoKeyUpdate has a round lock the task's state before it reads what the lock protects.
const forNoKeyUpdate = "\nfor no key update"
