package assign

import (
	"database/sql/driver"
	"encoding/json"
	"fmt"
	"strconv"
	"time"
)

// Duration is a [time.Duration] whose JSON is text in the largest exact unit: "90s", "2m", "24h".
type Duration time.Duration

func (d Duration) String() string {
	t := time.Duration(d)
	for _, unit := range []struct {
		size time.Duration
		name string
	}{{time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}, {time.Millisecond, "ms"}, {time.Microsecond, "µs"}} {
		if t != 0 && t%unit.size == 0 {
			return strconv.FormatInt(int64(t/unit.size), 10) + unit.name
		}
	}
	return t.String()
}

// MarshalJSON writes the duration as text.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(d.String()) }

// UnmarshalJSON reads text that [time.ParseDuration] accepts.
func (d *Duration) UnmarshalJSON(b []byte) error {
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return fmt.Errorf(`a duration is text such as "90s" or "24h", not %s`, b)
	}
	return d.UnmarshalText([]byte(s))
}

// UnmarshalText reads text that [time.ParseDuration] accepts.
func (d *Duration) UnmarshalText(b []byte) error {
	t, err := time.ParseDuration(string(b))
	if err != nil {
		return fmt.Errorf(`a duration is a number with a unit, such as "90s", "2m" or "24h", not %q`, b)
	}
	*d = Duration(t)
	return nil
}

// Value implements [driver.Valuer]. It returns whole microseconds, which every protocol mode sends alike. SQL turns them
// into an interval: $1::bigint * interval '1 microsecond'.
func (d Duration) Value() (driver.Value, error) { return d.Microseconds(), nil }

// Scan implements [database/sql.Scanner]. It reads whole microseconds, (extract(epoch from …) * 1000000)::bigint. An
// interval as text would depend on the server's IntervalStyle.
func (d *Duration) Scan(src any) error {
	n, ok := src.(int64)
	if !ok {
		return fmt.Errorf("a duration is read from whole microseconds, not %T", src)
	}
	*d = Microseconds(n)
	return nil
}

// Microseconds returns the duration of n microseconds.
func Microseconds(n int64) Duration { return Duration(time.Duration(n) * time.Microsecond) }

// Microseconds returns the duration in whole microseconds.
func (d Duration) Microseconds() int64 { return time.Duration(d).Microseconds() }

// TimeText formats a time for refusals and explanations.
func TimeText(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

// UTC returns the time in UTC, as the API shows times; nil for nil.
func UTC(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	u := t.UTC()
	return &u
}
