package stage

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/cmd/internal/node"
	"getwork/schema"
	"getwork/ws/client"
)

// SchemaPrefix begins the names of all schemas of a bench.
const SchemaPrefix = "getwork_bench_"

// Stage is a fresh getwork to be measured: a schema of its own, and nodes.
type Stage struct {
	*Env
	Name  schema.Name
	Conn  *pgx.Conn
	Nodes []*node.Node

	mu    sync.Mutex
	Given map[string][]int64 // the items that were handed out, by task
}

// On sets up a stage, calls do on it, and drops all of it, even after Ctrl-C. Without nodes it still creates the
// schema.
func (e *Env) On(ctx context.Context, nodes int, do func(s *Stage) error) (err error) {
	b := make([]byte, 4)
	_, _ = rand.Read(b)
	s := &Stage{Env: e, Name: schema.Name(SchemaPrefix + hex.EncodeToString(b)), Given: map[string][]int64{}}
	if s.Conn, err = e.Connect(ctx); err != nil {
		return err
	}
	defer s.leave(ctx)
	if nodes == 0 {
		err = schema.Up(ctx, s.Conn, s.Name)
	} else {
		err = s.Start(ctx, nodes)
	}
	if err != nil {
		return err
	}
	return do(s)
}

func (s *Stage) leave(ctx context.Context) {
	s.Kill()
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpWithin) // a server that hangs must not keep us
	defer cancel()
	_ = s.Conn.Close(closing)
	s.Drop(ctx, "schema if exists "+s.Name.Quoted()+" cascade")
}

// Drop drops something that was made for a measurement. If it can't, it logs how to.
func (e *Env) Drop(ctx context.Context, what string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpWithin)
	defer cancel()
	conn, err := e.Connect(ctx) // Ctrl-C may have ended the other connection
	if err == nil {
		_, err = conn.Exec(ctx, "drop "+what)
		_ = conn.Close(ctx)
	}
	if err != nil {
		e.Logf("something is left behind; remove it with: drop %s (%v)", what, err)
	}
}

// SQL replaces "getwork." by the stage's schema.
func (s *Stage) SQL(query string) string { return s.Name.SQL(query) }

// Exec executes statements one after the other; the arguments belong to the last one.
func (s *Stage) Exec(ctx context.Context, what string, statements []string, args ...any) error {
	for i, statement := range statements {
		var of []any
		if i == len(statements)-1 {
			of = args
		}
		if _, err := s.Conn.Exec(ctx, s.SQL(statement), of...); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
	}
	return nil
}

// Call makes a POST that is not measured.
func (s *Stage) Call(ctx context.Context, i int, user, role, path string, body any) error {
	shown, err := s.Show(ctx, user, role)
	if err != nil {
		return err
	}
	return s.Client(i).Do(ctx, http.MethodPost, path, body, nil, append(As(shown), client.Within(0))...)
}

// Client returns a client of a node for calls that are not measured.
func (s *Stage) Client(i int) *client.Client {
	return &client.Client{URL: s.Nodes[i].URL, HTTP: caller}
}

// As returns the options of a call with the headers that Show returned.
func As(shown http.Header) (all []client.Option) {
	for name := range shown {
		all = append(all, client.Header(name, shown.Get(name)))
	}
	return all
}

// caller keeps as many connections as there are calls at once, when thousands of users click.
var caller = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 32}}

const (
	makeItems = `
create table if not exists getwork.bench_item (item bigint primary key, customer text not null, amount numeric not null)`

	fillItems = `
insert into getwork.bench_item
select g, 'customer ' || g % 5000, (g % 100000) / 100.0
from generate_series(1, $1::bigint) g`

	// ItemsQuery is a cheap ranking query that returns all items.
	ItemsQuery = `select item, customer, amount from getwork.bench_item order by item`
)

// MakeItems creates the table that ranking queries read.
func (s *Stage) MakeItems(ctx context.Context, n int) error {
	if err := s.Exec(ctx, "make items", []string{makeItems, fillItems}, n); err != nil {
		return err
	}
	return s.MakeReadable(ctx, "bench_item")
}

// MakeReadable readies a filled table for ranking queries: it is vacuumed, and their login can read it.
func (s *Stage) MakeReadable(ctx context.Context, table string) error {
	statements := []string{"vacuum analyze getwork." + table}
	if s.QueryLogin != "" {
		login := schema.Name(s.QueryLogin).Quoted()
		statements = append(statements, "grant usage on schema "+s.Name.Quoted()+" to "+login, "grant select on getwork."+table+" to "+login)
	}
	return s.Exec(ctx, "ready "+table, statements)
}

// Task creates a task with at most that many candidates, whose shelf stays fresh for that long.
func (s *Stage) Task(ctx context.Context, name, query string, candidates int, fresh time.Duration) error {
	settings := map[string]any{"name": name, "query": s.SQL(query), "max_candidates": candidates, "fresh_for": fresh.String(),
		"max_request": 10, "query_timeout": "10m"}
	return s.Call(ctx, 0, "bench", "manager", "/api/v1/tasks", settings)
}

// Fill creates a task, and has its query run.
func (s *Stage) Fill(ctx context.Context, task, query string, candidates int, fresh time.Duration) error {
	if err := s.Task(ctx, task, query, candidates, fresh); err != nil {
		return err
	}
	return s.FirstClick(ctx, task)
}

// FirstClick has a task's query run, and returns when that click is answered.
func (s *Stage) FirstClick(ctx context.Context, task string) error {
	u, err := s.User(ctx, 0, task, "first", 1)
	if err != nil {
		return err
	}
	defer u.Close()
	if _, err := u.Click(); err != nil {
		return fmt.Errorf("fill the shelf: %w", err)
	}
	return nil
}

// UntilEnd is longer than any measurement, so that a shelf stays fresh.
const UntilEnd = 24 * time.Hour

// Shelf makes that many items, and a task with all of them on its shelf.
func (s *Stage) Shelf(ctx context.Context, task string, items int) error {
	if err := s.MakeItems(ctx, items); err != nil {
		return err
	}
	return s.Fill(ctx, task, ItemsQuery, items, UntilEnd)
}

// Run is one execution of a task's query.
type Run struct {
	Started  time.Time
	Finished *time.Time // nil: it is under way
	Error    *string
}

const selectRuns = `
select r.started_at, r.finished_at, r.error
from getwork.run r join getwork.task_state t using (task_id)
where t.name = $1
order by r.id desc`

// Runs returns the task's runs, the latest first.
func (s *Stage) Runs(ctx context.Context, task string) ([]Run, error) {
	rows, err := s.Conn.Query(ctx, s.SQL(selectRuns), task)
	if err != nil {
		return nil, fmt.Errorf("read the runs of %s: %w", task, err)
	}
	runs, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Run])
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

// UnderWay reports whether a run was under way at some time between two times.
func UnderWay(runs []Run, from, to time.Time) bool {
	for _, r := range runs {
		if r.Started.Before(to) && (r.Finished == nil || r.Finished.After(from)) {
			return true
		}
	}
	return false
}

// Swapped reports whether a new shelf came between two times.
func Swapped(runs []Run, from, to time.Time) bool {
	return slices.ContainsFunc(runs, func(r Run) bool { return r.Finished != nil && r.Finished.After(from) && r.Finished.Before(to) })
}
