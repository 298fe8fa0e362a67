package engine

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"getwork/assign"
	"getwork/schema/schematest"
	"getwork/schema/schematest/timeout"
)

// rivals are nodes with one run slot each, and tasks that always have a waiting request: as soon as a run has committed, and
// before its node looks again, the next request comes. Runs begin, and wait until the test lets them go on.
type rivals struct {
	nodes []*node
	tasks []string
	began []chan string // of each node: the tasks whose runs have begun
	goOn  []chan struct{}
	db    *pgxpool.Pool
}

func newRivals(t *testing.T, nodes, tasks int) *rivals {
	t.Helper()
	url := schematest.URL(t)
	r := &rivals{db: pool(t, url)}
	for i := range nodes {
		r.began, r.goOn = append(r.began, make(chan string)), append(r.goOn, make(chan struct{}))
		var task string // of its run: the node has one slot
		var again int
		steps := func(ctx context.Context, step Step) {
			switch step {
			case StepRunBegins:
				const mine = `select s.name from getwork.run u join getwork.task_state s using (task_id) where u.node = $1 order by u.id desc limit 1`
				if err := r.db.QueryRow(ctx, mine, r.nodes[i].Node).Scan(&task); err != nil {
					t.Error(err)
				}
				select {
				case r.began[i] <- task:
				case <-ctx.Done():
				}
				select {
				case <-r.goOn[i]:
				case <-ctx.Done():
				}
			case StepCommitted:
				again++
				if err := r.ask(ctx, i, task, fmt.Sprintf("user %d %d", i, again)); err != nil {
					t.Error(err)
				}
			}
		}
		r.nodes = append(r.nodes, startNode(t, url, nodeOptions{maxRuns: 1, steps: steps}))
	}
	for i := range tasks {
		r.tasks = append(r.tasks, fmt.Sprintf("task-%d", i))
		newTask(t, r.nodes[0], r.tasks[i], numbers, nil)
	}
	return r
}

// ask inserts a request of a new user of the task.
func (r *rivals) ask(ctx context.Context, node int, task, user string) error {
	q, err := r.nodes[node].GetWork(ctx, task, assign.Click{Holder: assign.Holder{User: user}, Count: 1})
	if err == nil && q.State != assign.Pending {
		err = fmt.Errorf("%s of %s: %s", user, task, q.State)
	}
	return err
}

// begins waits until a run of that node begins.
func (r *rivals) begins(t *testing.T, node int) (task string) {
	t.Helper()
	select {
	case task = <-r.began[node]:
	case <-time.After(timeout.Scale(60 * time.Second)):
		t.Fatalf("no run begins at node %d", node)
	}
	return task
}

// next lets the node's run end, and waits until another begins there.
func (r *rivals) next(t *testing.T, node int) (task string) {
	t.Helper()
	r.goOn[node] <- struct{}{}
	return r.begins(t, node)
}

// order returns the tasks that have had a run, in order.
func (r *rivals) order(t *testing.T) string {
	t.Helper()
	return query[string](t, r.db, `select string_agg(s.name, ' ' order by u.id) from getwork.run u join getwork.task_state s using (task_id)`)
}

// No request waits for a run slot longer than one run of each task in front of it: the task that has just had the slot queues
// behind all that waited by then.
func TestAPlaceGoesToWhoHasWaitedForLongest(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	r := newRivals(t, 1, 4)
	for i, task := range r.tasks {
		if err := r.ask(t.Context(), 0, task, "first"); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			r.begins(t, 0)
		}
	}
	for i := range 11 {
		if got, want := r.next(t, 0), r.tasks[(i+1)%len(r.tasks)]; got != want {
			t.Fatalf("order of runs: %s", r.order(t))
		}
	}
}

// The same over several nodes, each of which hands its slot to a task of any node, even one that it has not heard of.
func TestPlacesOfSeveralNodesGoToWhoHasWaitedForLongest(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	r := newRivals(t, 2, 5)
	for i, task := range r.tasks {
		if err := r.ask(t.Context(), 0, task, "first"); err != nil {
			t.Fatal(err)
		}
		if i < 2 { // the second finds no slot on its node, and the other node has one
			r.begins(t, i)
		}
	}
	runs := map[string]map[string]int{} // of other tasks, while a request waits for this one
	for _, task := range r.tasks[2:] {
		runs[task] = map[string]int{}
	}
	under := []string{r.tasks[0], r.tasks[1]}
	for i := range 24 {
		node := i / 3 % 2                    // three of one, three of the other
		runs[under[node]] = map[string]int{} // the next request comes when its run has ended
		task := r.next(t, node)
		under[node] = task
		for other, n := range runs[task] {
			if n > 1 {
				t.Errorf("%s had %d runs while somebody waited for %s: %s", other, n, task, r.order(t))
			}
		}
		delete(runs, task)
		for _, others := range runs {
			others[task]++
		}
	}
}

// Callers that want a query's result stand in the same line.
func TestAPreviewStandsInLine(t *testing.T) {
	t.Parallel()
	r := newRivals(t, 1, 2)
	n := r.nodes[0]
	if err := r.ask(t.Context(), 0, r.tasks[0], "first"); err != nil {
		t.Fatal(err)
	}
	r.begins(t, 0)
	seen := make(chan error, 1)
	go func() {
		_, err := n.Ranker.Preview(t.Context(), r.tasks[1], nil, 1)
		seen <- err
	}()
	await(t, "the preview stands in line", func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return len(n.slots.line) > 0
	})
	if err := r.ask(t.Context(), 0, r.tasks[1], "behind it"); err != nil {
		t.Fatal(err)
	}
	r.next(t, 0)
	if err := <-seen; err != nil { // it would wait in vain if the run that has begun had been in front of it
		t.Error(err)
	}
}
