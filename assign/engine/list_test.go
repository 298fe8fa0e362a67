package engine

import (
	"context"
	"sync"
	"testing"

	"getwork/schema/schematest"
)

// When all pages read the list of tasks at once because it has changed, that takes one connection, and not all those that
// clicks need.
func TestTheListOfTasksIsReadForAllAtOnce(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n, db := startNode(t, url, nodeOptions{}), pool(t, url)
	newTask(t, n, "task", numbers, nil)
	lock, err := db.Begin(t.Context()) // so that reading takes a while
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Rollback(context.Background()) }()
	if _, err := lock.Exec(t.Context(), `lock table getwork.task_version in access exclusive mode`); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	ask := func() {
		if tasks, err := n.Tasks(t.Context()); err != nil || len(tasks) != 1 {
			t.Errorf("%d tasks, %v", len(tasks), err)
		}
	}
	all.Go(ask)
	await(t, "they are read", func() bool {
		return schematest.LockWaits(t, db) > 0
	})
	for range 49 {
		all.Go(ask)
	}
	await(t, "the others wait for the next reading", func() bool { return n.Queued() == 49 })
	if busy := n.pools.API.Stat().AcquiredConns(); busy != 1 {
		t.Errorf("it takes %d connections", busy)
	}
	if err := lock.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	all.Wait()
}
