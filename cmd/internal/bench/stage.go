package bench

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/cmd/internal/node"
	"getwork/schema"
)

// schemaPrefix begins the names of all schemas of a bench.
const schemaPrefix = "getwork_bench_"

// stage is a fresh getwork to be measured: a schema of its own, and nodes.
type stage struct {
	*Env
	name     schema.Name
	conn     *pgx.Conn
	queryURL string // where queries have a login of their own; empty: they use the node's
	nodes    []*node.Node

	mu    sync.Mutex
	given map[string][]int64 // the items that were handed out, by task
}

// on sets up a stage, calls do on it, and drops all of it, even after Ctrl-C. Without nodes it still creates the
// schema.
func (e *Env) on(ctx context.Context, nodes int, do func(s *stage) error) (err error) {
	b := make([]byte, 4)
	_, _ = rand.Read(b)
	s := &stage{Env: e, name: schema.Name(schemaPrefix + hex.EncodeToString(b)), given: map[string][]int64{}}
	if s.conn, err = e.connect(ctx); err != nil {
		return err
	}
	defer s.leave(ctx)
	if s.queryLogin {
		err = s.makeQueryLogin(ctx)
	}
	switch {
	case err != nil:
	case nodes == 0:
		err = schema.Up(ctx, s.conn, s.name)
	default:
		err = s.start(ctx, nodes)
	}
	if err != nil {
		return err
	}
	return do(s)
}

func (s *stage) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpWithin)
	defer cancel()
	s.kill()
	_ = s.conn.Close(ctx)
	left := []string{"drop schema if exists " + s.name.Quoted() + " cascade"}
	if s.queryURL != "" {
		left = append(left, "drop role "+s.name.Quoted())
	}
	conn, err := s.connect(ctx) // Ctrl-C may have ended the other connection
	if err == nil {
		for err == nil && len(left) > 0 {
			if _, err = conn.Exec(ctx, left[0]); err == nil {
				left = left[1:]
			}
		}
		_ = conn.Close(ctx)
	}
	if err != nil {
		s.log("something named %s is left behind; remove it with: %s (%v)", s.name, strings.Join(left, "; "), err)
	}
}

// sql replaces "getwork." by the stage's schema.
func (s *stage) sql(query string) string { return s.name.SQL(query) }

// exec executes statements one after the other; the arguments belong to the last one.
func (s *stage) exec(ctx context.Context, what string, statements []string, args ...any) error {
	for i, statement := range statements {
		var of []any
		if i == len(statements)-1 {
			of = args
		}
		if _, err := s.conn.Exec(ctx, s.sql(statement), of...); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
	}
	return nil
}

// call makes a call that is not measured. An answer with another status than the wanted one is an error.
func (s *stage) call(ctx context.Context, i int, user, method, path string, body any, want int) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, method, s.nodes[i].URL+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	shown, err := s.show(ctx, user, "manager")
	if err != nil {
		return err
	}
	r.Header = shown.Clone()
	answer, err := caller.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if text, err = io.ReadAll(answer.Body); err == nil && answer.StatusCode != want {
		err = fmt.Errorf("%s %s is answered %d: %s", method, path, answer.StatusCode, text)
	}
	return err
}

var caller = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: clickers}}

const (
	makeItems = `
create table if not exists getwork.bench_item (item bigint primary key, customer text not null, amount numeric not null)`

	fillItems = `
insert into getwork.bench_item
select g, 'customer ' || g % 5000, (g % 100000) / 100.0
from generate_series(1, $1::bigint) g`

	// A cheap ranking query that returns all items.
	itemsQuery = `select item, customer, amount from getwork.bench_item order by item`
)

// makeItems creates the table that ranking queries read.
func (s *stage) makeItems(ctx context.Context, n int) error {
	if err := s.exec(ctx, "make items", []string{makeItems, fillItems}, n); err != nil {
		return err
	}
	if err := s.letQueriesRead(ctx, "bench_item"); err != nil {
		return err
	}
	return s.exec(ctx, "make items", []string{`vacuum analyze getwork.bench_item`})
}

// task creates a task with at most that many candidates, whose shelf stays fresh for that long.
func (s *stage) task(ctx context.Context, name, query string, candidates int, fresh time.Duration) error {
	settings := map[string]any{"name": name, "query": s.sql(query), "max_candidates": candidates, "fresh_for": fresh.String(),
		"max_request": 10, "query_timeout": "10m"}
	return s.call(ctx, 0, "bench", http.MethodPost, "/api/v1/tasks", settings, http.StatusCreated)
}

// fill creates a task, and has its query run.
func (s *stage) fill(ctx context.Context, task, query string, candidates int, fresh time.Duration) error {
	if err := s.task(ctx, task, query, candidates, fresh); err != nil {
		return err
	}
	return s.firstClick(ctx, task)
}

// firstClick has a task's query run, and returns when that click is answered.
func (s *stage) firstClick(ctx context.Context, task string) error {
	u, err := s.user(ctx, 0, task, "first", 1)
	if err != nil {
		return err
	}
	defer u.close()
	if _, err := u.click(); err != nil {
		return fmt.Errorf("fill the shelf: %w", err)
	}
	return nil
}

// untilEnd is longer than any measurement, so that a shelf stays fresh.
const untilEnd = 24 * time.Hour

// shelf makes that many items, and a task with all of them on its shelf.
func (s *stage) shelf(ctx context.Context, task string, items int) error {
	if err := s.makeItems(ctx, items); err != nil {
		return err
	}
	return s.fill(ctx, task, itemsQuery, items, untilEnd)
}

// run is one execution of a task's query.
type run struct {
	Started  time.Time
	Finished *time.Time // nil: it is under way
	Error    *string
}

const selectRuns = `
select r.started_at, r.finished_at, r.error
from getwork.run r join getwork.task_state t using (task_id)
where t.name = $1
order by r.id desc`

// runs returns the task's runs, the latest first.
func (s *stage) runs(ctx context.Context, task string) ([]run, error) {
	rows, err := s.conn.Query(ctx, s.sql(selectRuns), task)
	if err != nil {
		return nil, fmt.Errorf("read the runs of %s: %w", task, err)
	}
	runs, err := pgx.CollectRows(rows, pgx.RowToStructByPos[run])
	if err != nil {
		return nil, fmt.Errorf("read the runs of %s: %w", task, err)
	}
	for _, r := range runs {
		if r.Error != nil {
			return nil, fmt.Errorf("a run of %s failed: %s", task, *r.Error)
		}
	}
	return runs, nil
}

// underWay reports whether a run was under way at some time between two times.
func underWay(runs []run, from, to time.Time) bool {
	for _, r := range runs {
		if r.Started.Before(to) && (r.Finished == nil || r.Finished.After(from)) {
			return true
		}
	}
	return false
}
