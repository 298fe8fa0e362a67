package torture

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/cmd/lab/torture/history"
)

// storm carries out the plan.
type storm struct {
	*stage
	ctx      context.Context // ends when everything is to be healed
	scenario Scenario
	seen     *sampler
	work     sync.WaitGroup

	setting sync.Mutex    // held by a fault of the clock
	closing sync.Mutex    // held while the provider is away
	set     history.Clock // when the clock was set last
	turns   int           // how often the nodes were upgraded

	mu      sync.Mutex
	struck  map[string]int
	skipped int // faults for which no node could be spared, or the target was broken already
}

// run breaks things until the context ends, and returns when everything is healed again.
func (s *storm) run() {
	if s.scenario.beside != nil {
		s.work.Go(s.besides)
	}
	if s.o.faults() {
		s.rage()
	}
	<-s.ctx.Done()
	s.work.Wait()
}

func (s *storm) rage() {
	for p := newPlan(s.o); ; {
		next := p.next()
		if !s.pause(next.after) {
			return
		}
		s.work.Go(func() { next.kind.strike(s, next) })
	}
}

// besides runs the scenario's own events beside the faults, again and again. It ends the current one when everything is
// to be healed.
func (s *storm) besides() {
	rng := rand.New(rand.NewPCG(s.o.Seed, drawsBeside))
	for s.pause(s.scenario.rest) {
		s.scenario.beside(s, s.stage.ctx, rng)
	}
}

// pause waits. It returns false if the storm is over.
func (s *storm) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-s.ctx.Done():
		return false
	}
}

// strike breaks something, undoes it after some time, and records it.
func (s *storm) strike(f planned, node int, note string, do, undo func()) {
	began := s.rec.Now()
	do()
	s.count(f.kind.Name)
	s.pause(f.lasts)
	undo()
	s.record(f.kind.Name, node, began, note)
}

func (s *storm) record(kind string, node int, began history.Clock, note string) {
	s.rec.Add(history.Entry{Fault: &history.Fault{Kind: kind, Node: node, Began: began, Ended: s.rec.Now(), Note: note}})
}

func (s *storm) count(kind string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.struck[kind]++
}

func (s *storm) skip() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.skipped++
}

const someBackends = `
select count(pg_terminate_backend(pid))
from (
  select pid from pg_stat_activity
  where application_name like 'torture-%'
  order by md5(pid::text || $1::bigint::text)
  limit $2::bigint) b`

// terminate terminates some of getwork's backends, chosen at random, as an administrator does.
func (s *storm) terminate(f planned) {
	began := s.rec.Now()
	ctx, cancel := context.WithTimeout(s.ctx, 5*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.url)
	if err != nil {
		s.skip() // the database can't be reached
		return
	}
	defer conn.Close(ctx)
	var n int
	for _, m := range s.members {
		m.touched.Add(1)
	}
	err = conn.QueryRow(ctx, someBackends, int64(f.chance>>1), 1+f.chance%4).Scan(&n)
	for _, m := range s.members { // a start that began in between may have lost its connection, too
		m.touched.Add(1)
	}
	if err != nil || n == 0 {
		s.skip()
		return
	}
	s.count(f.kind.Name)
	s.record(f.kind.Name, -1, began, "")
}
