package fault

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"getwork/cmd/internal/cluster"
	"getwork/cmd/internal/e2e"
	process "getwork/cmd/internal/node"
	"getwork/schema/postgres"
	"getwork/schema/schematest"
)

// host is a machine of its own, as far as the network can tell: a network namespace with a virtual cable to ours, which
// can be pulled. It ends with this process in any case, because only a program that reads from this process keeps it.
type host struct {
	t           *testing.T
	namespace   string // in the form that nsenter takes
	cable       string // the cable's end on this side
	here, there string // the addresses of both ends
}

var hosts atomic.Int64

// newHost creates a host, or skips the test if that is not permitted.
func newHost(t *testing.T) *host {
	t.Helper()
	for _, program := range []string{"ip", "nsenter"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("needs a network namespace, and there is no %s (Debian: iproute2, util-linux)", program)
		}
	}
	keeper := exec.Command("cat")
	keeper.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	in, err := keeper.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := keeper.Start(); errors.Is(err, syscall.EPERM) {
		t.Skip("needs a network namespace, and this process may not make one; try as root")
	} else if err != nil {
		t.Fatal(err)
	}
	n := int(hosts.Add(1)) + 4*os.Getpid() // other test processes use other numbers
	cable, net := fmt.Sprintf("getwork%d", n%10_000_000), fmt.Sprintf("198.18.%d.", n>>6&255)
	h := &host{t: t, namespace: fmt.Sprintf("--net=/proc/%d/ns/net", keeper.Process.Pid), cable: cable,
		here: net + fmt.Sprint(n&63*4+1), there: net + fmt.Sprint(n&63*4+2)}
	t.Cleanup(func() {
		_ = exec.Command("ip", "link", "del", cable).Run() // otherwise it goes with the namespace
		_ = in.Close()
		_ = keeper.Wait()
	})
	if out, err := exec.Command("ip", "link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", fmt.Sprint(keeper.Process.Pid)).CombinedOutput(); err != nil {
		t.Skipf("needs a cable between two network namespaces (veth), and this process may not make one: %s", out)
	}
	h.must("ip", "addr", "add", h.here+"/30", "dev", cable)
	h.must("ip", "link", "set", cable, "up")
	h.must("nsenter", h.namespace, "ip", "addr", "add", h.there+"/30", "dev", "eth0")
	h.must("nsenter", h.namespace, "ip", "link", "set", "lo", "up")
	h.plug()
	return h
}

func (h *host) must(program string, args ...string) {
	h.t.Helper()
	if out, err := exec.Command(program, args...).CombinedOutput(); err != nil {
		h.t.Fatalf("%s %s: %v: %s", program, strings.Join(args, " "), err, out)
	}
}

// pull pulls the cable at the host's end: nobody is told.
func (h *host) pull() { h.must("nsenter", h.namespace, "ip", "link", "set", "eth0", "down") }

// plug plugs it in again.
func (h *host) plug() { h.must("nsenter", h.namespace, "ip", "link", "set", "eth0", "up") }

// pullHere pulls the cable at our end, so that we seem to have vanished from the host's sight.
func (h *host) pullHere() { h.must("ip", "link", "set", h.cable, "down") }

// plugHere plugs that end in again.
func (h *host) plugHere() { h.must("ip", "link", "set", h.cable, "up") }

// server starts a PostgreSQL that can also be reached from the host.
func (h *host) server() *postgres.Server {
	h.t.Helper()
	dir, err := os.MkdirTemp("", "getwork-hba-")
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = os.RemoveAll(dir) })
	file := filepath.Join(dir, "pg_hba.conf")
	rules := fmt.Sprintf("local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\nhost all all %s/32 scram-sha-256\n", h.there)
	if err := errors.Join(os.Chmod(dir, 0o755), os.WriteFile(file, []byte(rules), 0o644)); err != nil { //nolint:gosec // PostgreSQL runs as somebody else
		h.t.Fatal(err)
	}
	return schematest.OwnServer(h.t, map[string]string{"listen_addresses": "127.0.0.1," + h.here, "hba_file": file})
}

// guest is a node on the host. It serves on the host's own loopback address, so programs on the host must make the
// calls.
type guest struct {
	*process.Node
	host   *host
	binary string
}

// start starts a node on the host.
func (h *host) start(server *postgres.Server) *guest {
	h.t.Helper()
	g := &guest{host: h, binary: cluster.Binary(h.t)}
	u, err := url.Parse(server.URL("getwork"))
	if err != nil {
		h.t.Fatal(err)
	}
	u.Host = h.here + ":" + u.Port()
	script := filepath.Join(h.t.TempDir(), "getwork")
	if err := os.WriteFile(script, []byte(fmt.Sprintf("#!/bin/sh\nexec nsenter %s -- %s \"$@\"\n", h.namespace, g.binary)), 0o755); err != nil { //nolint:gosec // it is a program
		h.t.Fatal(err)
	}
	g.Node = process.New(process.Options{Binary: script, DatabaseURL: u.String()})
	if err := g.Launch(); err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() {
		g.Kill()
		if process.Complaint(g.Output()) != "" {
			h.t.Error("the node reports a data race or a panic")
		}
		if h.t.Failed() {
			h.t.Logf("the node on the other host printed:\n%s", g.Output())
		}
	})
	e2e.Await(h.t, "the node on the other host serves", process.StartWithin, func() bool { return g.url() != "" })
	return g
}

// url returns the node's address, once the node has printed it.
func (g *guest) url() string {
	_, after, _ := strings.Cut(g.Output(), "listening on ")
	url, _, whole := strings.Cut(after, "\n")
	if !whole {
		return ""
	}
	return url
}

// get asks the node for work, and waits for it for that long. It returns the program's output, and whether an answer
// came in time.
func (g *guest) get(user string, wait time.Duration) (string, bool) {
	out, err := exec.CommandContext(g.host.t.Context(), "nsenter", g.host.namespace, "--", g.binary,
		"get", "verify", "--user", user, "--wait", wait.String(), "--url", g.url()).CombinedOutput()
	return string(out), err == nil
}
