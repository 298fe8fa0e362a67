package rights

import (
	"context"
	"time"
)

const (
	// countEvery is how often sessions are counted. It reads all that nobody has ended, those of the last month included that
	// ended by themselves.
	countEvery = time.Minute

	countWithin = time.Second // looks for ended rights wait meanwhile
)

const countAlive = `select count(*) from getwork.session where ended_at is null and least(ends_at, idle_at) > clock_timestamp()`

// Alive returns how many sessions are alive, on all nodes, as of a minute ago.
func (w *Watch) Alive() int64 { return w.alive.Load() }

// countAlive counts them. If that fails, the former count stays.
func (w *Watch) countAlive(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, countWithin)
	defer cancel()
	var n int64
	if err := w.DB.QueryRow(ctx, w.SQL(countAlive)).Scan(&n); err != nil {
		return err
	}
	w.alive.Store(n)
	return nil
}
