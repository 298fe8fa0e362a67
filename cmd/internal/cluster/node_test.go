package cluster_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"getwork/cmd/internal/cluster"
	"getwork/schema/schematest"
	"getwork/schema/schematest/timeout"
)

// child, if set, makes the test binary the parent of one frozen node that waits to be killed.
const child = "CLUSTER_TEST_CHILD_URL"

func TestMain(m *testing.M) {
	code := schematest.Main(m)
	cluster.Clean()
	os.Exit(code)
}

func TestNodeLives(t *testing.T) {
	t.Parallel()
	nodes := cluster.Start(t, 2, cluster.Options{DatabaseURL: schematest.URL(t)})
	oliver := nodes[0].Client("oliver")
	task := map[string]any{"name": "verify", "query": "select n as item from generate_series(1, 9) n"}
	if err := oliver.CreateTask(t.Context(), task); err != nil {
		t.Fatal(err)
	}
	socket, _, err := nodes[1].Client("oliver").Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	r, a, err := oliver.GetWork(t.Context(), "verify", 2, "Prefer", "wait=60")
	if err != nil || a.Status != 201 || len(r.Work) != 2 {
		t.Fatalf("%d, %+v, %v", a.Status, r, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), timeout.Scale(30*time.Second))
	defer cancel()
	if _, err := socket.Until(ctx, func(e cluster.Event) bool { return e.Request != nil && len(e.Request.Work) == 2 }); err != nil {
		t.Error(err)
	}
	pid, url := nodes[0].PID(), nodes[0].URL
	nodes[0].Stop()
	nodes[0].Restart()
	if nodes[0].PID() == pid || nodes[0].URL != url {
		t.Errorf("after a restart it is process %d, was %d, at %s, was %s", nodes[0].PID(), pid, nodes[0].URL, url)
	}
	if err := nodes[0].Terminate(); err != nil {
		t.Errorf("exit status %d", cluster.Exit(err))
	}
}

// A frozen node dies with a test binary that is killed with -9.
func TestNoNodeOutlivesItsParent(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	if url := os.Getenv(child); url != "" {
		node := cluster.Start(t, 1, cluster.Options{DatabaseURL: url})[0]
		node.Stop()
		fmt.Printf("frozen %d %s\n", node.PID(), cluster.Binary(t))
		select {}
	}
	if runtime.GOOS != "linux" {
		t.Skip("only Linux ends frozen nodes")
	}
	parent := exec.Command(os.Args[0], "-test.run", t.Name()+"$")
	parent.Env = append(os.Environ(), child+"="+schematest.URL(t))
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	var binary string
	for lines := bufio.NewScanner(out); pid == 0 && lines.Scan(); {
		_, _ = fmt.Sscanf(lines.Text(), "frozen %d %s", &pid, &binary)
	}
	_ = parent.Process.Kill()
	_ = parent.Wait()
	if pid == 0 {
		t.Fatal("the other process started no node")
	}
	t.Cleanup(func() { _ = os.RemoveAll(filepath.Dir(binary)) })
	deadline := time.NewTimer(timeout.Scale(30 * time.Second))
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for runs(pid) {
		select {
		case <-tick.C:
		case <-deadline.C:
			_ = syscall.Kill(pid, syscall.SIGKILL)
			t.Fatal("the node outlived its parent")
		}
	}
}

// runs reports whether a process exists; one that has ended but is not reaped yet does not count.
func runs(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && !strings.Contains(string(stat), ") Z ")
}
