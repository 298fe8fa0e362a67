package torture

import (
	"context"
	"time"

	"getwork/cmd/lab/torture/history"
)

// jumps is the kind of fault that sets the database's clock. The checker knows it by this name. The nodes' clocks do
// not matter: getwork uses only the database's, and Go's timers use one that nobody sets.
const jumps = "clock"

// jump sets the database's clock forward or back by up to two hours and, in three cases of four, sets it right later.
func (s *storm) jump(f planned) {
	if !s.setting.TryLock() {
		s.skip()
		return
	}
	defer s.setting.Unlock()
	by := between(float64(f.chance>>12)/(1<<52), time.Second, 2*time.Hour)
	if f.chance&1 == 0 {
		by = -by
	}
	if !s.setClock(s.ctx, by) {
		s.skip() // the database can't be reached
		return
	}
	s.count(f.kind.Name)
	if f.chance&6 == 0 {
		return
	}
	s.pause(f.lasts)
	ctx, cancel := context.WithTimeout(s.stage.ctx, 30*time.Second)
	defer cancel()
	s.setClock(ctx, 0)
}

// setClock sets the clock, after it has been read since the last setting: otherwise the checker could not know what it
// showed in between. It returns false if the clock could not be read.
func (s *storm) setClock(ctx context.Context, ahead time.Duration) bool {
	if !s.seen.awaitTick(ctx, s.set) {
		return false
	}
	began := s.rec.Now()
	s.clock.Set(ahead)
	note := "right"
	if ahead != 0 {
		note = ahead.Round(time.Millisecond).String()
	}
	s.record(jumps, -1, began, note)
	s.set = s.rec.Now() // a tick that is recorded before this may show either time
	return true
}

// awaitTick waits until the clock has been read since the last setting. It returns false if ctx ends first.
func (s *sampler) awaitTick(ctx context.Context, since history.Clock) bool {
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	for {
		s.mu.Lock()
		ticked := s.ticked
		s.mu.Unlock()
		if ticked > since {
			return true
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return false
		}
	}
}
