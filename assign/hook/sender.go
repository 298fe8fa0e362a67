package hook

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
	"getwork/assign/pg"
)

const (
	perHook   = 8                // events of one hook that a node sends at once
	atOnce    = 32               // hooks to which a node sends at once
	lease     = 30 * time.Second // an attempt begins in its first half, and takes postWithin at most
	giveUp    = 72 * time.Hour
	pollEvery = time.Second
	restEvery = 3 * time.Second // while there are no hooks
)

// Config has the settings of a [Registry] and a [Sender].
type Config struct {
	DB        pg.Router
	SQL       func(string) string // puts the schema's name into a statement; nil: the schema is getwork
	Allow     []netip.Prefix      // what hooks may reach beside public and private addresses; also over http
	Retention time.Duration       // of dead events
	Log       *slog.Logger

	Alerts func(context.Context) ([]assign.Alert, error) // of all tasks; nil: hooks are not told of any
}

func (c *Config) sql(statement string) string {
	if c.SQL == nil {
		return statement
	}
	return c.SQL(statement)
}

// Sender posts what is due. A node has one.
type Sender struct {
	Config
	client  client
	results chan struct{} // bounds the connections that results take from the engine's own

	mu   sync.Mutex
	busy map[int64]bool // hooks to which this node sends just now

	// How many attempts of this node succeeded and failed, and how many events it gave up.
	Delivered, Failed, Dead atomic.Int64
	Oldest                  atomic.Int64 // how long the oldest waiting event, of any node, had waited when it was last read, in nanoseconds
}

// NewSender returns a sender that sends while its Run runs.
func NewSender(c Config) *Sender {
	return &Sender{Config: c, client: newClient(c.Allow), results: make(chan struct{}, 2), busy: map[int64]bool{}}
}

// event is a claimed event.
type event struct {
	id, hook       int64
	attempt        int    // of this claim; a result counts only while the row has the same number
	message        string // a UUID
	body           []byte
	url            string
	secret, former []byte // former: empty unless it still signs
	test           bool   // somebody tests the hook
}

func (e *event) messageID() string { return "msg_" + strings.ReplaceAll(e.message, "-", "") }

// paused is true while the hook h is left alone after a failure, for longestRetryAfter at most: a later end was written before the
// database's clock was set back.
const paused = `coalesce(h.retry_at > clock_timestamp() and h.retry_at <= clock_timestamp() + interval '1 hour', false)`

// claimEvents repeats the indexes' conditions. A hook that has failed is tried with one event. The lock reads the row again, so
// an event that another node has just claimed is not due any more. Tests (task 0) don't wait for each other. The hooks come in another
// order each time: in the table's, the first ones would take all places for as long as they have more than they can send.
//
// Statistics from before a backlog say that next to nothing waits, and then any index looks as good as hook_event_line. So no other
// one has the conditions of an older event of the item, and "offset 0" keeps them from becoming a join: each of thousands of events
// would be compared with all others.
const claimEvents = `
with hooks as materialized (
  select h.id, case when h.failures > 0 then 1 else $2::bigint end as most
  from getwork.hook h
  where h.id <> all ($1::bigint[]) and not ` + paused + `
  order by random()
), due as materialized (
  select e.id
  from hooks h
  cross join lateral (
    select e.id
    from getwork.hook_event e
    where e.hook_id = h.id and e.state = 'waiting' and e.next_at <= (select clock_timestamp())
      and not exists (
        select from getwork.hook_event o
        where o.hook_id::text || ' ' || o.task_id::text || ' ' || o.item = e.hook_id::text || ' ' || e.task_id::text || ' ' || e.item
          and o.task_id <> 0 and o.ended_at is null and o.id < e.id
        offset 0)
    order by e.next_at
    limit h.most
    for update skip locked
  ) e
  limit $3::bigint * $2::bigint
)
update getwork.hook_event e
set attempts = e.attempts + 1, next_at = clock_timestamp() + $4::bigint * interval '1 microsecond'
from due d, getwork.hook h
where e.id = d.id and h.id = e.hook_id
returning e.id, e.hook_id, e.attempts, e.message::text, e.body::text, h.url, h.secret, case when h.former_until > clock_timestamp() then h.former_secret end, e.task_id = 0, coalesce(h.form, 'getwork')`

