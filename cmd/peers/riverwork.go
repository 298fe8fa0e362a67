package main

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"golang.org/x/sync/errgroup"
)

// numbered is the only kind of job; its number finds its counter.
type numbered struct {
	N int `json:"n"`
}

// Kind returns River's name for it.
func (numbered) Kind() string { return "numbered" }

type worker struct {
	river.WorkerDefaults[numbered]
	tally *tally
}

// Work counts the job, and does nothing else.
func (w *worker) Work(_ context.Context, job *river.Job[numbered]) error {
	w.tally.work(job.Args.N)
	return nil
}

type client = river.Client[pgx.Tx]

// inserter is a client that works no jobs.
func (c *riverPeer) inserter() (*client, error) {
	return river.NewClient(riverpgxv5.New(c.pool), &river.Config{Schema: c.schema, Logger: quietly})
}

var quietly = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))

// workConnections is how many connections a working client has. On two cores more use CPU and gain nothing.
const workConnections = 12

// start starts a client that works jobs, with River's own fetch settings or with the fastest useful ones: FetchCooldown
// at River's minimum, and a poll soon enough for jobs whose NOTIFY the cooldown swallowed. A shorter poll gains
// nothing.
func (c *riverPeer) start(ctx context.Context, mode string) (*client, error) {
	workers := river.NewWorkers()
	river.AddWorker(workers, &worker{tally: c.tally})
	config := &river.Config{
		Schema:  c.schema,
		Logger:  quietly,
		Queues:  map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 100}},
		Workers: workers,
	}
	if mode == "tuned" {
		config.FetchCooldown = time.Millisecond
		config.FetchPollInterval = 100 * time.Millisecond
		config.Queues[river.QueueDefault] = river.QueueConfig{MaxWorkers: 1000}
	}
	running, err := river.NewClient(riverpgxv5.New(c.pool), config)
	if err != nil {
		return nil, err
	}
	if err := running.Start(ctx); err != nil {
		return nil, fmt.Errorf("start River: %w", err)
	}
	return running, nil
}

// insertFor lets that many clients insert one job after another, until the time is over.
func (c *riverPeer) insertFor(ctx context.Context, inserter *client, r request) (int, error) {
	group, ctx := errgroup.WithContext(ctx)
	until := time.Now().Add(time.Duration(r.Seconds * float64(time.Second)))
	jobs := make([]int, r.Clients)
	for i := range jobs {
		group.Go(func() error {
			for time.Now().Before(until) {
				n, _ := c.tally.insert()
				if _, err := inserter.Insert(ctx, numbered{N: n}, nil); err != nil {
					return fmt.Errorf("insert a job: %w", err)
				}
				jobs[i]++
			}
			return nil
		})
	}
	err := group.Wait()
	sum := 0
	for _, n := range jobs {
		sum += n
	}
	return sum, err
}

// insert measures inserting one by one. The inserted jobs are worked off afterwards.
func (c *riverPeer) insert(ctx context.Context, r request) (answer, error) {
	if err := c.connect(ctx, r.Clients); err != nil {
		return answer{}, err
	}
	inserter, err := c.inserter()
	if err != nil {
		return answer{}, err
	}
	if err := c.begin(ctx); err != nil {
		return answer{}, err
	}
	start := time.Now()
	jobs, err := c.insertFor(ctx, inserter, r)
	took := time.Since(start)
	if err != nil {
		return answer{}, err
	}
	if err := c.end(ctx); err != nil {
		return answer{}, err
	}
	return answer{Jobs: jobs, Seconds: took.Seconds()}, c.workOff(ctx)
}

// workOff works all jobs that exist.
func (c *riverPeer) workOff(ctx context.Context) error {
	if err := c.connect(ctx, workConnections); err != nil {
		return err
	}
	running, err := c.start(ctx, "tuned")
	if err != nil {
		return err
	}
	if err := c.tally.wait(ctx); err != nil {
		return err
	}
	return running.Stop(ctx)
}

