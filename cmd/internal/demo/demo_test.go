package demo

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
	"getwork/cmd/internal/bank"
	"getwork/cmd/internal/cluster"
	"getwork/cmd/internal/e2e"
	"getwork/schema/schematest"
)

func TestDemoServesAndEnds(t *testing.T) {
	t.Setenv("PGSERVICE", "nowhere") // for another server
	dir := e2e.DemoDir(t)
	first := e2e.StartDemo(t, dir)
	urls := first.Ready()
	if !strings.Contains(first.Printed(), "write loan rows") {
		t.Error("the first start reports no progress")
	}
	oliver := cluster.Client{URL: urls[0], User: "Oliver"}
	r, a, err := oliver.GetWork(t.Context(), firstTask, 2, "Prefer", "wait=60")
	if err != nil || a.Status != 201 || r.State != assign.Assigned {
		t.Fatalf("a click: %d %s %v", a.Status, a.Body, err)
	}
	simulated := cluster.Client{URL: urls[1], User: clicker(0)} // what a killed demo leaves
	if r, a, err := simulated.GetWork(t.Context(), firstTask, 1, "Prefer", "wait=60"); err != nil || r.State != assign.Assigned {
		t.Fatalf("a simulated person's click: %d %s %v", a.Status, a.Body, err)
	}
	family := first.Family()
	if len(family) < 3 {
		t.Errorf("two nodes and PostgreSQL are only %v", family)
	}
	if err := first.Cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if status := first.Status(); status != 0 {
		t.Errorf("exit status %d after SIGTERM", status)
	}
	e2e.Gone(t, family, 10*time.Second) // a server that is left behind ends by itself only after 25 s

	began := time.Now()
	second := e2e.StartDemo(t, dir)
	urls = second.Ready()
	t.Logf("the second start took %v", time.Since(began))
	if strings.Contains(second.Printed(), "write loan rows") {
		t.Error("the second start made the bank again")
	}
	p, err := cluster.Client{URL: urls[1], User: "Oliver"}.Pipeline(t.Context())
	if err != nil || len(p.Work) != 2 {
		t.Errorf("after a restart Oliver holds %v, %v", p.Work, err)
	}
	if p, err = (cluster.Client{URL: urls[1], User: clicker(0)}).Pipeline(t.Context()); err != nil || len(p.Work) != 0 {
		t.Errorf("after a restart a simulated person holds %v, %v", p.Work, err)
	}
	var task assign.Task
	if a, err = oliverAt(urls[1]).Do(t.Context(), "GET", "/api/v1/tasks/"+firstTask, nil); err == nil {
		err = a.Decode(&task)
	}
	if err != nil || task.Version != 1 {
		t.Errorf("the first task is at version %d, %v; nothing of it was changed", task.Version, err)
	}
	third := e2e.StartDemo(t, dir)
	if status := third.Status(); status != 1 || !strings.Contains(third.Printed(), "is in use by another process") || !strings.Contains(third.Printed(), "open "+second.Page()) {
		t.Errorf("another demo on the same data ends with %d and says %q", status, third.Printed())
	}
}

func oliverAt(url string) cluster.Client { return cluster.Client{URL: url, User: "Oliver"} }

func TestDemoKilled(t *testing.T) {
	d := e2e.StartDemo(t, e2e.DemoDir(t))
	d.Ready()
	family := d.Family()
	if err := d.Cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-d.Done
	e2e.Gone(t, family, 30*time.Second)
}

func TestDemoLosesNode(t *testing.T) {
	schematest.Thorough(t)
	d := e2e.StartDemo(t, e2e.DemoDir(t))
	d.Ready()
	family := d.Family()
	var nodes []int
	for _, pid := range family {
		program, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
		if program == cluster.Binary(t) {
			nodes = append(nodes, pid)
		}
	}
	if len(nodes) != 2 {
		t.Fatalf("of %v %v are nodes, want two", family, nodes)
	}
	for i, says := range []string{"the other 1 go on", "ended unexpectedly; it last said"} {
		if err := syscall.Kill(nodes[i], syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		e2e.Await(t, "the demo says that "+says, time.Minute, func() bool { return strings.Contains(d.Printed(), says) })
	}
	if status := d.Status(); status != 1 {
		t.Errorf("without nodes the demo ends with %d and says %q", status, d.Printed())
	}
	e2e.Gone(t, family, 15*time.Second)
}

func TestDemoPortInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	address := l.Addr().String()
	d := e2e.StartDemo(t, e2e.DemoDir(t), "--listen", address)
	if status := d.Status(); status != 1 || !strings.Contains(d.Printed(), address+" is in use: ") {
		t.Errorf("on a port in use the demo ends with %d and says %q", status, d.Printed())
	}
}

