package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"
)

// compareWithin bounds each half of a comparison: the naive one gets as slow as its users are many.
const compareWithin = 15 * time.Minute

// half is what was measured of one way to hand out work.
type half struct {
	queries  int
	outcomes []outcome
	cpu      time.Duration // of PostgreSQL
	measured bool          // the system tells cpu
}

// outcome is what became of one user's click.
type outcome struct {
	items []string
	wait  time.Duration // from the click to the answer
	err   error         // why there was none
}

// compare lets the same users click twice: each with a query of his own and no lock, as a program does that thinks
// of one user only; and on the nodes. Then it prints both side by side.
func (d *demo) compare(ctx context.Context) error {
	naive, err := d.naiveHalf(ctx)
	if err != nil {
		return fmt.Errorf("naive run: %w", err)
	}
	shared, err := d.realHalf(ctx)
	if err != nil {
		return fmt.Errorf("run on the nodes: %w", err)
	}
	d.progress.end()
	return d.printComparison(naive, shared)
}

// clicks has every user click at his time, evenly spread, and waits for all of them. It is an error when nobody was
// served.
func (d *demo) clicks(ctx context.Context, what string, click func(ctx context.Context, user int) ([]string, error)) ([]outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, compareWithin)
	defer cancel()
	outcomes := make([]outcome, d.Users)
	var mu sync.Mutex
	served := 0
	step := func(more int) {
		mu.Lock()
		defer mu.Unlock()
		served += more
		d.progress.part(what, int64(served), int64(d.Users))
	}
	step(0)
	var users sync.WaitGroup
	began := time.Now()
	for i := range outcomes {
		users.Go(func() {
			at := began.Add(d.Within * time.Duration(i) / time.Duration(d.Users))
			select {
			case <-time.After(time.Until(at)):
			case <-ctx.Done():
				outcomes[i].err = ctx.Err()
				return
			}
			clicked := time.Now()
			items, err := click(ctx, i)
			outcomes[i] = outcome{items, time.Since(clicked), err}
			if err == nil {
				step(1)
			}
		})
	}
	users.Wait()
	if served == 0 {
		return nil, fmt.Errorf("nobody was served: %w", errors.Join(outcomes[0].err, context.Cause(ctx)))
	}
	return outcomes, nil
}

// figures are the cells of one half, in the order of the table's rows.
func (h half) figures() []string {
	var items []string
	var waits []time.Duration
	for _, o := range h.outcomes {
		if o.err == nil {
			items = append(items, o.items...)
			waits = append(waits, o.wait)
		}
	}
	slices.Sort(waits)
	assigned := len(items)
	slices.Sort(items)
	duplicates := assigned - len(slices.Compact(items))
	cpu := "n/a"
	if h.measured {
		cpu = fmt.Sprintf("%.1f s", h.cpu.Seconds())
	}
	seconds := func(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }
	return []string{strconv.Itoa(h.queries), strconv.Itoa(assigned), strconv.Itoa(duplicates), seconds(waits[len(waits)/2]),
		seconds(waits[len(waits)-1]), strconv.Itoa(len(h.outcomes) - len(waits)), cpu}
}

func (d *demo) printComparison(naive, shared half) error {
	names := []string{"queries run", "assignments", "duplicate assignments", "wait of the median user", "longest wait", "users not served", "CPU time of PostgreSQL"}
	left, right := naive.figures(), shared.figures()
	rows := make([][]string, len(names))
	for i, name := range names {
		rows[i] = []string{name, left[i], right[i]}
	}
	_, err := fmt.Fprintf(d.out, `%d users click within %s, each for %d items of %q, on %d nodes and a machine of %d cores.
Naively each runs the query for himself and inserts what is on top; with getwork one runs it for all who wait.
A duplicate is an item that somebody else got, too. Waits count from the click. Both began with warm caches.

`, d.Users, d.Within, d.Count, firstTask, d.Nodes, runtime.NumCPU())
	if err != nil {
		return err
	}
	if err := table(d.out, []string{"", "NAIVE", "GETWORK"}, rows); err != nil {
		return err
	}
	for _, h := range []half{naive, shared} {
		for _, o := range h.outcomes {
			if o.err != nil {
				_, err = fmt.Fprintf(d.out, "\nnot served: %v\n", o.err)
				break
			}
		}
	}
	return err
}
