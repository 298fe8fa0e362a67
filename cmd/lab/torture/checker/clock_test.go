package checker

import (
	"testing"
	"time"

	"getwork/cmd/lab/torture/history"
)

var clockZero = time.Date(2026, 7, 1, 9, 0, 0, 0, time.UTC)

// tickAt returns a tick: the database's clock showed that many seconds when the harness's showed this many.
func tickAt(at, now float64) *history.Tick {
	c := time.Duration(at * float64(time.Second))
	return &history.Tick{Began: c, Ended: c + time.Millisecond, Now: clockZero.Add(time.Duration(now * float64(time.Second)))}
}

// The clock's answers are true for any time, and close enough to be useful.
func TestClock(t *testing.T) {
	t.Parallel()
	c := newClock([]*history.Tick{tickAt(20, 120.002), tickAt(10, 110), tickAt(30, 130)}, nil, second(140))
	for _, at := range []float64{90, 105, 110, 113, 120, 127, 130, 140} {
		want := time.Duration((at - 100) * float64(time.Second))
		from, known := c.after(clockZero.Add(time.Duration(at * float64(time.Second))))
		if far := want - from; !known || far < 0 || far > 200*time.Millisecond {
			t.Errorf("after second %v: %v (%t), want a little before %v", at, from, known, want)
		}
		to, known := c.by(clockZero.Add(time.Duration(at * float64(time.Second))))
		if far := to - want; !known || far < 0 || far > 200*time.Millisecond {
			t.Errorf("by second %v: %v (%t), want a little after %v", at, to, known, want)
		}
	}
}

// second returns a time of the database's clock.
func second(now float64) time.Time { return clockZero.Add(time.Duration(now * float64(time.Second))) }

func jumpAt(at float64) *history.Fault {
	c := time.Duration(at * float64(time.Second))
	return &history.Fault{Kind: jump, Node: -1, Began: c, Ended: c + time.Millisecond}
}

// Nothing is known without ticks, or if the clock was set twice between two ticks, before the first, or after the last.
func TestClockThatSaysNothing(t *testing.T) {
	t.Parallel()
	ticks := []*history.Tick{tickAt(10, 110), tickAt(20, 3720)}
	for name, c := range map[string]clock{
		"no ticks":         newClock(nil, nil, second(200)),
		"no ticks, a jump": newClock(nil, []*history.Fault{jumpAt(1)}, second(200)),
		"set twice":        newClock(ticks, []*history.Fault{jumpAt(12), jumpAt(14)}, second(3730)),
		"set before":       newClock(ticks, []*history.Fault{jumpAt(9), jumpAt(14)}, second(3730)),
		"set after":        newClock(ticks, []*history.Fault{jumpAt(14), jumpAt(21)}, second(3730)),
		"set at a tick":    newClock(ticks, []*history.Fault{jumpAt(20)}, second(3730)),
	} {
		for _, at := range []float64{100, 110, 3720} {
			if _, known := c.after(second(at)); known {
				t.Errorf("%s: it is known after when it showed second %v", name, at)
			}
			if _, known := c.by(second(at)); known {
				t.Errorf("%s: it is known by when it showed second %v", name, at)
			}
			if _, known := c.reaches(second(at), 0); known {
				t.Errorf("%s: it is known when it reached second %v", name, at)
			}
		}
		if _, known := c.least(0, time.Minute); known {
			t.Errorf("%s: it is known what it showed", name)
		}
	}
}

// If the clock was set, the times between settings are known, whether or not a fault reports the settings.
func TestClockThatWasSet(t *testing.T) {
	t.Parallel()
	ticks := func() []*history.Tick {
		return []*history.Tick{tickAt(0, 100), tickAt(10, 110), tickAt(20, 3720), tickAt(30, 3730), tickAt(40, 140), tickAt(50, 150), tickAt(60, 155), tickAt(70, 165)}
	}
	for name, jumps := range map[string][]*history.Fault{
		"noticed": nil,
		"told":    {jumpAt(15), jumpAt(35), jumpAt(52)},
	} {
		c := newClock(ticks(), jumps, second(170))
		if !c.jumped() || c.blind || c.jumps() != 3 {
			t.Fatalf("%s: jumped %t, blind %t, %d times", name, c.jumped(), c.blind, c.jumps())
		}
		for _, at := range []struct{ shown, from, to float64 }{
			{105, 5, 5},
			{3725, 25, 25},
			{142, 42, 42},
			{151, 51, 56}, // twice
		} {
			from, known := c.after(second(at.shown))
			if !known || from.Seconds() > at.from || from.Seconds() < at.from-0.1 {
				t.Errorf("%s: second %v was shown after %v (%t), want %v", name, at.shown, from, known, at.from)
			}
			to, known := c.by(second(at.shown))
			if !known || to.Seconds() < at.to || to.Seconds() > at.to+0.1 {
				t.Errorf("%s: second %v was shown by %v (%t), want %v", name, at.shown, to, known, at.to)
			}
		}
		if _, known := c.after(second(2000)); known {
			t.Errorf("%s: a time that was never shown is reported", name)
		}
		for _, r := range []struct{ at, since, least, most float64 }{
			{105, 0, 4.9, 5},
			{105, 22, 21.9, 22},
			{2000, 0, 9.9, 15}, // the clock jumped over it
			{3725, 0, 24.9, 25},
			{145, 32, 31.9, 32},
			{145, 36, 36, 45}, // it may still be that late if no fault reports the setting
			{165, 55, 69.9, 70},
		} {
			got, known := c.reaches(second(r.at), time.Duration(r.since*1e9))
			if !known || got.Seconds() < r.least || got.Seconds() > r.most+0.001 {
				t.Errorf("%s: since %v it reached second %v no earlier than %v (%t), want %v to %v", name, r.since, r.at, got, known, r.least, r.most)
			}
		}
		for _, w := range []struct{ from, to, least, most float64 }{
			{3, 4, 103, 104},
			{24, 26, 3724, 3726},
			{3, 24, 103, 3724},
			{45, 65, 145, 160},
		} {
			least, known := c.least(time.Duration(w.from*1e9), time.Duration(w.to*1e9))
			if far := second(w.least).Sub(least); !known || far < 0 || far > 100*time.Millisecond {
				t.Errorf("%s: from %v to %v it showed %v at least, want %v", name, w.from, w.to, least, second(w.least))
			}
			most, known := c.most(time.Duration(w.from*1e9), time.Duration(w.to*1e9))
			if far := most.Sub(second(w.most)); !known || far < 0 || far > 100*time.Millisecond {
				t.Errorf("%s: from %v to %v it showed %v at most, want %v", name, w.from, w.to, most, second(w.most))
			}
		}
	}
}

// Reading the clock may take long, and the value may be from any moment of that time.
func TestSlowTick(t *testing.T) {
	t.Parallel()
	slow := tickAt(10, 112)
	slow.Ended = 13 * time.Second
	c := newClock([]*history.Tick{tickAt(5, 105), slow, tickAt(20, 120), tickAt(30, 3730)}, nil, second(3740))
	for at := 9.5; at < 14; at += 0.25 {
		moment := time.Duration(at * 1e9)
		least, _ := c.least(moment, moment)
		most, _ := c.most(moment, moment)
		if now := second(100 + at); least.After(now) || most.Before(now) || least.Before(now.Add(-4*time.Second)) {
			t.Errorf("at %v it showed %v to %v", moment, least, most)
		}
	}
}
