package ranking

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgxpool"

	"getwork/assign"
	"getwork/assign/pg"
	"getwork/assign/records"
)

// Config is what a Ranker needs.
type Config struct {
	DB      pg.Router           // for getwork's own statements
	Records *records.Records    // the tasks' settings
	Runs    *pgxpool.Pool       // connections of runs, one for each slot
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
	Comparing  func(ctx context.Context, task string, s *assign.Settings) error // the same for the query that a task's own is compared with

	// RunSlot and AskSlot call f with a slot for a query: a round's recheck with one of the node's run slots, and a preview, an
	// explanation or a claim with the slot that they have for themselves. RunSlot does not wait for one; AskSlot does, for a
	// while. Without a slot they don't call f, and refuse with [assign.Busy], or with [assign.Unavailable] while the node
	// shuts down.
	RunSlot, AskSlot func(ctx context.Context, f func(context.Context) error) error
}

// Ranker executes ranking queries and rechecks.
type Ranker struct {
	Config
	snapshot pgx.TxIsoLevel // of transactions for user SQL; empty: each statement has its own
}

// New returns a ranker.
func New(c Config) *Ranker {
	c.MaxDetails = cmp.Or(c.MaxDetails, 256<<20)
	c.PlanWithin = cmp.Or(c.PlanWithin, 10*time.Second)
	return &Ranker{Config: c}
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

const selectAskedFor = `
select coalesce(sum(r.wanted), 0)
from (
  select r.wanted
  from getwork.work_requested r
  where r.task_id between $1 and $1 and r.state = 'pending'
  order by r.task_id, r.id
  limit %s) r`

// AskedFor returns the number of items that the task's first waiting requests ask for, up to most of them; 0: all.
func (q *Ranker) AskedFor(ctx context.Context, task int64, most int) (n int, err error) {
	limit := "all"
	if most > 0 {
		limit = strconv.Itoa(most)
	}
	if err = q.DB.QueryRow(ctx, q.SQL(fmt.Sprintf(selectAskedFor, limit)), task).Scan(&n); err != nil {
		err = fmt.Errorf("%w: count the wanted items: %w", errOurs, err)
	}
	return n, err
}

// Candidate is one row of a ranking query that can be handed out.
type Candidate struct {
	Rank      int64   // its row in the query's result, from 1
	Item      string  // its key
	Slots     int     // how many holders it may have at a time
	Exclusive *string // its group, of which one member is held at a time; nil: none
	Details   string  // JSON; assign.NoDetails if they are beyond the limits

	Deadline *time.Time // nil: none
	Class    int        // what it needs is Result.Needs[Class-1]; 0: the result's items need nothing

	since int64 // the query's since, in microseconds; 0: none
	full  bool  // all its places were taken when the query read it, or its group was busy
}

// Result is what one execution of a ranking query returned.
type Result struct {
	Items                      []Candidate // best first, at most max_candidates
	Cut                        bool        // the query returned more
	Given, Blocked, PassedOver int64       // rows
	LeftOut                    int64       // items whose details are beyond the limits
	Oldest                     *time.Time  // the earliest since of the rows that are neither blocked nor passed over; nil: there is none
	Needs                      []NeedSet   // what the items need, each set once; nil: nothing
	Matching                   Matching    // what the task's recheck said of the best items

	// What the query saw: a snapshot; on a query database that of the primary before it began, and a time, see [Ranker.Seen].
	Snapshot  *string
	SeenUntil *time.Time

	Seen *KeySet // the items, so that none is taken twice
}

// ErrQuery is an error of the query itself: its requests fail with it.
type ErrQuery struct{ Message string }

// errOurs says that a statement of getwork's own failed while a query ran, which is not the query's fault.
var errOurs = errors.New("read what getwork itself knows")

func (e *ErrQuery) Error() string { return e.Message }

// rankHere runs the query on the lock's own connection, under a savepoint of the lock's transaction. Lock and query share one
// backend, so neither outlives the other, and no second run can start beside the query. The lock survives a query that fails.
func (q *Ranker) rankHere(ctx context.Context, tx pgx.Tx, task int64, s assign.Settings) (Result, error) {
	if err := q.admitRun(ctx, tx, s); err != nil {
		return Result{}, err
	}
	if _, err := tx.Exec(ctx, "savepoint ranking; "+q.enterQuery(s.QueryTimeout)); err != nil {
		return Result{}, fmt.Errorf("enter the query: %w", err)
	}
	limited, done := bounded(ctx, s.QueryTimeout)
	defer done()
	began := time.Now()
	found, err := q.read(limited, tx, task, s)
	took := time.Since(began)
	if err == nil {
		err = q.recheckResult(limited, tx, task, s, &found)
	}

	after, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if left := leaveTo(after, tx, "ranking", err); left != nil {
		return Result{}, errors.Join(tooLarge(err), left)
	}
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return Result{}, cause
	}
	if late := lateness(limited, err); late != nil {
		return Result{}, late
	}
	return found, FaultOf(err, took, s.QueryTimeout)
}

