package bulk

import (
	"fmt"
	"strings"
	"time"
)

// zones, dates and hours are the parts of a time as PostgreSQL prints it: in the DateStyle ISO and as JSON, and in the styles
// Postgres and German if the zone is an offset or UTC. Offsets of long ago have seconds. Go reads fractions of a second by itself.
var (
	zones = []string{"Z07", "Z07:00", "Z07:00:00", "Z0700"}
	dates = []string{"2006-01-02 15:04:05", "2006-01-02T15:04:05", "2006-01-02 15:04", "2006-01-02T15:04", "2006-01-02", "2.1.2006 15:04:05", "Mon Jan 2 15:04:05 2006", "Mon 2 Jan 15:04:05 2006"}
)

// Moment reads a time that has a zone. It never guesses one: the machine that pushes a file may be in another than the one that wrote it.
func Moment(text string) (time.Time, error) {
	text = strings.TrimSpace(text)
	numeric := text
	for _, utc := range []string{" UTC", " GMT"} {
		if rest, ok := strings.CutSuffix(text, utc); ok {
			numeric = rest + "Z"
		}
	}
	if i := strings.LastIndexByte(numeric, ' '); i > 0 && strings.ContainsAny(numeric[i+1:i+2], "+-") {
		numeric = numeric[:i] + numeric[i+1:]
	}
	for _, date := range dates {
		for _, zone := range zones {
			t, err := time.Parse(date+zone, numeric)
			if err != nil {
				continue
			}
			if t = t.UTC(); t.Year() < 0 || t.Year() > 9999 { // JSON has no others
				return t, fmt.Errorf("the year of %q is not one from 0 to 9999", text)
			}
			return t, nil
		}
		if _, err := time.Parse(date, text); err == nil {
			return time.Time{}, fmt.Errorf("%q has no zone; write it with one, such as 2030-01-31 08:00:00+01 (in PostgreSQL: as timestamptz)", text)
		}
	}
	return time.Time{}, fmt.Errorf("it must be a time with its offset, such as 2030-01-31T08:00:00Z or 2030-01-31 08:00:00+01, not %q; PostgreSQL prints such times after `set datestyle to iso`", text)
}
