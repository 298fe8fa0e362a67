package story

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"getwork/cmd/internal/cluster"
	process "getwork/cmd/internal/node"
	"getwork/cmd/lab"
	"getwork/schema/schematest/timeout"
)

// controlled answers the machines' systemctl: the path is the machine, the body what was typed.
func (m *machines) controlled(w http.ResponseWriter, r *http.Request) {
	typed, err := io.ReadAll(r.Body)
	if err == nil {
		err = m.hosts[strings.TrimPrefix(r.URL.Path, "/")].systemctl(string(typed))
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
	}
}

func (h *host) systemctl(typed string) error {
	words := strings.Fields(typed)
	verb, unit := words[0], words[len(words)-1]
	switch {
	case verb == "daemon-reload", (verb == "enable" || verb == "disable") && !slices.Contains(words, "--now"):
		return nil
	case unit == "postgresql" && verb == "restart":
		ctx, cancel := context.WithTimeout(context.Background(), timeout.Scale(time.Minute))
		defer cancel()
		return h.database.Restart(ctx)
	}
	start := map[string]func() (func(), error){"getwork": h.serve, "nginx": h.proxy, "prometheus": h.watch, "etcd": h.agree, "patroni": h.replicate}[unit]
	if start == nil {
		return fmt.Errorf("the test knows no systemctl %s", typed)
	}
	if end := h.services[unit]; end != nil {
		end()
		delete(h.services, unit)
	}
	switch verb {
	case "enable", "start", "restart", "reload":
		end, err := start()
		if err != nil {
			return err
		}
		h.services[unit] = end
	case "disable", "stop":
	default:
		return fmt.Errorf("the test knows no systemctl %s", typed)
	}
	return nil
}

// serve starts the machine's node with its settings, as getwork.service does.
func (h *host) serve() (func(), error) {
	unit, err := os.ReadFile(lab.Path("deploy/package/getwork.service"))
	if err != nil {
		return nil, err
	}
	for _, line := range []string{"\nEnvironmentFile=/etc/getwork/getwork.env\n", "\nExecStart=/usr/bin/getwork serve\n"} {
		if !strings.Contains(string(unit), line) {
			return nil, fmt.Errorf("getwork.service has no %q any more, which the test stands in for", line)
		}
	}
	read := exec.Command("bash", "-ec", `set -a; . "$1"; exec env -0`, "read", filepath.Join(h.root, "etc/getwork/getwork.env"))
	read.Env = []string{"PATH=" + os.Getenv("PATH")}
	out, err := read.Output()
	if err != nil {
		return nil, err
	}
	env, at := []string{"SSL_CERT_FILE=" + h.dir + "/authority.pem"}, ""
	for setting := range strings.SplitSeq(string(out), "\x00") {
		if strings.HasPrefix(setting, "GETWORK_") {
			env = append(env, setting)
		}
		if address, ok := strings.CutPrefix(setting, "GETWORK_LISTEN="); ok {
			at = address
		}
	}
	n := process.New(process.Options{Binary: cluster.Binary(h.t), Env: env})
	n.URL = "http://" + at
	if err := n.Launch(); err != nil {
		return nil, err
	}
	h.t.Cleanup(func() {
		if said := n.Output(); h.t.Failed() || process.Complaint(said) != "" {
			h.t.Errorf("the node of %s said:\n%s", h.name, said)
		}
	})
	h.t.Cleanup(n.Kill)
	if err := starts(n.Done(), func() bool { return strings.Contains(n.Output(), "listening on ") }); err != nil {
		return nil, err
	}
	end := func() {
		select {
		case <-n.Done():
		default:
			_ = n.Terminate()
		}
		n.Kill()
	}
	return end, nil
}

// proxy starts nginx with the files of the machine.
func (h *host) proxy() (func(), error) {
	end, ended, err := runs(h.t, h.standIn("nginx", "-g", "daemon off; master_process off;"))
	if err != nil {
		return nil, err
	}
	return end, starts(ended, func() bool {
		conn, err := net.Dial("tcp", strings.TrimPrefix(h.public, "https://"))
		return err == nil && conn.Close() == nil
	})
}

// watch starts Prometheus with the files of the machine, as Debian's unit does.
func (h *host) watch() (func(), error) {
	end, _, err := runs(h.t, h.standIn("bash", "-ec", `. "$0/etc/default/prometheus"; exec prometheus --config.file="$0/etc/prometheus/prometheus.yml" --storage.tsdb.path="$0/var/lib/prometheus" $ARGS`, h.root))
	return end, err
}

// agree starts etcd with the settings of the machine.
func (h *host) agree() (func(), error) {
	end, _, err := runs(h.t, h.standIn("bash", "-ec", `set -a; . "$0/etc/default/etcd"; ETCD_DATA_DIR=$0/var/lib/etcd/default exec etcd`, h.root))
	return end, err
}

// replicate starts Patroni with the settings of the machine, as PostgreSQL's account.
func (h *host) replicate() (func(), error) {
	c := h.standIn("patroni", h.root+"/etc/patroni/config.yml")
	c.SysProcAttr = process.Attributes()
	c.SysProcAttr.Credential = h.account
	end, _, err := runs(h.t, c)
	return end, err
}

// runs starts a program that ends with the test at the latest. end ends it before, and returns when it is gone.
func runs(t *testing.T, c *exec.Cmd) (end func(), ended <-chan struct{}, err error) {
	t.Helper()
	gone := make(chan struct{})
	if err := process.Tie(c, func(error) { close(gone) }); err != nil {
		return nil, nil, err
	}
	end = sync.OnceFunc(func() {
		_ = c.Process.Kill()
		<-gone
	})
	t.Cleanup(end)
	return end, gone, nil
}

// starts waits until a program serves, so that the guide, which asks every second, need not ask twice.
func starts(ended <-chan struct{}, serves func() bool) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	late := time.After(timeout.Scale(time.Minute))
	for !serves() {
		select {
		case <-tick.C:
		case <-ended:
			return errors.New("the program ended at its start")
		case <-late:
			return errors.New("the program does not serve")
		}
	}
	return nil
}

// standIn returns a program of the machine.
func (h *host) standIn(program string, args ...string) *exec.Cmd {
	c := exec.Command(filepath.Join(h.root, "bin", program), args...)
	if _, err := os.Stat(c.Path); err != nil {
		c = exec.Command(program, args...)
	}
	c.Dir, c.Env = h.root, h.env
	c.Stdout, c.Stderr = h.t.Output(), h.t.Output()
	c.WaitDelay = time.Second // Patroni's servers outlive it, and hold its output
	return c
}
