package page

import (
	"testing"
	"time"
)

func TestEvening(t *testing.T) {
	for hour := range 24 {
		now := time.Date(2026, 11, 26, hour, 30, 0, 0, time.UTC)
		name := evening(now)
		zone, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		if got := now.In(zone).Hour(); got != 22 {
			t.Errorf("at %d:30 in UTC it is %d:30 in %s, want 22:30", hour, got, name)
		}
	}
}
