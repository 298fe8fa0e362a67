//go:build !race

package cluster

// raceEnabled: the tests run without the race detector, and so do their nodes.
const raceEnabled = false
