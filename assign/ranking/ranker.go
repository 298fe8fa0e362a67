package ranking

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"getwork/assign"
	"getwork/assign/pg"
	"getwork/assign/records"
)

// Config is what a Ranker needs.
type Config struct {
	DB      pg.Router           // for getwork's own statements
	Records *records.Records    // the tasks' settings
	Runs    *pgxpool.Pool       // connections of runs, one for each run slot
	Queries *pgxpool.Pool       // where ranking queries run; nil: on the run lock's own connection
	SQL     func(string) string // puts the schema's name into a statement
	Watch   *pg.ClientWatch     // makes the server notice, during a query, that its node has died

	MaxDetails int64         // bytes of details of one run's result; 0: 256 MiB
	PlanWithin time.Duration // for a query that is tried, of which half for a lock; 0: 10 s

	Confined  bool   // refuse queries that name a volatile function; see boundary.go
	QueryRole string // entered with "set local role" for ranking queries; empty: none
	Channel   string // of NOTIFY: names the installation

	// Previewing is called before the query of a preview reaches the database; an error refuses the preview. A task that does
	// not exist yet has no name. nil: nobody asks.
	Previewing func(ctx context.Context, task string, s *assign.Settings) error

	// WithSlot calls f with one of the node's run slots, and waits for it at most as long as wait; 0: not at all. Without a slot it
	// does not call f, and refuses with [assign.Busy], or with [assign.Unavailable] while the node shuts down.
	WithSlot func(ctx context.Context, wait time.Duration, f func(context.Context) error) error
}

// Ranker executes ranking queries and rechecks.
type Ranker struct{ Config }

// New returns a ranker.
func New(c Config) *Ranker {
	c.MaxDetails = cmp.Or(c.MaxDetails, 256<<20)
	c.PlanWithin = cmp.Or(c.PlanWithin, 10*time.Second)
	return &Ranker{c}
}

// Elsewhere reports whether queries run on a database of their own.
func (q *Ranker) Elsewhere() bool { return q.Queries != nil }

// Rank executes a task's query for its run, and asks the recheck about the best results. lock is the transaction that holds
// the run lock; the caller also holds a run slot. [ErrQuery] is the query's own fault, its time-out included; lock is then still
// open, so that the failure is recorded in it, unless its connection had to be closed. After any other error the query is to be tried again.
func (q *Ranker) Rank(ctx context.Context, lock pgx.Tx, task int64, s assign.Settings) (Result, error) {
	if q.Queries != nil {
		return q.rankThere(ctx, lock, task, s)
	}
	return q.rankHere(ctx, lock, task, s)
}

const selectAskedFor = `select coalesce(sum(wanted), 0) from getwork.work_requested where task_id = $1 and state = 'pending'`

// AskedFor returns the number of items that the task's waiting requests ask for.
func (q *Ranker) AskedFor(ctx context.Context, task int64) (n int, err error) {
	if err = q.DB.QueryRow(ctx, q.SQL(selectAskedFor), task).Scan(&n); err != nil {
		err = fmt.Errorf("%w: count the wanted items: %w", errOurs, err)
	}
	return n, err
}