// bounded returns a context for all the user SQL of one transaction. A query can switch off the server's statement_timeout
// for the statements after it, and many rechecks may each stay within it. Without this bound either could hold the task, a
// run slot and a connection for as long as it likes.
func bounded(ctx context.Context, timeout assign.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, 2*time.Duration(timeout)+5*time.Second,
		&ErrQuery{fmt.Sprintf("the query and its recheck together took longer than twice the query_timeout of %s, and 5s", timeout)})
}

// untilTimeout returns a context for a query that runs on the query database, its recheck included.
func untilTimeout(ctx context.Context, timeout assign.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, time.Duration(timeout), tooLong(timeout))
}

func tooLong(timeout assign.Duration) *ErrQuery {
	return &ErrQuery{fmt.Sprintf("the query took longer than its query_timeout of %s", timeout)}
}

// lateness returns the ErrQuery that ended the context, if it explains err; otherwise nil.
func lateness(limited context.Context, err error) error {
	var late *ErrQuery
	if err != nil && !errors.Is(err, errOurs) && errors.As(context.Cause(limited), &late) {
		return late
	}
	return nil
}

// tooLarge returns an ErrQuery for a row, or an error, that was not read because it is larger than the connection allows; any other
// err as it is. The connection was closed.
func tooLarge(err error) error {
	var large *pgproto3.ExceededMaxBodyLenErr
	if !errors.As(err, &large) {
		return err
	}
	return &ErrQuery{fmt.Sprintf("a row of the query, or its error, takes %.1f MiB, and a node reads %.1f MiB at once; leave out large columns, or return a part of them",
		float64(large.ActualBodyLen)/(1<<20), float64(large.MaxExpectedBodyLen)/(1<<20))}
}

// FaultOf turns an error that is the query's own fault into an ErrQuery.
func FaultOf(err error, took time.Duration, timeout assign.Duration) error {
	err = tooLarge(err)
	var pgErr *pgconn.PgError
	var fault *ErrQuery
	var connect *pgconn.ConnectError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &fault):
		return err
	case errors.Is(err, errOurs), errors.As(err, &connect), !errors.As(err, &pgErr) || !pg.QueryFault(pgErr):
		return fmt.Errorf("run the query: %w", err)
	case pgErr.Code == "57014" && timedOut(took, timeout):
		return tooLong(timeout)
	case pgErr.Hint != "":
		return &ErrQuery{fmt.Sprintf("%s (%s) (SQLSTATE %s)", pg.Brief(pgErr.Message), pg.Brief(pgErr.Hint), pgErr.Code)}
	}
	return &ErrQuery{fmt.Sprintf("%s (SQLSTATE %s)", pg.Brief(pgErr.Message), pgErr.Code)}
}
