package assign

import (
	"testing"
	"time"
)

func TestPace(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 25, 14, 30, 0, 0, time.UTC) // a Wednesday
	hours := func(days, from, to int) map[int64]int64 {    // ten an hour on the last days, today's whole hours included
		all := map[int64]int64{}
		for d := range days {
			for h := from; h < to; h++ {
				if at := now.Truncate(24*time.Hour).AddDate(0, 0, -d).Add(time.Duration(h) * time.Hour); at.Before(now.Truncate(time.Hour)) {
					all[hourOf(at)] = 10
				}
			}
		}
		return all
	}
	since := now.Truncate(time.Hour)
	items := func(n int64) *int64 { return &n }
	for name, one := range map[string]struct {
		worked  Worked
		items   *int64
		pace    float64
		through string
	}{
		"nothing":                        {Worked{Now: now, Since: since}, items(5), 0, ""},
		"nobody knows how many":          {Worked{Now: now, Since: since, Last: 5}, nil, 10, ""},
		"the first half hour":            {Worked{Now: now, Since: since, Last: 5}, items(20), 10, "2026-11-25 16:30"},
		"the first minute":               {Worked{Now: since.Add(time.Minute), Since: since, Last: 1}, items(1), 12, "2026-11-25 14:05"},
		"none left":                      {Worked{Now: now, Since: since, Last: 5}, items(0), 10, "2026-11-25 14:30"},
		"two days: without a break":      {Worked{Now: now, Since: since, Hours: hours(2, 9, 17)}, items(100), 10, "2026-11-26 00:30"},
		"within today":                   {Worked{Now: now, Since: since, Last: 5, Hours: hours(8, 9, 17)}, items(20), 10, "2026-11-25 16:30"},
		"over a night":                   {Worked{Now: now, Since: since, Last: 5, Hours: hours(8, 9, 17)}, items(45), 10, "2026-11-26 11:00"},
		"over more than a week":          {Worked{Now: now, Since: since, Last: 5, Hours: hours(8, 9, 17)}, items(25 + 7*80 + 10), 10, "2026-12-03 10:00"},
		"more than a year":               {Worked{Now: now, Since: since, Last: 5, Hours: hours(8, 9, 17)}, items(1_000_000), 10, ""},
		"slower in the last hours":       {Worked{Now: now, Since: since, Last: 1, Hours: map[int64]int64{hourOf(since) - 1: 2}}, nil, 2, ""},
		"only what was worked eight ago": {Worked{Now: now, Since: since, Hours: map[int64]int64{hourOf(now) - 8*24: 2}}, nil, 0, ""},
	} {
		p := one.worked.Pace(3, one.items)
		var pace float64
		var through string
		if p.PerHour != nil {
			pace = *p.PerHour
		}
		if p.ThroughAt != nil {
			through = p.ThroughAt.Format("2006-01-02 15:04")
		}
		if pace != one.pace || through != one.through || p.DoneToday != 3 {
			t.Errorf("%s: %v an hour, through at %q; want %v, %q", name, pace, through, one.pace, one.through)
		}
	}
}
