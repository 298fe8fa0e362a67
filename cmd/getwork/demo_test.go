package main

import (
	"fmt"
	"net"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"getwork/assign"
	"getwork/cmd/internal/cluster"
)

func TestDemoServesAndEnds(t *testing.T) {
	dir := demoDir(t)
	first := startDemo(t, dir)
	urls := first.ready()
	if !strings.Contains(first.printed(), "write loan rows") {
		t.Error("the first start tells of no progress")
	}
	oliver := cluster.Client{URL: urls[0], User: "Oliver"}
	r, a, err := oliver.GetWork(t.Context(), firstTask, 2, "Prefer", "wait=60")
	if err != nil || a.Status != 201 || r.State != assign.Assigned {
		t.Fatalf("a click: %d %s %v", a.Status, a.Body, err)
	}
	family := first.family()
	if len(family) < 3 {
		t.Errorf("two nodes and PostgreSQL are only %v", family)
	}
	if err := first.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if status := first.status(); status != 0 {
		t.Errorf("exit status %d after SIGTERM", status)
	}
	gone(t, family, 10*time.Second) // a server that was left behind would end by itself only after 25

	began := time.Now()
	second := startDemo(t, dir)
	urls = second.ready()
	t.Logf("the second start took %v", time.Since(began))
	if strings.Contains(second.printed(), "write loan rows") {
		t.Error("the second start made the bank again")
	}
	p, err := cluster.Client{URL: urls[1], User: "Oliver"}.Pipeline(t.Context())
	if err != nil || len(p.Work) != 2 {
		t.Errorf("after a restart Oliver holds %v, %v", p.Work, err)
	}
	var task assign.Task
	if a, err = oliverAt(urls[1]).Do(t.Context(), "GET", "/api/v1/tasks/"+firstTask, nil); err == nil {
		err = a.Decode(&task)
	}
	if err != nil || task.Version != 1 {
		t.Errorf("the first task is at version %d, %v; nothing of it was changed", task.Version, err)
	}
	third := startDemo(t, dir)
	if status := third.status(); status != 1 || !strings.Contains(third.printed(), "is in use by another process") || !strings.Contains(third.printed(), "open "+second.page()) {
		t.Errorf("another demo on the same data ends with %d and says %q", status, third.printed())
	}
}

func oliverAt(url string) cluster.Client { return cluster.Client{URL: url, User: "Oliver"} }

func TestDemoKilled(t *testing.T) {
	d := startDemo(t, demoDir(t))
	d.ready()
	family := d.family()
	if err := d.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-d.done
	gone(t, family, 30*time.Second)
}

func TestDemoLosesNode(t *testing.T) {
	d := startDemo(t, demoDir(t))
	d.ready()
	family := d.family()
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
		await(t, "the demo says that "+says, time.Minute, func() bool { return strings.Contains(d.printed(), says) })
	}
	if status := d.status(); status != 1 {
		t.Errorf("without nodes the demo ends with %d and says %q", status, d.printed())
	}
	gone(t, family, 15*time.Second)
}

func TestDemoPortInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	address := l.Addr().String()
	d := startDemo(t, demoDir(t), "--listen", address)
	if status := d.status(); status != 1 || !strings.Contains(d.printed(), address+" is in use: ") {
		t.Errorf("on a port in use the demo ends with %d and says %q", status, d.printed())
	}
}

func TestDemoRefuses(t *testing.T) {
	c := terminal{t: t, binary: cluster.Binary(t)}
	for _, args := range [][]string{
		{"--nodes", "0"}, {"--loans", "3"}, {"--listen", "0.0.0.0:8080"}, {"--listen", "127.0.0.1:65535"}, {"--listen", "8080"},
		{"--naive", "--users", "0"}, {"--naive", "--within", "1h"}, {"--naive", "--count", "6"},
	} {
		// With a folder that can't be made, so that what is let through by mistake makes nothing.
		args = append([]string{"demo", "--data-dir", "/dev/null/demo"}, args...)
		c.run(2, nil, args...)
	}
}

var cell = regexp.MustCompile(`(?m)^(queries run|assignments|duplicate assignments|users not served) +(\d+) +(\d+)$`)

func TestDemoNaive(t *testing.T) {
	d := startDemo(t, demoDir(t), "--naive", "--users", "6", "--within", "0s", "--loans", "400")
	if status := d.status(); status != 0 {
		t.Fatalf("exit status %d", status)
	}
	figures := map[string][2]int{}
	for _, m := range cell.FindAllStringSubmatch(d.printed(), -1) {
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
