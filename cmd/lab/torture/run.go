package torture

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/cmd/lab/torture/checker"
	"getwork/cmd/lab/torture/history"
)

var errInterrupted = errors.New("interrupted: nothing was judged")

// Run tortures a cluster of its own for a while, and judges what happened. Violations are in the report, and are no
// error. An error, such as the end of ctx, means that the history could not be judged; the report then has what the
// harness itself has found, and the folder with the logs is kept. Run leaves no process running.
func Run(ctx context.Context, o Options) (r Report, err error) {
	if o, err = o.Complete(); err != nil {
		return r, err
	}
	for o.Seed == 0 {
		o.Seed = rand.Uint64()
	}
	r.Options, r.Began = o, time.Now()
	o.Log("seed %d", o.Seed)
	dir, err := logDir(o)
	if err != nil {
		return r, err
	}
	asked := ctx
	ctx, end := context.WithCancel(ctx)
	defer end()
	s := &stage{ctx: ctx, o: o, dir: dir, findings: &findings{}, answered: make(chan int)}
	defer func() {
		end()
		err = errors.Join(err, s.tearDown())
		if r.Kinds == nil { // it was not judged
			r.Violations, r.Kinds = s.findings.list()
		}
		if o.Out == "" && len(r.Violations) == 0 && (err == nil || asked.Err() != nil) {
			err = errors.Join(err, os.RemoveAll(dir))
			return
		}
		err = errors.Join(err, removePrograms(dir, o))
		if o.Out == "" && os.Remove(dir) == nil { // nothing is in it
			return
		}
		r.Out = dir
	}()
	if err := s.setUp(ctx); err != nil {
		return r, err
	}
	h, err := s.play(ctx, &r)
	if err != nil {
		return r, err
	}
	if err := errors.Join(s.lookForDeadlocks(), history.WriteFile(filepath.Join(dir, historyFile), h)); err != nil {
		return r, err
	}
	o.Log("checking %d entries", len(h.Entries))
	r.judge(h, checker.Judge(h, checker.Config{Recovery: o.Recovery}), s.findings)
	r.Took = time.Since(r.Began)
	return r, r.write(filepath.Join(dir, reportFile))
}

// Judge judges a history that was kept.
func Judge(h history.History) Report {
	r := Report{}
	r.judge(h, checker.Judge(h, checker.Config{}), &findings{})
	return r
}

// The files of a run that was judged.
const (
	historyFile = "history.jsonl"
	reportFile  = "report.txt"
)

// logDir returns the folder for history and logs, without those of a former run.
func logDir(o Options) (string, error) {
	if o.Out == "" {
		return os.MkdirTemp("", "getwork-torture-")
	}
	if err := os.MkdirAll(o.Out, 0o755); err != nil {
		return "", fmt.Errorf("--out: %w", err)
	}
	for _, pattern := range []string{"node-*.log", historyFile, reportFile} { // of a former run: its logs would be added to
		stale, err := filepath.Glob(filepath.Join(o.Out, pattern))
		for _, name := range stale {
			err = errors.Join(err, os.Remove(name))
		}
		if err != nil {
			return "", fmt.Errorf("--out: %w", err)
		}
	}
	return filepath.Abs(o.Out)
}