// Run sends until ctx ends, and then waits for what is under way. It returns nil.
func (s *Sender) Run(ctx context.Context) error {
	ctx = pg.AsOwn(ctx)
	var sending sync.WaitGroup
	defer sending.Wait()
	freed := make(chan struct{}, 1)
	sending.Go(func() { s.runTidy(ctx) })
	for {
		every := restEvery
		used, err := s.used(ctx)
		s.warn(ctx, err)
		if used {
			every = pollEvery
			s.warn(ctx, s.round(ctx, &sending, freed))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-freed:
		case <-time.After(every/2 + rand.N(every)):
		}
	}
}

const anyHooks = `select exists (select from getwork.hook) or exists (select from getwork.hook_event)`

// used reports whether there are hooks, or events of former ones. Without any an idle node asks for no more.
func (s *Sender) used(ctx context.Context) (used bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, lease/2)
	defer cancel()
	if err := s.DB.QueryRow(ctx, s.sql(anyHooks)).Scan(&used); err != nil {
		return false, fmt.Errorf("look for web hooks: %w", err)
	}
	return used, nil
}

func (s *Sender) warn(ctx context.Context, err error) {
	if err != nil && ctx.Err() == nil && !pg.Away(err) { // other statements report a database that is away
		s.Log.Warn("send events to web hooks", "error", err)
	}
}

// round claims what is due, and has it sent in the background. Hooks don't wait for each other: each gets its next events when
// its last ones are over.
func (s *Sender) round(ctx context.Context, sending *sync.WaitGroup, freed chan<- struct{}) error {
	s.mu.Lock()
	skip := make([]int64, 0, len(s.busy))
	for id := range s.busy {
		skip = append(skip, id)
	}
	s.mu.Unlock()
	if len(skip) >= atOnce {
		return nil
	}
	deadline := time.Now().Add(lease / 2) // an attempt that has not begun by then is left to the next lease
	claimed, err := s.claim(ctx, skip)
	if err != nil {
		return err
	}
	for id, batch := range claimed {
		s.mu.Lock()
		s.busy[id] = true
		s.mu.Unlock()
		sending.Go(func() {
			s.send(ctx, batch, deadline)
			s.mu.Lock()
			delete(s.busy, id)
			s.mu.Unlock()
			select {
			case freed <- struct{}{}:
			default:
			}
		})
	}
	return nil
}

