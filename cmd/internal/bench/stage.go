package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/schema"
)

// stage is a fresh getwork that something is measured on: a schema of its own, nodes, and a table with things to be done.
type stage struct {
	env   *Env
	nodes *Nodes
	conn  *pgx.Conn
	name  schema.Name
}

// stage sets one up. leave ends and drops all of it.
func (e *Env) stage(ctx context.Context, nodes int, flags ...string) (s *stage, leave func(), err error) {
	name, drop, err := e.Schema(ctx)
	if err != nil {
		return nil, nil, err
	}
	s = &stage{env: e, name: schema.Name(name)}
	leave = func() {
		if s.conn != nil {
			_ = s.conn.Close(context.WithoutCancel(ctx))
		}
		if s.nodes != nil {
			s.nodes.Stop()
		}
		drop()
	}
	if s.nodes, err = e.Start(ctx, name, nodes, flags...); err == nil {
		s.conn, err = e.Connect(ctx)
	}
	if err != nil {
		leave()
		return nil, nil, err
	}
	return s, leave, nil
}

// sql has "getwork." stand for the stage's schema.
func (s *stage) sql(query string) string { return s.name.SQL(query) }

func (s *stage) exec(ctx context.Context, query string, args ...any) error {
	_, err := s.conn.Exec(ctx, s.sql(query), args...)
	return err
}

const makeItems = `
create table getwork.bench_item (item bigint primary key, customer text not null, amount numeric not null)`

const fillItems = `
insert into getwork.bench_item
select g, 'customer ' || g % 5000, (g % 100000) / 100.0
from generate_series(1, $1::bigint) g`

// makeItems fills the table that ranking queries read.
func (s *stage) makeItems(ctx context.Context, n int) error {
	err := s.exec(ctx, makeItems)
	if err == nil {
		err = s.exec(ctx, fillItems, n)
	}
	if err == nil {
		err = s.exec(ctx, `vacuum analyze getwork.bench_item`)
	}
	if err != nil {
		return fmt.Errorf("make %d items: %w", n, err)
	}
	return nil
}

// itemsQuery is a ranking query that is cheap, and returns all items.
const itemsQuery = `select item, customer, amount from getwork.bench_item order by item`

// task makes a task with a query and settings beside the usual ones.
func (s *stage) task(ctx context.Context, name, query string, settings map[string]any) error {
	task := map[string]any{"name": name, "query": s.sql(query), "max_request": 10, "query_timeout": "10m"}
	maps.Copy(task, settings)
	return s.nodes.CreateTask(ctx, task)
}

// fillShelf has the task's query run, by one click, and returns when that is answered.
func (s *stage) fillShelf(ctx context.Context, task string) (items []int64, err error) {
	u, err := openUser(ctx, s.nodes.URL(0), task, "first", 1)
	if err != nil {
		return nil, err
	}
	defer u.close()
	if _, err := u.click(); err != nil {
		return nil, fmt.Errorf("fill the shelf: %w", err)
	}
	return u.items, nil
}

// ranking is one execution of a task's query.
type ranking struct {
	State      string     `json:"state"`
	StartedAt  time.Time  `json:"started_at"`
	FinishedAt *time.Time `json:"finished_at"`
	Candidates *int       `json:"candidates"`
	Error      *string    `json:"error"`
}

// runs are the task's, the latest first.
func (s *stage) runs(ctx context.Context, task string) ([]ranking, error) {
	var found struct{ Runs []ranking }
	status, body, err := ask(ctx, http.MethodGet, s.nodes.URL(0)+"/api/v1/tasks/"+task+"/runs", nil)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("the node answers %d: %s", status, body)
	}
	if err == nil {
		err = json.Unmarshal(body, &found)
	}
	if err != nil {
		return nil, fmt.Errorf("read the runs of %s: %w", task, err)
	}
	for _, r := range found.Runs {
		if r.Error != nil {
			return nil, fmt.Errorf("a run of %s failed: %s", task, *r.Error)
		}
	}
	return found.Runs, nil
}
