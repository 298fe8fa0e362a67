package patroni

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/schema/schematest"
	"getwork/schema/schematest/timeout"
)

// child, if set, makes the test binary the parent of a cluster with a frozen host, and waits to be killed.
const child = "PATRONI_TEST_CHILD"

// A whole cluster, even with a frozen host, ends with a test binary that is killed with -9, and leaves nothing behind.
func TestNothingOutlivesItsParent(t *testing.T) {
	if os.Getenv(child) != "" {
		c := Start(t, Options{Synchronous: true})
		c.Hosts[2].Freeze()
		fmt.Println("whole", c.folder.path)
		select {}
	}
	if testing.Short() {
		t.Skip("three PostgreSQL servers under Patroni take a while: not with -short")
	}
	parent := exec.Command(os.Args[0], "-test.run", t.Name()+"$", "-test.v")
	parent.Env = append(os.Environ(), child+"=1")
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	var dir, said string
	for lines := bufio.NewScanner(out); dir == "" && lines.Scan(); said += lines.Text() + "\n" {
		if _, path, ok := strings.Cut(lines.Text(), "whole "); ok {
			dir = path
		}
	}
	ran := len(processes(dir))
	_ = parent.Process.Kill()
	_ = parent.Wait()
	if dir == "" && strings.Contains(said, "SKIP") {
		t.Skip(said)
	}
	if dir == "" || ran < 20 {
		t.Fatalf("the other process started %d processes in %q:\n%s", ran, dir, said)
	}
	ctx, cancel := context.WithTimeout(t.Context(), timeout.Scale(time.Minute))
	defer cancel()
	c := &Cluster{t: t}
	c.await(ctx, "nothing is left", func() bool {
		_, err := os.Stat(dir)
		return os.IsNotExist(err) && len(processes(dir)) == 0
	})
}

// Both URLs lead to the primary, before and after the primary's host has died; and that host comes back as a standby.
func TestHostDies(t *testing.T) {
	schematest.Thorough(t)
	c := Start(t, Options{Synchronous: true})
	c.Create("bank")
	ctx, cancel := context.WithTimeout(t.Context(), timeout.Scale(4*time.Minute))
	defer cancel()
	first, next := c.Primary(ctx), c.Standby(ctx)
	execute(t, c.ProxyURL("bank"), `create table loan as select 1 as id`)
	killed := time.Now()
	first.Kill()
	if left := processes(first.dir); len(left) > 0 {
		t.Errorf("%v are left of a host that was killed", left)
	}
	if now := c.Primary(ctx); now != next {
		t.Errorf("%s is the primary after %s, not its synchronous standby %s", now.Name, first.Name, next.Name)
	}
	t.Logf("the next primary %v after the last was killed", time.Since(killed))
	first.Start()
	c.AwaitWhole(ctx)
	if state := c.State(ctx); strings.Count(state, "streaming sync") != 1 || strings.Count(state, "standby: true") != 2 {
		t.Error(state)
	}
	for _, url := range []string{c.ProxyURL("bank"), c.HostsURL("bank")} {
		execute(t, url, `insert into loan select count(*) + 1 from loan`)
	}
}

func execute(t *testing.T, url, sql string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), sql); err != nil {
		t.Fatal(err)
	}
}
