package page

import (
	"fmt"
	"time"
)

// evening returns the name of a time zone in which it is past ten in the evening, between UTC-11 and UTC+12: in all of them 11:05Z
// is on the same day. Browsers run in it, since times are longest then, and what ends in two hours ends tomorrow: in another hour a
// line that is too long would pass its test.
func evening(now time.Time) string {
	east := 22 - now.UTC().Hour() // hours east of Greenwich, from -1 to 22
	if east > 12 {
		east -= 24
	}
	return fmt.Sprintf("Etc/GMT%+d", -east) // the sign of these names is POSIX's: minus is east
}
