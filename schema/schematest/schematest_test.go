package schematest_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/schema"
	"getwork/schema/schematest"
)

func TestMain(m *testing.M) { os.Exit(schematest.Main(m)) }

// Databases are migrated, separate, and quick to make.
func TestDatabasesAreApart(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	schematest.URL(t) // the first one also starts the server and makes the template
	begin := time.Now()
	a, b := schematest.Pool(t), schematest.Pool(t)
	t.Logf("two databases: %v", time.Since(begin))
	if _, err := a.Exec(ctx, `create table only_here ()`); err != nil {
		t.Fatal(err)
	}
	var there bool
	if err := b.QueryRow(ctx, `select to_regclass('only_here') is not null`).Scan(&there); err != nil || there {
		t.Errorf("the other database has the table too: %v, %v", there, err)
	}
	conn, err := b.Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	if err := schema.Check(ctx, conn.Conn(), schema.Default); err != nil {
		t.Error(err)
	}
}

func TestEmpty(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, schematest.Empty(t))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	if current, _, err := schema.Status(ctx, conn, schema.Default); err != nil || current != 0 {
		t.Errorf("version %d, %v", current, err)
	}
}

// A server that can't load the library only says so, and goes on with connections of twice the cost. If PostgreSQL mapped its memory
// in another way, nothing would say so.
func TestPreloaded(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("gcc"); err != nil || runtime.GOOS != "linux" {
		t.Skip("gcc compiles the library, on Linux: apt-get install gcc")
	}
	mapped, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps", schematest.Server(t).PID()))
	if err != nil || !strings.Contains(string(mapped), "/preload.so") {
		t.Errorf("PostgreSQL has not loaded preload.so: %v", err)
	}
	if _, err := os.Stat("/sys/kernel/mm/transparent_hugepage"); err != nil {
		return // a kernel without huge pages
	}
	// A shared mapping of no file, and the flag that asks for huge pages (proc(5)).
	if !regexp.MustCompile(` rw-s .*/dev/zero \(deleted\)\n(?:[A-Z]\w+:.*\n)*VmFlags:.* hg\b`).Match(mapped) {
		t.Error("shared memory asks for no huge pages")
	}
}

func TestSharedServer(t *testing.T) {
	t.Parallel()
	if schematest.Server(t).PID() != schematest.Server(t).PID() {
		t.Error("two servers")
	}
}

// OwnServer's server has the given settings, and can be stopped and started.
func TestOwnServer(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	server := schematest.OwnServer(t, map[string]string{"default_transaction_isolation": "serializable"})
	server.Halt(ctx)
	if _, err := pgx.Connect(ctx, server.URL("getwork")); err == nil {
		t.Fatal("it still answers")
	}
	if err := server.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(ctx, server.URL("getwork"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	var level string
	if err := conn.QueryRow(ctx, `show transaction_isolation`).Scan(&level); err != nil || level != "serializable" {
		t.Errorf("isolation %q, %v", level, err)
	}
	if err := schema.Check(ctx, conn, schema.Default); err != nil {
		t.Error(err)
	}
}

func BenchmarkURL(b *testing.B) {
	schematest.URL(b)
	for b.Loop() {
		schematest.URL(b)
	}
}
