package engine

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
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
		r.nodes = append(r.nodes, startNode(t, url, nodeOptions{MaxRuns: 1, Steps: steps}))
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

// A manager's previews and a worker's claims of slow queries leave all run slots to clicks.
func TestPreviewsAndClaimsTakeNoRunSlot(t *testing.T) {
	t.Parallel()
	for _, where := range []string{"here", "elsewhere"} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			url := schematest.URL(t)
			db := pool(t, url)
			execute(t, db, `create table loan as select 1 as id`)
			var o nodeOptions
			if where == "elsewhere" {
				o.Queries = reader(t, url, "loan")
			}
			n := startNode(t, url, o)
			newTask(t, n, "slow", `select id as item, pg_sleep(60) from loan`, nil)
			newTask(t, n, "quick", `select id as item from loan`, nil)
			asking, stop := context.WithCancel(t.Context())
			ended := make(chan error, 3*n.MaxRuns)
			for i := range cap(ended) {
				go func() {
					var err error
					switch i % 3 {
					case 0:
						_, err = n.Ranker.Preview(asking, "slow", nil, 1)
					case 1:
						_, _, err = n.Claim(asking, "slow", fmt.Sprint("random", i), assign.Who{Holder: assign.Holder{User: "bob"}, Anything: true})
					case 2:
						_, err = n.Explain(asking, "slow", "1")
					}
					ended <- err
				}()
			}
			sleeping := func() int {
				return query[int](t, db, `select count(*) from pg_stat_activity where datname = current_database() and state = 'active' and query like '%pg_sleep(60)%' and pid <> pg_backend_pid()`)
			}
			await(t, "a slow query is executed", func() bool { return sleeping() > 0 })
			if r := n.endedRequest(t, n.click(t, "quick", "ann", 1).ID); r.State != assign.Assigned {
				t.Errorf("the click beside them is %s", r.State)
			}
			if got := sleeping(); got != 1 {
				t.Errorf("%d of them execute their queries at once, want 1", got)
			}
			stop()
			for range cap(ended) {
				if <-ended == nil {
					t.Error("one ended without an error")
				}
			}
			await(t, "all run slots are free", func() bool { return n.slots.freeSlots() == n.MaxRuns })
		})
	}
}

// The slot goes to each user in turn, however much one of them asks for; and who gets none in ten seconds is refused.
func TestAskersTakeTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := askSlot{last: map[string]int{}}
		var mu sync.Mutex
		var order []string
		note := func(s string) {
			mu.Lock()
			defer mu.Unlock()
			order = append(order, s)
		}
		ask := func(user string) {
			go func() {
				if err := s.take(t.Context(), user); err != nil {
					wantKind(t, err, assign.Busy)
					note("not " + user)
					return
				}
				note(user)
			}()
			synctest.Wait()
		}
		for _, user := range []string{"mia", "mia", "mia", "ann", "mia", "bob", "ann"} {
			ask(user)
		}
		for range 3 {
			s.giveBack()
			synctest.Wait()
		}
		ask("cyd")
		for range 3 {
			s.giveBack()
			synctest.Wait()
		}
		time.Sleep(askWait) // in the bubble it takes no time
		synctest.Wait()
		if got, want := strings.Join(order, ", "), "mia, ann, bob, mia, cyd, ann, mia, not mia"; got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		s.giveBack()
		ask("ann")
		if got := order[len(order)-1]; got != "ann" || len(s.last) != 1 {
			t.Errorf("when all is over it was given to %s, and the turns of %d users are known", got, len(s.last))
		}
	})
}
