//go:build race

package cluster

// raceEnabled reports whether the tests, and so their nodes, run with the race detector.
const raceEnabled = true
