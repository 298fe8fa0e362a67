//go:build !hole_watchdog

package notify

// watchesSilence: a connection on which echoes were sent and nothing is heard is given up.
const watchesSilence = true
