package stage

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/cmd/internal/cluster"
	"getwork/cmd/internal/cputime"
	"getwork/schema/schematest"
)

func TestMain(m *testing.M) {
	code := schematest.Main(m)
	cluster.Clean()
	os.Exit(code)
}

// testEnv returns an Env with a database of this test's own, on a server whose processes are known.
func testEnv(t *testing.T) *Env {
	t.Helper()
	schematest.Long(t)
	return &Env{Binary: cluster.Binary(t), DatabaseURL: schematest.Empty(t), ServerPID: schematest.Server(t).PID(), Rounds: 1, Quick: true, Log: t.Logf}
}

// schemasOf returns the schemas of a bench that exist.
func schemasOf(t *testing.T, e *Env) []string {
	t.Helper()
	conn, err := e.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	rows, err := conn.Query(t.Context(), `select nspname::text from pg_namespace where starts_with(nspname, $1)`, SchemaPrefix)
	if err != nil {
		t.Fatal(err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// Ctrl-C ends the context that everything was made with; nodes and schema are removed all the same.
func TestLeaveAfterCancel(t *testing.T) {
	t.Parallel()
	e := testEnv(t)
	ctx, cancel := context.WithCancel(t.Context())
	var pid int
	err := e.On(ctx, 2, func(s *Stage) error {
		pid = s.Nodes[0].PID()
		if pid == s.Nodes[1].PID() || s.Nodes[0].URL == s.Nodes[1].URL {
			t.Error("the two nodes are one")
		}
		if before := schemasOf(t, e); len(before) != 1 {
			t.Errorf("there are the schemas %v", before)
		}
		cancel()
		return s.Conn.Ping(ctx)
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v", err)
	}
	if _, err := cputime.Process(pid); err == nil {
		t.Errorf("the node %d still runs", pid)
	}
	if left := schemasOf(t, e); len(left) > 0 {
		t.Errorf("schemas are left behind: %v", left)
	}
}

func TestNodeThatCanNotStart(t *testing.T) {
	t.Parallel()
	err := testEnv(t).On(t.Context(), 0, func(s *Stage) error { return s.Start(t.Context(), 1, "--auth", "nonsense") })
	if err == nil || !strings.Contains(err.Error(), "nonsense") {
		t.Errorf("the error is %v, without the node's output", err)
	}
}

// TestCheckFinds breaks the checked promises one after the other.
func TestCheckFinds(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	const task = "checked"
	err := testEnv(t).On(ctx, 1, func(s *Stage) error {
		if err := s.Shelf(ctx, task, 100); err != nil {
			return err
		}
		if _, err := s.Run(ctx, ctx, Load{Task: task, Users: 2, Most: 5}); err != nil {
			return err
		}
		if err := s.Check(ctx, task); err != nil {
			t.Errorf("nothing is wrong, and the check says: %v", err)
		}
		items := slices.Clone(s.Given[task])
		finds := func(what string, given ...int64) {
			t.Helper()
			s.Given[task] = given
			if err := s.Check(ctx, task); err == nil || !strings.Contains(err.Error(), what) {
				t.Errorf("the check says %v, want %q", err, what)
			}
		}
		exec := func(statement string) {
			t.Helper()
			if err := s.Exec(ctx, "break a promise", []string{statement}); err != nil {
				t.Fatal(err)
			}
		}
		finds("twice", append(slices.Clone(items), items[4])...)
		finds("or others", slices.Clone(items[1:])...)
		finds("or others", append(slices.Clone(items[1:]), 99)...)
		exec(`update getwork.work set rank = 19 - rank`)
		finds("went past", slices.Clone(items)...)
		exec(`update getwork.work set rank = 19 - rank`)
		exec(`insert into getwork.work_requested (task_id, user_name, wanted, requested) select max(id), 'forgotten', 1, 1 from getwork.task`)
		finds("never answered", slices.Clone(items)...)
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestTakeItems(t *testing.T) {
	t.Parallel()
	before := []int64{7}
	const good = `{"id":"5","state":"assigned","work":[{"item":"8","details":{}},{"item":"9","details":{}}]}`
	if items, err := TakeItems(before, []byte(good), 2); err != nil || !slices.Equal(items, []int64{7, 8, 9}) {
		t.Errorf("a good answer is read as %v, %v", items, err)
	}
	for name, body := range map[string]string{
		"another state":   strings.ReplaceAll(good, "assigned", "partial"),
		"too few":         strings.Replace(good, `{"item":"8","details":{}},`, "", 1),
		"an unknown item": strings.Replace(good, `"8"`, `"eight"`, 1),
	} {
		if _, err := TakeItems(before, []byte(body), 2); err == nil {
			t.Errorf("%s: it is accepted as a good answer", name)
		}
	}
	if id, err := IDOf([]byte(`{"type":"request","request":` + good + `}`)); id != 5 || err != nil {
		t.Errorf("the id is read as %d, %v", id, err)
	}
}

// Users are spread over the nodes, some of which only listen, and all that they get is checked.
func TestFreshClicks(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	l := FreshLoad{Users: 4, Nodes: 2, Others: 1, Items: 30_000, Window: time.Second}
	if c, err := testEnv(t).FreshClicks(t.Context(), l); err != nil || c.Rate <= 0 || c.Database <= 0 || c.Nodes <= 0 {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestEndsRequest(t *testing.T) {
	t.Parallel()
	for message, want := range map[string]bool{
		`{"type":"request","request":{"id":"1","state":"pending"}}`:  false,
		`{"request":{"id":"1","state":"assigned"},"type":"request"}`: true,
		`{"type":"run","run":{}}`:                                    false,
	} {
		if endsRequest([]byte(message)) != want {
			t.Errorf("%s ends a request: %v", message, !want)
		}
	}
}
