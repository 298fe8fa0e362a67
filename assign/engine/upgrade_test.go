package engine

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
	"getwork/schema/schematest"
)

// While a query runs and users work on all nodes, a newer version migrates: every table except task and work, with which the
// result is compared, is altered before the query goes on. Everybody is answered meanwhile, and the run ends as usual. A lock
// that the run kept on one of the tables would hold up the migration, and everybody behind it.
func TestMigrationBesideARunningQuery(t *testing.T) {
	schematest.Long(t)
	t.Parallel()
	url := schematest.URL(t)
	db := pool(t, url)
	nodes := []*node{startNode(t, url, nodeOptions{}), startNode(t, url, nodeOptions{})}
	execute(t, db, `create table loan as select i as id from generate_series(1, 200) i`)
	newTask(t, nodes[0], "long", `select id as item from loan, (select `+barrier+` offset 0) b order by id`, func(s *assign.Settings) {
		s.Recheck, s.FreshFor = `select unnest($1::text[]) as item`, assign.Duration(time.Hour)
	})
	newTask(t, nodes[0], "shelf", numbers, fresh(time.Hour))
	newInbox(t, nodes[0], "inbox", nil)
	nodes[0].take(t, "shelf", "somebody")
	runs, open := atBarrier(t, db)
	waiting := nodes[0].click(t, "long", "ann", 1)
	runs()

	ctx, end := context.WithCancel(t.Context())
	var people sync.WaitGroup
	defer people.Wait()
	defer end()
	answered := make(chan struct{}, 1000)
	for i, n := range nodes {
		people.Go(func() {
			for round := 0; ctx.Err() == nil; round++ {
				user := fmt.Sprintf("user %d %d", i, round%5)
				if err := workALittle(ctx, n, user, fmt.Sprintf("%d/%d", i, round)); err != nil && ctx.Err() == nil {
					t.Errorf("%s: %v", user, err)
					return
				}
				select {
				case answered <- struct{}{}:
				default:
				}
			}
		})
	}
	rows, err := db.Query(t.Context(), `select relname::text from pg_class where relnamespace = 'getwork'::regnamespace and relkind = 'r' and relname not in ('task', 'work') order by 1`)
	if err != nil {
		t.Fatal(err)
	}
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(tables) < 8 {
		t.Fatalf("tables %v, %v", tables, err)
	}
	for _, table := range tables {
		execute(t, db, `do $$ begin set local lock_timeout = '60s'; alter table getwork.`+table+` add column upgraded integer; end $$`)
		for range len(nodes) + 1 { // work that began afterwards
			<-answered
		}
	}
	runs() // it still does
	end()
	people.Wait()
	open()
	if r := nodes[0].endedRequest(t, waiting.ID); r.State != assign.Assigned || fmt.Sprint(items(r)) != "[1]" {
		t.Errorf("ann has waited for %s %v", r.State, items(r))
	}
}

// workALittle clicks for the task whose query runs and cancels the request, takes something from the shelf, and works on an
// item of its own.
func workALittle(ctx context.Context, n *node, user, item string) error {
	by := assign.Holder{User: user}
	r, err := n.GetWork(ctx, "long", assign.Click{Holder: by, Count: 1})
	if err != nil {
		return fmt.Errorf("click: %w", err)
	}
	if _, err := n.Cancel(ctx, r.ID, by, false); err != nil {
		return fmt.Errorf("cancel: %w", err)
	}
	if _, err := n.Push(ctx, "inbox", []assign.NewItem{{Item: item}}, boss); err != nil {
		return fmt.Errorf("push: %w", err)
	}
	w, _, err := n.Claim(ctx, "inbox", item, who(user))
	if err == nil {
		_, err = n.Dispose(ctx, w.ID, assign.Disposition{Outcome: "complete"}, by, false)
	}
	if err != nil {
		return fmt.Errorf("work on %s: %w", item, err)
	}
	_, err = n.Pipeline(ctx, by)
	return err
}
