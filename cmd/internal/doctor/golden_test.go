package doctor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"getwork/cmd/internal/command"
	"getwork/schema/schematest"
)

var update = flag.Bool("doctor.update", false, "write the golden files")

// numbers are what differs from run to run.
var numbers = []struct {
	of *regexp.Regexp
	is string
}{
	{regexp.MustCompile(`127\.0\.0\.1:\d+`), "HOST"},
	{regexp.MustCompile(`(login|role|reader)_[0-9a-f]{12}`), "$1"},
	{regexp.MustCompile(`\d+(\.\d+)?(µs|ms)`), "TIME"},
	{regexp.MustCompile(`PostgreSQL \d+\.\d+( \([^)]*\))?`), "PostgreSQL VERSION"},
	{regexp.MustCompile(`\d+(\.\d+)? [KMG]iB`), "SIZE"},
	{regexp.MustCompile(`the oldest is \d+ old, in database \w+`), "the oldest is N old, in database D"},
	{regexp.MustCompile(`may open \d+ files here, which is room for \d+`), "may open N files here, which is room for N"},
	{regexp.MustCompile(`others have \d+ now`), "others have N now"},
	{regexp.MustCompile(`all \d+ are there`), "all N are there"},
	{regexp.MustCompile(`at version \d+`), "at version N"},
}

// golden compares what is printed with a file.
func golden(t *testing.T, file, printed string) {
	t.Helper()
	for _, n := range numbers {
		printed = n.of.ReplaceAllString(printed, n.is)
	}
	file = "testdata/" + file
	if *update {
		if err := os.WriteFile(file, []byte(printed), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), printed); diff != "" {
		t.Errorf("%s (-want +printed); -doctor.update writes it\n%s", file, diff)
	}
}

// printed is the command's output, and its error.
func (w *ward) printed(args ...string) (string, error) {
	var out bytes.Buffer
	err := parse(w.t, append(append([]string{}, w.args...), args...)...).Run(w.t.Context(), &command.Streams{Out: &out, Errs: &out})
	return out.String(), err
}

// On a healthy server nothing is wrong; then it is broken at several places, as a whole server can be. Every line is as people
// and programs read it.
func TestHealthyAndBroken(t *testing.T) {
	t.Parallel()
	server := schematest.OwnServer(t, map[string]string{"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on", "wal_level": "logical"})
	other, err := pgx.Connect(t.Context(), server.URL("getwork"))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close(context.Background())
	if _, err := other.Exec(t.Context(), `create database bank`); err != nil {
		t.Fatal(err)
	}
	w := admitTo(t, server.URL("bank"))
	text, err := w.printed()
	if err != nil {
		t.Errorf("a healthy server: %v", err)
	}
	golden(t, "healthy.txt", text)

	w.execute(`drop index getwork.run_history; grant delete on bank.loan to ROLE; insert into getwork.task overriding system value values (1); insert into getwork.task_version (task_id, version, name, query, created_by) values (1, 1, 'loans', 'select x as item', 'mia'); insert into getwork.task_state (task_id, name, version, failures, failed_until, last_error) values (1, 'loans', 1, 1, now(), 'column "x" does not exist'); alter table getwork.work set (autovacuum_enabled = off)`)
	text, err = w.printed("--nodes", "40")
	if !errors.Is(err, errFound) {
		t.Errorf("a broken server: %v", err)
	}
	golden(t, "broken.txt", text)
	text, err = w.printed("--nodes", "40", "--json")
	if !errors.Is(err, errFound) {
		t.Errorf("a broken server, as JSON: %v", err)
	}
	var r report
	if err := json.Unmarshal([]byte(text), &r); err != nil || r.Errors != 4 || len(r.Checks) < 40 {
		t.Errorf("%v; %d errors in %d lines:\n%s", err, r.Errors, len(r.Checks), text)
	}
	golden(t, "broken.json", text)

	w.expect(broken{check: "keepalives", args: []string{"--database-url", w.url + "&tcp_keepalives_idle=7200"}, state: Warning, says: "only after 2h0m9s"})
	w.expect(broken{check: "database", args: []string{"--database-url", strings.Replace(w.url, "secret", "wrong", 1)}, state: Error, says: "password authentication failed"})
	w.expect(broken{check: "autovacuum", sql: "alter system set autovacuum = off; select pg_reload_conf()", state: Error, says: "autovacuum does not run", mend: "alter table getwork.work reset (autovacuum_enabled); alter system reset autovacuum; select pg_reload_conf()"})

	w.standbys()
	w.slots()
}

// A replica that receives nothing, stands still, and cancels long queries.
func TestReplicaChecks(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	there := schematest.OwnServer(t, nil)
	w := admit(t)
	w.execute(`insert into getwork.task overriding system value values (1); insert into getwork.task_version (task_id, version, name, query, created_by) values (1, 1, 'loans', 'select 1 as item', 'mia'); insert into getwork.task_state (task_id, name, version) values (1, 'loans', 1)`)
	to := []string{"--query-database-url", there.URL("getwork")}
	w.expect(broken{check: "replica", args: to, state: OK, says: "leads to a primary"})
	conn, err := pgx.Connect(t.Context(), there.URL("getwork"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	var data string
	if err := conn.QueryRow(t.Context(), `show data_directory`).Scan(&data); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), `copy (select) to '`+data+`/standby.signal'`); err != nil {
		t.Fatal(err)
	}
	if err := there.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.expect(broken{check: "replica", args: to, state: Warning, says: "receives nothing from its primary"})
	w.expect(broken{check: "replica", args: to, state: Warning, says: "cancels a query that holds its replay up for 30 s, and queries here may take 120 s"})
	w.expect(broken{check: "replica", args: to, limits: func(l *limits) { l.lag = -1 }, state: Warning, says: "behind: queries see what was so long ago"})
	standby, err := pgx.Connect(t.Context(), there.URL("getwork"))
	if err != nil {
		t.Fatal(err)
	}
	defer standby.Close(context.Background())
	if _, err := standby.Exec(t.Context(), `select pg_wal_replay_pause()`); err != nil {
		t.Fatal(err)
	}
	w.expect(broken{check: "replica", args: to, state: Error, says: "replay is paused"})
}