// play lets everybody work and everything break, heals, waits, and reads the final tables.
func (s *stage) play(ctx context.Context, r *Report) (h history.History, err error) {
	s.rec = history.NewRecorder()
	calm, healed := context.WithCancel(context.Background())
	defer healed()
	c := newCrowd(s, calm)
	if err := c.createTasks(ctx); err != nil {
		return h, err
	}
	if open := c.scenario.open; open != nil {
		if err := open(s, ctx); err != nil {
			return h, err
		}
	}
	var all sync.WaitGroup
	defer all.Wait()
	ctx, end := context.WithCancel(ctx)
	defer end()
	seen := newSampler(s.url, s.rec)
	if c.scenario.habits.next > 0 {
		seen.found, seen.within = s.findings, 3*time.Second
		if s.o.disturbed() {
			seen.within = 30 * time.Second // a frozen node keeps its locks for 20
		}
	}
	all.Go(func() { seen.run(ctx) })
	all.Go(func() { s.wake(ctx, c.jobs) })
	crowd, dismiss := context.WithCancel(ctx)
	defer dismiss()
	over := make(chan struct{})
	var working sync.WaitGroup
	working.Go(func() { c.run(crowd, over) })

	s.o.Log("%d nodes, %d users, %d programs for %v", s.o.Nodes, s.o.Users, s.o.Agents, s.o.For)
	storm := s.rage(ctx, c.scenario, seen)
	healed()
	r.Faults, r.Skipped = storm.struck, storm.skipped
	if s.o.disturbed() {
		quiet := cmp.Or(s.o.Recovery, checker.Recovery) + quietFor
		s.o.Log("%d faults; everything is healed, and everybody works on for %v", total(r.Faults), quiet)
		wait(ctx, quiet)
	}
	close(over)
	if ctx.Err() != nil {
		return h, errInterrupted
	}
	s.o.Log("waiting for pending requests")
	if err := s.settle(ctx); err != nil {
		return h, err
	}
	dismiss()
	working.Wait()
	r.Rescued, r.RescuedKnown = s.rescued(ctx)
	left, err := s.databaseNow(ctx)
	if err != nil {
		return h, err
	}
	s.receiver.close() // what is reported while nodes leave is not judged
	s.drainAll()
	end()
	all.Wait()
	if last := c.scenario.close; last != nil {
		if err := last(s, s.ctx); err != nil {
			return h, err
		}
	}
	h, err = s.read(s.ctx)
	h.Tables.Left = left
	return h, err
}

// quietFor is how long everybody works on when faults are no excuse any more: everything that happens then must be
// pushed.
const quietFor = 10 * time.Second

// wait sleeps for a time, or until ctx ends.
func wait(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// rage breaks things for as long as users are to work. Without faults it only waits.
func (s *stage) rage(ctx context.Context, scenario Scenario, seen *sampler) *storm {
	ctx, cancel := context.WithTimeout(ctx, s.o.For)
	defer cancel()
	storm := &storm{stage: s, ctx: ctx, scenario: scenario, seen: seen, struck: map[string]int{}}
	if s.logIns != nil && s.o.faults() {
		s.logIns.trouble.during(true)
		defer s.logIns.trouble.during(false)
	}
	storm.run()
	return storm
}

// createTasks creates the tasks, before anything breaks.
func (c *crowd) createTasks(ctx context.Context) error {
	if err := c.books.open(ctx, c.url); err != nil {
		return err
	}
	m := c.manager(1)
	for _, j := range c.jobs {
		if err := m.insist(ctx, request{method: http.MethodPost, path: "/api/v1/tasks", body: j.settings}); err != nil {
			return fmt.Errorf("create the task %s: %w", j.name, err)
		}
		if r := j.ranking(); r != nil {
			c.rec.Add(history.Entry{Ranking: r})
		}
	}
	conn, err := pgx.Connect(ctx, c.url)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	var n int
	if err := conn.QueryRow(ctx, `select count(*) from getwork.task_state`).Scan(&n); err != nil || n != len(c.jobs) {
		return errors.Join(err, fmt.Errorf("%d of %d tasks could be created", n, len(c.jobs)))
	}
	return nil
}

// removePrograms removes what was built for a run from its folder.
func removePrograms(dir string, o Options) (err error) {
	built := []string{newerProgram, newerSource, newerOverlay}
	if o.Binary == "" {
		built = append(built, "getwork")
	}
	for _, name := range built {
		if one := os.Remove(filepath.Join(dir, name)); !errors.Is(one, fs.ErrNotExist) {
			err = errors.Join(err, one)
		}
	}
	return err
}
