package pg

import (
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// PoolStat describes the state of a pool of connections.
type PoolStat struct {
	Name             string
	InUse, Idle, Max int
	Waits            int64         // how often a caller waited for a connection, including a new one, and got it
	Waited           time.Duration // the sum of those waits
	Failed           int64         // how often a caller gave up, or ran out of time, before they got one
}

// Stats returns the state of each pool without asking the database.
func (p *Pools) Stats() (stats []PoolStat) {
	for _, one := range []struct {
		name string
		pool *pgxpool.Pool
	}{{"api", p.API}, {"own", p.Own}, {"signals", p.Signals}, {"runs", p.Runs}, {"queries", p.Queries}} {
		if one.pool == nil {
			continue
		}
		s := one.pool.Stat()
		stats = append(stats, PoolStat{Name: one.name, InUse: int(s.AcquiredConns()), Idle: int(s.IdleConns()), Max: int(s.MaxConns()),
			Waits: s.EmptyAcquireCount(), Waited: s.EmptyAcquireWaitTime(), Failed: s.CanceledAcquireCount()})
	}
	return stats
}
