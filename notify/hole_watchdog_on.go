//go:build hole_watchdog

package notify

// watchesSilence is off: a frozen connection is listened to for ever.
const watchesSilence = false

func init() { holes = append(holes, "watchdog") }
