package engine

import (
	"context"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"getwork/assign/pg"
	"getwork/schema/schematest"
)

// worker makes a login that may do exactly what a node does, and returns its name and the URL that uses it.
func worker(t *testing.T, address string) (role, through string) {
	t.Helper()
	db := pool(t, address)
	role = "worker_" + query[string](t, db, `select substr(md5(current_database()), 1, 12)`)
	execute(t, db, `create role `+role+` login password 'secret'; grant usage on schema getwork to `+role+`;
		grant select, insert, update, delete on all tables in schema getwork to `+role+`; grant usage on all sequences in schema getwork to `+role)
	t.Cleanup(func() { _, _ = db.Exec(context.Background(), `drop owned by `+role+`; drop role `+role) })
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(role, "secret")
	return role, u.String()
}

// A revoked right switches off the checks that need it, and no others. The log says which, and why, and not each time.
func TestLooksSayThatTheyFail(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	address := schematest.URL(t)
	db := pool(t, address)
	role, through := worker(t, address)
	log := &lines{}
	n := startNode(t, through, nodeOptions{Look: 20 * time.Millisecond, Log: log})
	newTask(t, n, "task", `select i as item from generate_series(1, 9) i, pg_advisory_xact_lock_shared(4711)`, nil)
	runs, open := atBarrier(t, db)
	defer open()
	n.click(t, "task", "ann", 1)
	runs()
	join(t, n, "ann")
	for _, test := range []struct{ table, says string }{
		{"work_requested", "look for anything that nobody serves"}, {"task", "end runs that died"},
	} {
		t.Run(test.says, func(t *testing.T) {
			if test.table == "task" { // a dead run that another node left
				execute(t, db, `update getwork.run set backend = 0, started_at = clock_timestamp() - interval '1 hour' where state = 'running'`)
			}
			execute(t, db, `revoke all on getwork.`+test.table+` from `+role)
			await(t, "the log says so", func() bool {
				return log.have(test.says+"; it is tried again", "permission denied for table "+test.table) > 0
			})
			execute(t, db, `grant select, insert, update, delete on getwork.`+test.table+` to `+role)
		})
	}
	execute(t, db, `revoke select on getwork.task_state from `+role)
	before := n.Looks.Load()
	await(t, "the rescuer has looked often", func() bool { return n.Looks.Load() > before+50 })
	if said := log.have("look for anything that nobody serves"); said > 5 {
		t.Errorf("it is logged %d times", said)
	}
	execute(t, db, `grant select on getwork.task_state to `+role)
}

// The memory for a query's rows is bounded, however many it returns.
func TestWhatIsSeenElsewhereIsBounded(t *testing.T) {
	t.Parallel()
	address := schematest.URL(t)
	db := pool(t, address)
	execute(t, db, `create table loan as select i as id from generate_series(1, 5000) i; insert into loan values (1), (4999)`)
	n := startNode(t, address, nodeOptions{Queries: reader(t, address, "loan")})
	task := newTask(t, n, "task", `select id as item from loan`, nil)
	execute(t, db, `insert into getwork.work (task_id, item, user_name) select $1, i, 'ann' from generate_series(1, 4990) i`, task.ID)
	tx, err := n.Queries.BeginTx(t.Context(), pg.ReadOnly)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	found, err := n.Ranker.Stream(t.Context(), tx, task.ID, task.Settings)
	if err != nil || len(found.Items) != 10 || found.Seen.Len() != 10 || found.Blocked+found.PassedOver != 4992 {
		t.Errorf("%d items, %d remembered, %d blocked, %d passed over, %v", len(found.Items), found.Seen.Len(), found.Blocked, found.PassedOver, err)
	}
}

// lines keeps the log.
type lines struct {
	mu  sync.Mutex
	all []string
}

// Write implements [io.Writer]; slog writes a line at a time.
func (l *lines) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, string(line))
	return len(line), nil
}

// have counts the lines that contain all parts.
func (l *lines) have(parts ...string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.all {
		if !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(line, p) }) {
			n++
		}
	}
	return n
}
