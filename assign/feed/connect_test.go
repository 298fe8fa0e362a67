package feed

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"getwork/assign"
	"getwork/schema/schematest"
)

// However many users connect while the database is busy, each gets their own snapshot.
func TestManyConnectAtOnce(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := startNode(t, url, NodeOptions{})
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
		return n.Feed.snapshots.Queued() == many-1
	})
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	starting.Wait()
}
