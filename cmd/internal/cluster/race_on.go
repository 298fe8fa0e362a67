//go:build race

package cluster

// raceEnabled: the tests run with the race detector, and so do their nodes.
const raceEnabled = true