func TestDemoRefuses(t *testing.T) {
	c := e2e.Terminal{T: t, Binary: cluster.Binary(t)}
	for _, args := range [][]string{
		{"--nodes", "0"}, {"--loans", "3"}, {"--listen", "0.0.0.0:8080"}, {"--listen", "127.0.0.1:65535"}, {"--listen", "8080"},
		{"--auth", "token"}, {"--auth", "oidc", "--naive"}, {"--auth", "oidc", "--listen", "[::1]:8080"}, {"--auth", "oidc", "--listen", "localhost:8080"},
		{"--naive", "--users", "0"}, {"--naive", "--within", "1h"}, {"--naive", "--count", "6"},
	} {
		// The folder can't be created, so that a command line that passes by mistake creates nothing.
		args = append([]string{"demo", "--data-dir", "/dev/null/demo"}, args...)
		c.Run(2, nil, args...)
	}
}

var cell = regexp.MustCompile(`(?m)^(queries run|assignments|duplicate assignments|users not served) +(\d+) +(\d+)$`)

func TestDemoNaive(t *testing.T) {
	d := e2e.StartDemo(t, e2e.DemoDir(t), "--naive", "--users", "6", "--within", "0s", "--loans", "400")
	if status := d.Status(); status != 0 {
		t.Fatalf("exit status %d", status)
	}
	figures := map[string][2]int{}
	for _, m := range cell.FindAllStringSubmatch(d.Printed(), -1) {
		naive, _ := strconv.Atoi(m[2])
		shared, _ := strconv.Atoi(m[3])
		figures[m[1]] = [2]int{naive, shared}
	}
	t.Logf("%v", figures)
	if q := figures["queries run"]; q[0] != 6 || q[1] < 1 || q[1] > 5 {
		t.Errorf("queries run: %v", q)
	}
	if a := figures["assignments"]; a != [2]int{18, 18} {
		t.Errorf("assignments: %v", a)
	}
	if twice, told := figures["duplicate assignments"]; !told || twice[0] == 0 || twice[1] != 0 {
		t.Errorf("duplicate assignments: %v", twice)
	}
}

// With --reset the demo begins anew, unless another one runs with the same data, which is left alone.
func TestDemoReset(t *testing.T) {
	schematest.Thorough(t)
	dir := e2e.DemoDir(t)
	first := e2e.StartDemo(t, dir)
	urls := first.Ready()
	if r, a, err := oliverAt(urls[0]).GetWork(t.Context(), firstTask, 2, "Prefer", "wait=60"); err != nil || a.Status != 201 || r.State != assign.Assigned {
		t.Fatalf("a click: %d %s %v", a.Status, a.Body, err)
	}
	second := e2e.StartDemo(t, dir, "--reset")
	if status := second.Status(); status != 1 || !strings.Contains(second.Printed(), "open "+first.Page()+"\nend that one first, because --reset drops its data") {
		t.Errorf("--reset beside a demo ends with %d and says %q", status, second.Printed())
	}
	if p, err := oliverAt(urls[1]).Pipeline(t.Context()); err != nil || len(p.Work) != 2 {
		t.Errorf("after a refused --reset Oliver holds %v, %v", p.Work, err)
	}
	if err := first.Cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	first.Status()
	third := e2e.StartDemo(t, dir, "--reset")
	urls = third.Ready()
	if !strings.Contains(third.Printed(), "write loan rows") {
		t.Error("--reset kept the bank")
	}
	if p, err := oliverAt(urls[0]).Pipeline(t.Context()); err != nil || len(p.Work) != 0 {
		t.Errorf("after --reset Oliver holds %v, %v", p.Work, err)
	}
}

// A bank whose query takes too long is made smaller, once.
func TestBankFits(t *testing.T) {
	schematest.Long(t)
	t.Parallel()
	conn, err := pgx.Connect(t.Context(), schematest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	d := &demo{Command: Command{Loans: 400}, progress: newProgress(io.Discard)}
	if err := d.loadBank(t.Context(), conn, bank.Options{Loans: d.Loans}); err != nil {
		t.Fatal(err)
	}
	if err := d.fit(t.Context(), conn, time.Minute); err != nil || d.shrunk {
		t.Fatalf("a query that is quick enough: smaller %t, %v", d.shrunk, err)
	}
	if err := d.fit(t.Context(), conn, time.Millisecond); err != nil || !d.shrunk || d.Loans != 100 {
		t.Errorf("a query that is too slow: smaller %t, %d loans, %v", d.shrunk, d.Loans, err)
	}
	if loaded, err := bank.Loaded(t.Context(), conn, bank.Options{Loans: 100}); err != nil || !loaded {
		t.Errorf("the smaller bank is there: %t, %v", loaded, err)
	}
}
