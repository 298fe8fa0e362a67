package pgbouncer_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/schema/schematest"
	"getwork/schema/schematest/pgbouncer"
	"getwork/schema/schematest/timeout"
)

// child makes the test binary start a bouncer, print its address, and wait to be killed.
const child = "GETWORK_TEST_BOUNCER_CHILD"

func TestMain(m *testing.M) { os.Exit(schematest.Main(m)) }

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	config, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	config.DefaultQueryExecMode = pgx.QueryExecModeExec
	ctx, cancel := context.WithTimeout(t.Context(), timeout.Scale(20*time.Second))
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

// Two clients take turns on one connection to the server: each sees the other's settings.
func TestTransactionsShareAConnection(t *testing.T) {
	t.Parallel()
	b := pgbouncer.Start(t, schematest.URL(t), pgbouncer.Options{PoolSize: 1})
	one, other := connect(t, b.URL), connect(t, b.URL)
	if _, err := one.Exec(t.Context(), `set work_mem = '7MB'`); err != nil {
		t.Fatal(err)
	}
	var setting string
	if err := other.QueryRow(t.Context(), `show work_mem`).Scan(&setting); err != nil || setting != "7MB" {
		t.Errorf("the other's setting is %q, %v: not transaction mode", setting, err)
	}
}

// A bouncer also works in front of a server with passwords; it pauses, and after a kill it is back at the same address.
func TestPauseAndRestart(t *testing.T) {
	t.Parallel()
	b := pgbouncer.Start(t, schematest.OwnServer(t, nil).URL("getwork"), pgbouncer.Options{})
	conn := connect(t, b.URL)
	b.Tell("pause")
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := conn.Exec(ctx, `select 1`); err == nil {
		t.Error("answered while paused")
	}
	b.Tell("resume")
	if _, err := connect(t, b.URL).Exec(t.Context(), `select 1`); err != nil {
		t.Error(err)
	}
	b.Restart()
	if _, err := connect(t, b.URL).Exec(t.Context(), `select 1`); err != nil {
		t.Error(err)
	}
}

// It leaves no file, and does not outlive a test binary that is killed.
func TestEndsWithTheTestBinary(t *testing.T) {
	t.Parallel()
	if url := os.Getenv(child); url != "" {
		b := pgbouncer.Start(t, url, pgbouncer.Options{})
		fmt.Printf("bouncer %s\n", b.URL)
		select {} // until it is killed
	}
	if pgbouncer.Program() == "" {
		t.Skip("needs PgBouncer: apt-get install pgbouncer")
	}
	tmp := t.TempDir()
	for _, dir := range []string{filepath.Dir(tmp), tmp} { // for whom it runs as
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	parent := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestEndsWithTheTestBinary$")
	parent.Env = append(os.Environ(), child+"="+schematest.URL(t), "TMPDIR="+tmp)
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = parent.Wait() }()
	defer func() { _ = parent.Process.Kill() }()
	url := ""
	for lines := bufio.NewScanner(out); url == "" && lines.Scan(); {
		url, _ = strings.CutPrefix(lines.Text(), "bouncer ")
		if !strings.HasPrefix(url, "postgres://") {
			url = ""
		}
	}
	connect(t, url)
	if left, _ := filepath.Glob(filepath.Join(tmp, "*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(timeout.Scale(30 * time.Second))
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		conn, err := pgx.Connect(t.Context(), url)
		if err != nil {
			return // nobody answers any more
		}
		conn.Close(t.Context())
		if time.Now().After(deadline) {
			t.Fatal("it still answers half a minute after the test binary was killed")
		}
		<-tick.C
	}
}
