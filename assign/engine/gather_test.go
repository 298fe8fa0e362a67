package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"getwork/assign"
	"getwork/schema/schematest"
)

// Those who ask while a read is under way are answered by the next one, together, each with his own.
func TestGather(t *testing.T) {
	t.Parallel()
	n := startNode(t, schematest.URL(t), nodeOptions{mute: true})
	reading, read := make(chan []int), make(chan error)
	g := &gather[int, string]{engine: n.Engine, read: func(ctx context.Context, asked []int) (answers []string, err error) {
		select {
		case reading <- asked:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		for _, i := range asked {
			answers = append(answers, fmt.Sprint("to ", i))
		}
		return answers, <-read
	}}
	var asking sync.WaitGroup
	ask := func(i int, want error) {
		asking.Go(func() {
			if got, err := g.ask(t.Context(), i); !errors.Is(err, want) || err == nil && got != fmt.Sprint("to ", i) {
				t.Errorf("%d is told %q, %v", i, got, err)
			}
		})
	}
	queued := func(want int) {
		await(t, "all have asked", func() bool {
			g.mu.Lock()
			defer g.mu.Unlock()
			return len(g.queue) == want
		})
	}
	ask(0, nil)
	if first := <-reading; !slices.Equal(first, []int{0}) {
		t.Errorf("the first read is for %v", first)
	}
	for i := range 2 * addAtOnce {
		ask(i, nil)
	}
	queued(2 * addAtOnce)
	impatient, leave := context.WithCancel(t.Context())
	leave()
	if _, err := g.ask(impatient, -1); !errors.Is(err, context.Canceled) {
		t.Errorf("who does not wait is told %v", err)
	}
	read <- nil
	for _, want := range []int{addAtOnce, addAtOnce, 1} {
		if together := <-reading; len(together) != want {
			t.Errorf("a read for %d, want %d", len(together), want)
		}
		read <- nil
	}
	asking.Wait()

	broken := errors.New("the database is away")
	ask(7, broken)
	<-reading
	read <- broken
	asking.Wait()
	await(t, "nobody reads", func() bool { g.mu.Lock(); defer g.mu.Unlock(); return !g.busy })
	n.stop()
	if _, err := g.ask(t.Context(), 1); !errors.Is(err, errEnding) {
		t.Errorf("a node that has ended says %v", err)
	}
}

// However many connect while the database is busy, each gets his own snapshot.
func TestManyConnectAtOnce(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	db := pool(t, url)
	newTask(t, n, "task", numbers, func(s *assign.Settings) { s.Paused = true })
	tx, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const many = 50
	for i := range many {
		if _, err := n.GetWork(t.Context(), "task", assign.Click{Holder: assign.Holder{User: fmt.Sprint("user ", i)}, Count: 1 + i%5, Linger: assign.MaxLinger}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := tx.Exec(t.Context(), `lock table getwork.work in access exclusive mode`); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	var starting sync.WaitGroup
	start := func(i int) {
		f := follow(t, n, fmt.Sprint("user ", i))
		starting.Go(func() {
			if err := f.Start(t.Context(), "worker"); err != nil {
				t.Error(err)
			}
			p := f.next("the snapshot", ofType("snapshot")).Body.(assign.Pipeline)
			if len(p.Requests) != 1 || p.Requests[0].Wanted != 1+i%5 || *p.Requests[0].Position != int64(i+1) {
				t.Errorf("user %d is shown %+v", i, p.Requests)
			}
		})
	}
	start(0)
	await(t, "the first one's read waits", func() bool {
		return query[bool](t, db, `select exists (select from pg_locks join pg_stat_activity using (pid) where datname = current_database() and not granted)`)
	})
	for i := 1; i < many; i++ {
		start(i)
	}
	await(t, "the others wait for the first", func() bool {
		n.Feed.snapshots.mu.Lock()
		defer n.Feed.snapshots.mu.Unlock()
		return len(n.Feed.snapshots.queue) == many-1
	})
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	starting.Wait()
}
