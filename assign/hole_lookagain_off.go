//go:build !hole_lookagain

package assign

// looksAgain: after every commit, rollback and empty round this node looks at the task once more. Who was recorded
// behind the round's back has found the lock taken.
const looksAgain = true
