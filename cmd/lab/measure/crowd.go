package measure

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"getwork/cmd/internal/bench"
	"getwork/cmd/internal/bench/stage"
	"getwork/ws"
)

// crowdTask is the task that everybody waits on.
const crowdTask = "crowd"

// crowd is many users, each with a socket of their own, who wait for the end of one query.
type crowd struct {
	*stage.Stage
	members []member
	gate    int64   // the query's last row waits for this advisory lock, which Conn holds
	idle    float64 // the first node's memory before the crowd, in KiB

	reading sync.WaitGroup
	left    atomic.Int64 // users still to hear of their request's end
	served  chan struct{}
	broken  chan error
}

// member is a user of a crowd.
type member struct {
	name string
	node int

	// The first event of the request's end, undecoded: decoding would delay the others.
	told []byte
	at   time.Time
}

// many calls do for each element of all, at most atOnce at the same time, until one fails.
func many[T any](ctx context.Context, all []T, atOnce int, do func(ctx context.Context, one *T) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for i := range all {
		g.Go(func() error {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return do(ctx, &all[i])
		})
	}
	return g.Wait()
}

// How many sockets are opened, and clicks made, at the same time: more than a node accepts at once gain nothing.
const (
	dialers  = 64
	clickers = 32
)

// onCrowd calls do on a fresh getwork, where that many users, spread over the nodes, have a socket and wait for the
// query.
func onCrowd(ctx context.Context, e *stage.Env, users, nodes int, do func(c *crowd) error) error {
	return e.On(ctx, nodes, func(s *stage.Stage) (err error) {
		c := &crowd{Stage: s, members: make([]member, users), gate: rand.Int64N(1 << 31), served: make(chan struct{}), broken: make(chan error, users)}
		c.left.Store(int64(users))
		for i := range c.members {
			c.members[i] = member{name: fmt.Sprintf("user-%05d", i), node: i % nodes}
		}
		c.idle = resident(s.Nodes[0].PID())
		reading, end := context.WithCancel(ctx)
		defer c.reading.Wait()
		defer end()
		err = many(ctx, c.members, dialers, func(ctx context.Context, m *member) error {
			socket, err := s.Socket(ctx, m.node, m.name)
			if err == nil {
				c.reading.Go(func() { c.read(reading, m, socket) })
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("open %d sockets: %w", users, err)
		}
		if err := c.wait(ctx); err != nil {
			return err
		}
		return do(c)
	})
}

// read reads a member's socket until it ends.
func (c *crowd) read(ctx context.Context, m *member, socket *ws.Client) {
	defer socket.Close()
	for {
		message, err := stage.ReadEnded(ctx, socket)
		if err != nil {
			c.broken <- fmt.Errorf("socket of %s: %w", m.name, err)
			return
		}
		if m.told == nil {
			m.told, m.at = message, time.Now()
			if c.left.Add(-1) == 0 {
				close(c.served)
			}
		}
	}
}

const (
	// The query ends when its last row is let through.
	gatedQuery = `
select item, customer, amount
from getwork.bench_item
where case when item = %d then pg_advisory_xact_lock_shared(%d) is not null else true end
order by item`

	takeGate = `select pg_advisory_lock($1)`
	openGate = `select pg_advisory_unlock($1)`

	atGate = `
select exists (
  select from pg_locks
  where locktype = 'advisory' and classid = 0 and objid = $1::bigint::oid and objsubid = 1 and not granted
    and database = (select oid from pg_database where datname = current_database()))`
)

// wait lets everybody click, and returns when the query waits for its last row, and everybody for the query.
func (c *crowd) wait(ctx context.Context) error {
	users := len(c.members)
	items := users*stage.WantedEach + users/10 + 1 // a few more than needed
	if err := c.MakeItems(ctx, items); err != nil {
		return err
	}
	if err := c.Exec(ctx, "hold the query", []string{takeGate}, c.gate); err != nil {
		return err
	}
	if err := c.Task(ctx, crowdTask, fmt.Sprintf(gatedQuery, items, c.gate), items, 0); err != nil {
		return err
	}
	err := many(ctx, c.members, clickers, func(ctx context.Context, m *member) error {
		return c.Call(ctx, m.node, m.name, "worker", "/api/v1/tasks/"+crowdTask+"/requests", map[string]int{"count": stage.WantedEach})
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, stage.OpenWithin)
	defer cancel()
	for there := false; !there; stage.Sleep(ctx, 20*time.Millisecond) {
		if err := c.Conn.QueryRow(ctx, atGate, c.gate).Scan(&there); err != nil {
			return fmt.Errorf("wait for the query's last row: %w", err)
		}
	}
	var pending int
	err = c.Conn.QueryRow(ctx, c.SQL(stage.CountPending), crowdTask).Scan(&pending)
	if err == nil && pending != users {
		err = fmt.Errorf("%d of %d users wait for the query", pending, users)
	}
	return err
}

// pushed holds the times since the query's last row, in ms.
type pushed struct {
	first, half, last  float64 // until that many users had their items
	written, committed float64 // until the round began to write, and was committed; 0: unknown
	size               int     // the average size of a message
}

const selectRound = `
select finished_at, case when current_setting('track_commit_timestamp')::boolean then pg_xact_commit_timestamp(xmin) end
from getwork.run
order by id desc
limit 1`

// push lets the query end, waits until everybody has heard, and checks what they heard.
func (c *crowd) push(ctx context.Context) (p pushed, err error) {
	began := time.Now()
	if err := c.Exec(ctx, "let the query end", []string{openGate}, c.gate); err != nil {
		return p, err
	}
	select {
	case <-c.served:
	case err := <-c.broken:
		return p, err
	case <-ctx.Done():
		return p, context.Cause(ctx)
	case <-time.After(stage.ServedWithin):
		return p, fmt.Errorf("%d users were not told of their work within %s", c.left.Load(), stage.ServedWithin)
	}
	var times []float64
	var items []int64
	for i := range c.members {
		m := &c.members[i]
		if !bytes.Contains(m.told, []byte(`"user":"`+m.name+`"`)) {
			return p, fmt.Errorf("%s was told %.400s", m.name, m.told)
		}
		if items, err = stage.TakeItems(items, m.told, stage.WantedEach); err != nil {
			return p, err
		}
		p.size += len(m.told)
		times = append(times, stage.Millis(m.at.Sub(began)))
	}
	p.size /= len(times)
	p.first, p.half, p.last = slices.Min(times), bench.Quantile(times, 0.5), slices.Max(times)
	if c.ServerPID != 0 { // otherwise its clock may differ
		var finished time.Time
		var committed *time.Time
		if err := c.Conn.QueryRow(ctx, c.SQL(selectRound)).Scan(&finished, &committed); err != nil {
			return p, fmt.Errorf("read the end of the run: %w", err)
		}
		if committed != nil {
			p.written, p.committed = stage.Millis(finished.Sub(began)), stage.Millis(committed.Sub(began))
		}
	}
	c.Given[crowdTask] = items
	return p, c.Check(ctx, crowdTask)
}