// claim commits a claim on what is due, except for hooks to skip, and returns it by hook. If the node dies from here on, the lease ends
// and another node sends the events.
func (s *Sender) claim(ctx context.Context, skip []int64) (map[int64][]event, error) {
	ctx, cancel := context.WithTimeout(ctx, lease/2)
	defer cancel()
	var claimed map[int64][]event
	err := pg.Transact(ctx, s.DB, func(tx pgx.Tx) error {
		claimed = map[int64][]event{}
		rows, err := tx.Query(ctx, s.sql(claimEvents), skip, int64(perHook), int64(atOnce-len(skip)), lease.Microseconds())
		if err != nil {
			return err
		}
		var e event
		var body, form string
		_, err = pgx.ForEachRow(rows, []any{&e.id, &e.hook, &e.attempt, &e.message, &body, &e.url, &e.secret, &e.former, &e.test, &form}, func() error {
			e.body = inForm(form, []byte(body))
			claimed[e.hook] = append(claimed[e.hook], e)
			return nil
		})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("claim events: %w", err)
	}
	return claimed, nil
}

// send posts events of one hook, each of another item, and writes how that ended.
func (s *Sender) send(ctx context.Context, batch []event, deadline time.Time) {
	var all sync.WaitGroup
	for _, e := range batch {
		all.Go(func() {
			if time.Now().After(deadline) { // the node froze
				return
			}
			r := s.client.post(ctx, e)
			if r.failed != "" && ctx.Err() != nil {
				s.handBack(ctx, e)
				return
			}
			s.results <- struct{}{}
			defer func() { <-s.results }()
			writing, cancel := context.WithTimeout(context.WithoutCancel(ctx), lease/2)
			defer cancel()
			if err := s.write(writing, e, r); err != nil && !pg.Away(err) {
				s.Log.Warn("write how a web hook answered; the event is sent again", "hook", e.hook, "event", e.id, "error", err)
			}
		})
	}
	all.Wait()
}

const endLease = `update getwork.hook_event set next_at = clock_timestamp() where id = $1 and attempts = $2 and state = 'waiting'`

// handBack ends an event's lease, because the node ends. Otherwise the event would wait for up to half a minute.
func (s *Sender) handBack(ctx context.Context, e event) {
	s.results <- struct{}{}
	defer func() { <-s.results }()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	_, err := s.DB.Exec(ctx, s.sql(endLease), e.id, e.attempt)
	if err != nil && !pg.Away(err) {
		s.Log.Warn("hand back an event of a web hook; it is sent when its lease ends", "hook", e.hook, "event", e.id, "error", err)
	}
}

// The result counts only if no other node has begun again meanwhile.
const (
	backOff = `least(interval '5 seconds' * 4 ^ least(attempts - 1, 10), interval '8 hours')` // of an event that failed

	// A success of one event does not end the wait that another one's failure began while both were under way: the receiver may
	// have asked to be left alone.
	writeDelivered = `
with over as (
  update getwork.hook_event set state = 'delivered', ended_at = clock_timestamp(), status = $3, error = null
  where id = $1 and attempts = $2 and state <> 'delivered'
  returning hook_id
)
update getwork.hook h set failures = 0, retry_at = null from over where h.id = over.hook_id and h.failures > 0 and not ` + paused

	// A receiver that accepts a test is well again, so what failed before waits no longer. No attempt is under way at events that
	// are due later than the end of any lease; the others are due soon. Whoever waited for a row could deadlock: another result
	// is written to the event first, and then to the hook.
	endBackOff = `
with later as materialized (
  select id from getwork.hook_event
  where hook_id = $1 and state = 'waiting' and attempts > 0 and next_at > (select clock_timestamp()) + $2::bigint * interval '1 microsecond'
  order by next_at
  limit 10000
  for update skip locked
)
update getwork.hook_event e set next_at = clock_timestamp() from later where e.id = later.id`

	// An event waits longer after each failure: 5 s, 20 s, 80 s … 8 h, and up to a fifth longer at random. The whole hook waits
	// for a second, twice as long after each further failure, a minute at most, or for as long as the receiver asks. What was sent
	// beside the first failure and failed, too, counts with it: or eight at once would silence the hook for a minute.
	writeFailed = `
with failed as (
  update getwork.hook_event
  set status = nullif($3, 0), error = $4,
      next_at = clock_timestamp() + ` + backOff + ` * (1 + random() / 5)
  where id = $1 and attempts = $2 and state = 'waiting'
  returning hook_id
)
update getwork.hook h
set failures = h.failures + case when ` + paused + ` then 0 else 1 end,
    retry_at = clock_timestamp() + greatest(
      case when ` + paused + ` then h.retry_at - clock_timestamp() else interval '1 second' * least(2 ^ least(h.failures, 10), 60) end,
      $5::bigint * interval '1 microsecond')
from failed where h.id = failed.hook_id`
)

// write counts how an attempt ended, and writes it, unless another attempt has begun meanwhile.
func (s *Sender) write(ctx context.Context, e event, r result) error {
	if r.failed == "" {
		s.Delivered.Add(1)
	} else {
		s.Failed.Add(1)
		s.Log.Info("a web hook failed", "hook", e.hook, "event", e.id, "attempt", e.attempt, "error", r.failed)
	}
	return pg.Transact(ctx, s.DB, func(tx pgx.Tx) error {
		if r.failed == "" {
			_, err := tx.Exec(ctx, s.sql(writeDelivered), e.id, e.attempt, r.status)
			if err == nil && e.test {
				_, err = tx.Exec(ctx, s.sql(endBackOff), e.hook, lease.Microseconds())
			}
			return err
		}
		_, err := tx.Exec(ctx, s.sql(writeFailed), e.id, e.attempt, r.status, r.failed, r.retryAfter.Microseconds())
		return err
	})
}
