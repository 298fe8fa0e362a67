package assign

import (
	"math"
	"time"
)

// Pace is how fast a task is worked on.
type Pace struct {
	DoneToday int64      `json:"done_today"` // completed since midnight, by the database's time zone
	PerHour   *float64   `json:"pace"`       // completed an hour, over the last eight hours in which anything was; nil: nothing was, for eight days
	ThroughAt *time.Time `json:"through_at"` // when the backlog is done at that pace; nil: nobody knows, or in more than a year
}

// Worked is what was completed of a task lately, by which its pace is known.
type Worked struct {
	Hours map[int64]int64 // what was completed in an hour, by its number since 1970; only hours in which anything was
	Since time.Time       // from here on Hours has nothing, and Now is the end
	Last  int64           // completed since then
	Now   time.Time
}

// hourOf returns the number of a time's hour since 1970.
func hourOf(at time.Time) int64 { return at.Unix() / 3600 }

const (
	paceHours = 8      // the hours worked that a pace is taken from
	paceDays  = 8      // how far back these are looked for
	week      = 7 * 24 // hours
)

// PerHour returns the pace; 0: nothing was completed.
func (w *Worked) PerHour() float64 {
	var done int64
	var hours float64
	if w.Last > 0 {
		done, hours = w.Last, max(w.Now.Sub(w.Since).Hours(), 1./12) // the first minutes of an hour say little
	}
	n := 0
	for h := hourOf(w.Since) - 1; h > hourOf(w.Now)-paceDays*24 && n < paceHours; h-- {
		if w.Hours[h] > 0 {
			done, hours, n = done+w.Hours[h], hours+1, n+1
		}
	}
	if hours == 0 {
		return 0
	}
	return float64(done) / hours
}

// Through returns when so many items are done at that pace, to five minutes; the zero time: in more than a year. It goes on in the hours of
// the week in which there was work a week before, so that nights and Sundays count only where people work then. Until a week is known,
// it goes on without a break.
func (w *Worked) Through(items int64, pace float64) time.Time {
	first := hourOf(w.Now)
	for h := range w.Hours {
		first = min(first, h)
	}
	known := hourOf(w.Now)-first >= week
	left, at := float64(items), w.Now
	for at.Before(w.Now.AddDate(1, 0, 0)) {
		next := at.Truncate(time.Hour).Add(time.Hour)
		back := hourOf(at) - hourOf(w.Now)
		same := hourOf(w.Now) + back%week - week // a week before, or more
		if !known || back == 0 && w.Last > 0 || w.Hours[same] > 0 {
			can := pace * next.Sub(at).Hours()
			if left <= can {
				return at.Add(time.Duration(left / pace * float64(time.Hour))).Round(5 * time.Minute)
			}
			left -= can
		}
		at = next
	}
	return time.Time{}
}

// Pace returns the pace of what was worked, and when so many items (nil: nobody knows how many) are done.
func (w *Worked) Pace(today int64, items *int64) Pace {
	p := Pace{DoneToday: today}
	perHour := w.PerHour()
	if perHour == 0 {
		return p
	}
	if items != nil {
		if at := w.Through(*items, perHour).UTC(); !at.IsZero() {
			p.ThroughAt = &at
		}
	}
	perHour = math.Round(perHour*10) / 10
	p.PerHour = &perHour
	return p
}
