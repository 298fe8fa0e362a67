package patroni

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/schema/schematest/timeout"
)

// startWithin is generous, because a machine that runs many tests at once is slow.
const startWithin = 2 * time.Minute

// Options set how a cluster replicates.
type Options struct {
	// Synchronous makes a commit wait until a standby has it, and only such a standby is ever promoted. Otherwise a
	// commit does not wait, and writes that no standby has received are lost with the primary.
	Synchronous bool
}

// Cluster is three hosts, an etcd and a proxy.
type Cluster struct {
	Hosts []*Host

	t           testing.TB
	options     Options
	programs    programs
	folder      *folder
	etcd, proxy int // ports
}

// Start starts a cluster, and returns when all hosts run. It ends with the test. If the test fails, Patroni's output is
// logged.
func Start(t testing.TB, options Options) *Cluster {
	t.Helper()
	if testing.Short() {
		t.Skip("three PostgreSQL servers under Patroni take a while: not with -short")
	}
	p, err := find()
	if err != nil {
		t.Skip("needs Patroni, etcd, HAProxy and PostgreSQL: ", err)
	}
	f, err := newFolder(p)
	if err != nil {
		t.Fatal(err)
	}
	c := &Cluster{t: t, options: options, programs: p, folder: f}
	t.Cleanup(func() {
		if t.Failed() {
			c.logs()
		}
		if err := f.remove(); err != nil {
			t.Error("end the cluster: ", err)
		}
	})
	if err := c.start(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), timeout.Scale(startWithin))
	defer cancel()
	c.AwaitWhole(ctx)
	return c
}

// start starts the first host alone, so that this host creates the database, and then the others.
func (c *Cluster) start() error {
	ports, err := freePorts(9)
	if err != nil {
		return err
	}
	peer := ports[0]
	c.etcd, c.proxy, ports = ports[1], ports[2], ports[3:]
	dir, err := c.folder.make(c.programs, "etcd")
	if err != nil {
		return err
	}
	client, between := "http://"+address(c.etcd), "http://"+address(peer)
	if err := c.folder.start(dir, c.programs.etcd, "--name=getwork", "--data-dir="+filepath.Join(dir, "data"),
		"--listen-client-urls="+client, "--advertise-client-urls="+client, "--listen-peer-urls="+between,
		"--initial-advertise-peer-urls="+between, "--initial-cluster=getwork="+between, "--enable-v2", "--logger=zap", "--log-level=warn"); err != nil {
		return err
	}
	for i, name := range []string{"anna", "bela", "cora"} {
		h := &Host{Name: name, cluster: c, port: ports[2*i], api: ports[2*i+1]}
		if h.dir, err = c.folder.make(c.programs, name); err != nil {
			return err
		}
		c.Hosts = append(c.Hosts, h)
		if err := c.configure(filepath.Join(h.dir, "patroni.yml"), c.patroniConfig(h)); err != nil {
			return err
		}
		if err := h.start(); err != nil {
			return err
		}
	}
	if dir, err = c.folder.make(c.programs, "haproxy"); err != nil {
		return err
	}
	config := filepath.Join(dir, "haproxy.cfg")
	if err := c.configure(config, c.proxyConfig()); err != nil {
		return err
	}
	return c.folder.start(dir, c.programs.haproxy, "-db", "-f", config)
}

func (c *Cluster) configure(path, text string) error {
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return err
	}
	return c.programs.give(path)
}

// ProxyURL returns the URL of a database on whichever host is the primary, through HAProxy.
func (c *Cluster) ProxyURL(database string) string {
	return "postgres://postgres:" + password + "@" + address(c.proxy) + "/" + database
}

// HostsURL returns a URL with all hosts, of which the client chooses the one that can be written to.
func (c *Cluster) HostsURL(database string) string {
	var hosts []string
	for _, h := range c.Hosts {
		hosts = append(hosts, address(h.port))
	}
	return "postgres://postgres:" + password + "@" + strings.Join(hosts, ",") + "/" + database + "?target_session_attrs=read-write&connect_timeout=2"
}

// Create creates an empty database, and returns when every host has it: a client that first asks a standby without it
// gives up at once.
func (c *Cluster) Create(database string) {
	c.t.Helper()
	conn, err := pgx.Connect(c.t.Context(), c.HostsURL("postgres"))
	if err != nil {
		c.t.Fatal(err)
	}
	defer conn.Close(c.t.Context())
	if _, err := conn.Exec(c.t.Context(), "create database "+pgx.Identifier{database}.Sanitize()); err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(c.t.Context(), timeout.Scale(startWithin))
	defer cancel()
	for _, h := range c.Hosts {
		c.await(ctx, h.Name+" has the database "+database, func() bool {
			conn, err := pgx.Connect(ctx, h.URL(database))
			if err == nil {
				err = conn.Close(ctx)
			}
			return err == nil
		})
	}
}

// logs logs the end of each process's output.
func (c *Cluster) logs() {
	paths, _ := filepath.Glob(filepath.Join(c.folder.path, "*", "log"))
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		if most := 8000; len(text) > most {
			text = text[len(text)-most:]
		}
		c.t.Logf("%s printed at last:\n%s", filepath.Base(filepath.Dir(path)), text)
	}
}