// insertAndWork measures inserting one by one beside a working client in the same process.
func (c *riverPeer) insertAndWork(ctx context.Context, r request) (answer, error) {
	if err := c.connect(ctx, workConnections); err != nil {
		return answer{}, err
	}
	running, err := c.start(ctx, r.Mode)
	if err != nil {
		return answer{}, err
	}
	if err := c.begin(ctx); err != nil {
		return answer{}, err
	}
	start := time.Now()
	jobs, err := c.insertFor(ctx, running, r)
	if err != nil {
		return answer{}, err
	}
	if err := c.tally.wait(ctx); err != nil {
		return answer{}, err
	}
	took := time.Since(start)
	// Jobs are marked as completed in batches, the last of them by Stop.
	if err := running.Stop(ctx); err != nil {
		return answer{}, err
	}
	return answer{Jobs: jobs, Seconds: took.Seconds()}, c.end(ctx)
}

// bulk is how many jobs one statement inserts.
const bulk = 5000

// work measures working jobs that were inserted in bulk.
func (c *riverPeer) work(ctx context.Context, r request) (answer, error) {
	if err := c.connect(ctx, workConnections); err != nil {
		return answer{}, err
	}
	inserter, err := c.inserter()
	if err != nil {
		return answer{}, err
	}
	for left := r.Jobs; left > 0; left -= bulk {
		params := make([]river.InsertManyParams, min(left, bulk))
		for i := range params {
			n, _ := c.tally.insert()
			params[i].Args = numbered{N: n}
		}
		if _, err := inserter.InsertManyFast(ctx, params); err != nil {
			return answer{}, fmt.Errorf("insert jobs: %w", err)
		}
	}
	if err := c.begin(ctx); err != nil {
		return answer{}, err
	}
	start := time.Now()
	running, err := c.start(ctx, r.Mode)
	if err != nil {
		return answer{}, err
	}
	if err := c.tally.wait(ctx); err != nil {
		return answer{}, err
	}
	if err := running.Stop(ctx); err != nil {
		return answer{}, err
	}
	took := time.Since(start)
	return answer{Jobs: r.Jobs, Seconds: took.Seconds()}, c.end(ctx)
}

// latency measures the time from the inserting call to Work, one job at a time on an otherwise idle system.
func (c *riverPeer) latency(ctx context.Context, r request) (answer, error) {
	if err := c.connect(ctx, workConnections); err != nil {
		return answer{}, err
	}
	running, err := c.start(ctx, r.Mode)
	if err != nil {
		return answer{}, err
	}
	if err := c.begin(ctx); err != nil {
		return answer{}, err
	}
	var latencies []float64
	for until := time.Now().Add(time.Duration(r.Seconds * float64(time.Second))); time.Now().Before(until) || len(latencies) == 0; {
		if err := sleep(ctx, pauseBefore(r.Mode)); err != nil {
			return answer{}, err
		}
		start := time.Now()
		n, worked := c.tally.insert()
		if _, err := running.Insert(ctx, numbered{N: n}, nil); err != nil {
			return answer{}, fmt.Errorf("insert a job: %w", err)
		}
		if err := await(ctx, worked); err != nil {
			return answer{}, err
		}
		latencies = append(latencies, float64(c.tally.workedAt(n).Sub(start))/1e6)
	}
	if err := c.end(ctx); err != nil {
		return answer{}, err
	}
	return answer{Latencies: latencies}, running.Stop(ctx)
}

// idle measures a client that waits for work that doesn't come.
func (c *riverPeer) idle(ctx context.Context, r request) (answer, error) {
	if err := c.connect(ctx, workConnections); err != nil {
		return answer{}, err
	}
	running, err := c.start(ctx, r.Mode)
	if err != nil {
		return answer{}, err
	}
	// The one-time work at a client's start isn't idleness.
	if err := sleep(ctx, time.Second); err != nil {
		return answer{}, err
	}
	if err := c.begin(ctx); err != nil {
		return answer{}, err
	}
	start := time.Now()
	if err := sleep(ctx, time.Duration(r.Seconds*float64(time.Second))); err != nil {
		return answer{}, err
	}
	took := time.Since(start)
	if err := c.end(ctx); err != nil {
		return answer{}, err
	}
	return answer{Seconds: took.Seconds()}, running.Stop(ctx)
}

// pauseBefore is how long the system is left idle before a job: longer than FetchCooldown, and never in step with
// polls.
func pauseBefore(mode string) time.Duration {
	if mode == "tuned" {
		return 20*time.Millisecond + rand.N(40*time.Millisecond)
	}
	return 150*time.Millisecond + rand.N(200*time.Millisecond)
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
