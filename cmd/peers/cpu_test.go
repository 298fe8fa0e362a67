package main

import (
	"os"
	"runtime"
	"testing"
	"time"
)

const burn = 300 * time.Millisecond

// A loaded machine gives us less than the time that passes, never more.
const least = burn / 10

func TestServerCPU(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("there is no /proc")
	}
	ctx := t.Context()
	conn := connect(t, private(t))
	postmaster, err := postmasterOf(ctx, conn)
	if err != nil || postmaster == 0 {
		t.Fatalf("process %d: %v", postmaster, err)
	}
	used := func() time.Duration {
		t.Helper()
		sum, err := serverCPU(postmaster)
		if err != nil {
			t.Fatal(err)
		}
		return sum
	}
	before := used()
	const loop = `do $$ declare over timestamptz = clock_timestamp() + '300ms'; begin while clock_timestamp() < over loop end loop; end $$`
	if _, err := conn.Exec(ctx, loop); err != nil {
		t.Fatal(err)
	}
	if d := used() - before; d < least || d > 3*burn {
		t.Errorf("%s for %s of a backend's work", d, burn)
	}
	// What has ended isn't forgotten.
	pid := int(conn.PgConn().PID())
	conn.Close(ctx)
	for err := error(nil); err == nil; time.Sleep(time.Millisecond) {
		_, err = readStat(pid)
	}
	if d := used() - before; d < least {
		t.Errorf("%s after the backend's end", d)
	}
}

func TestProcessCPU(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("there is no /proc")
	}
	before, err := processCPU(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for over := time.Now().Add(burn); time.Now().Before(over); {
	}
	after, err := processCPU(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if after-before < least {
		t.Errorf("%s for %s of work", after-before, burn)
	}
}
