package fault

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"getwork/cmd/internal/cluster"
	"getwork/cmd/internal/e2e"
	process "getwork/cmd/internal/node"
	"getwork/schema/postgres"
	"getwork/schema/schematest"
)

// host is a machine of its own, as far as the network goes: a network namespace. It ends with this process in any case, because
// only a program that reads from this process keeps it, and what runs in it ends, too.
type host struct {
	t         *testing.T
	namespace string // a file
	address   string
}

// newHosts creates a host for the database and one for a node, with a virtual cable between them that can be pulled at either end. It
// skips the test if that is not permitted. Our own network stays as it is: whenever that changes, browsers of other tests drop what they
// are loading.
func newHosts(t *testing.T) (database, node *host) {
	t.Helper()
	database, node = newHost(t), newHost(t)
	database.address, node.address = "198.18.0.1", "198.18.0.2"
	if out, err := database.command("ip", "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", node.namespace).CombinedOutput(); err != nil {
		t.Skipf("needs a cable between two network namespaces (veth), and this process may not make one: %s", out)
	}
	for _, h := range []*host{database, node} {
		h.must("ip", "addr", "add", h.address+"/30", "dev", "eth0")
		h.must("ip", "link", "set", "lo", "up")
		h.plug()
	}
	return database, node
}

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
	t.Cleanup(func() {
		_ = in.Close()
		_ = keeper.Wait()
	})
	return &host{t: t, namespace: fmt.Sprintf("/proc/%d/ns/net", keeper.Process.Pid)}
}

// command returns a command on the host, which ends with the test.
func (h *host) command(program string, args ...string) *exec.Cmd {
	return exec.CommandContext(h.t.Context(), "nsenter", append([]string{"--net=" + h.namespace, "--", program}, args...)...)
}

func (h *host) must(program string, args ...string) {
	h.t.Helper()
	if out, err := h.command(program, args...).CombinedOutput(); err != nil {
		h.t.Fatalf("%s %s: %v: %s", program, strings.Join(args, " "), err, out)
	}
}

// pull pulls the cable at the host's end: nobody is notified.
func (h *host) pull() { h.must("ip", "link", "set", "eth0", "down") }

// plug plugs it in again.
func (h *host) plug() { h.must("ip", "link", "set", "eth0", "up") }

// server starts a PostgreSQL on the host. Programs on the other host reach it by its address, and ours by its socket, which is a file.
func (h *host) server(other *host) (server *postgres.Server) {
	h.t.Helper()
	dir, err := os.MkdirTemp("", "getwork-hba-")
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = os.RemoveAll(dir) })
	file := filepath.Join(dir, "pg_hba.conf")
	rules := fmt.Sprintf("local all all trust\nhost all all %s/32 trust\n", other.address)
	if err := errors.Join(os.Chmod(dir, 0o755), os.WriteFile(file, []byte(rules), 0o644)); err != nil { //nolint:gosec // PostgreSQL runs as somebody else
		h.t.Fatal(err)
	}
	h.within(func() {
		server = schematest.SocketServer(h.t, map[string]string{"listen_addresses": h.address, "hba_file": file})
	})
	return server
}

// within calls do in the host's namespace. Programs that do starts itself, not by another goroutine, stay there.
func (h *host) within(do func()) {
	h.t.Helper()
	runtime.LockOSThread() // if do fails the test, the thread ends with it
	ours, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		h.t.Fatal(err)
	}
	defer ours.Close()
	theirs, err := os.Open(h.namespace)
	if err != nil {
		h.t.Fatal(err)
	}
	defer theirs.Close()
	if err := unix.Setns(int(theirs.Fd()), unix.CLONE_NEWNET); err != nil {
		h.t.Fatal(err)
	}
	do()
	if err := unix.Setns(int(ours.Fd()), unix.CLONE_NEWNET); err != nil {
		h.t.Fatal(err)
	}
	runtime.UnlockOSThread()
}

// guest is a node on the host. It serves on the host's own loopback address, so programs on the host must make the
// calls.
type guest struct {
	*process.Node
	host   *host
	binary string
}

// start starts a node on the host, with a database on another.
func (h *host) start(database *host, server *postgres.Server) *guest {
	h.t.Helper()
	g := &guest{host: h, binary: cluster.Binary(h.t)}
	u, err := url.Parse(server.URL("getwork"))
	if err != nil {
		h.t.Fatal(err)
	}
	u.Host, u.RawQuery = database.address+":"+u.Query().Get("port"), "sslmode=disable"
	script := filepath.Join(h.t.TempDir(), "getwork")
	if err := os.WriteFile(script, []byte(fmt.Sprintf("#!/bin/sh\nexec nsenter --net=%s -- %s \"$@\"\n", h.namespace, g.binary)), 0o755); err != nil { //nolint:gosec // it is a program
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
	out, err := g.host.command(g.binary, "get", "verify", "--user", user, "--wait", wait.String(), "--url", g.url()).CombinedOutput()
	return string(out), err == nil
}
