package story

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
	"getwork/cmd/internal/certs"
	"getwork/cmd/internal/cluster"
	"getwork/cmd/internal/idp"
	process "getwork/cmd/internal/node"
	"getwork/cmd/lab"
	"getwork/cmd/lab/patroni"
	"getwork/schema/postgres"
	"getwork/schema/schematest"
	"getwork/schema/schematest/timeout"
)

// failovers has the guide to Patroni typed, too, which takes as long as the others together.
var failovers = os.Getenv("GETWORK_TEST_FAILOVER") == "all"

// machines are those of the guides. Each is a folder that stands for its files, and a shell. Their addresses are of this machine's
// loopback network; their programs are real, but for the standIns: PostgreSQL, nodes, nginx, Prometheus, etcd, Patroni.
type machines struct {
	t                  *testing.T
	dir                string
	database           *postgres.Server
	control            *httptest.Server
	sockets            string              // PostgreSQL's folder of them
	hba                string              // its file of who is let in
	account            *syscall.Credential // of PostgreSQL, for root; else nil
	nginx              string              // the program
	authority          *certs.Authority    // which the machines trust
	idp                *idp.Provider
	public, prometheus string            // the addresses of nginx and Prometheus
	oliver             employee          // who works through loans
	held               []assign.Work     // what he held at the backup
	hosts              map[string]*host  // by name, and by address
	changes            *strings.Replacer // what the test types instead of what the guide says
}

// host is one machine.
type host struct {
	*machines
	name, address, root string
	env                 []string
	shell               io.Writer
	said                *bufio.Reader
	kill                func() // ends the shell

	services map[string]func() // end them, by name; only systemctl's calls use it
}

// addresses are the machines' last bytes.
var addresses = map[string]int{"source": 1, "db": 10, "node1": 11, "node2": 12, "node3": 13, "front": 20, "plain": 30, "pg1": 41, "pg2": 42, "pg3": 43}

// newMachines returns the machines, with a PostgreSQL as Debian installs it, which admits only itself, and with an identity provider.
func newMachines(t *testing.T) *machines {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("the guide is for Debian")
	}
	programs := []string{"bash", "curl", "openssl", "psql", "pg_dump", "pg_restore", "promtool", "prometheus"}
	if failovers {
		programs = append(programs, "patroni", "patronictl", "etcd")
	}
	for _, needed := range programs {
		if _, err := exec.LookPath(needed); err != nil {
			t.Skip("the guide's commands can't be typed here: ", err)
		}
	}
	dir, err := os.MkdirTemp("", "getwork-guide-")
	if err != nil {
		t.Fatal(err)
	}
	end, err := patroni.Watch(dir, nil) // Patroni's servers outlive it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := end(); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(dir, 0o755); err != nil { // for PostgreSQL's account
		t.Fatal(err)
	}
	m := &machines{t: t, dir: dir, hosts: map[string]*host{}, authority: certs.New(t)}
	if m.nginx, err = exec.LookPath("nginx"); err != nil {
		if m.nginx, err = exec.LookPath("/usr/sbin/nginx"); err != nil { // only in root's path
			t.Skip("the guide's commands can't be typed here: ", err)
		}
	}
	if m.idp, err = idp.Start(idp.Config{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.idp.Close() })
	m.startDatabase()
	m.control = httptest.NewServer(http.HandlerFunc(m.controlled))
	t.Cleanup(m.control.Close)

	at, network := ports(t, 8), fmt.Sprintf("127.%d.%d.", 1+rand.IntN(254), rand.IntN(255))
	u, err := url.Parse(m.database.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	m.public, m.prometheus = "https://localhost"+at[3], "http://127.0.0.1"+at[2]
	m.changes = strings.NewReplacer(
		"10.0.0.20/32", "127.0.0.1/32", "10.0.0.0/24", "127.0.0.0/8", // where calls come from on a loopback network
		"10.0.0.", network,
		":5432", ":"+u.Port(), ":8080", at[0], ":9091", at[1], ":9090", at[2],
		"listen 443 ", "listen 127.0.0.1"+at[3]+" ", "listen 80;", "listen 127.0.0.1"+at[4]+";",
		"https://id.bank.example/realms/bank", m.idp.Issuer,
		"https://getwork.bank.example", m.public,
		"getwork.bank.example", "localhost", "db.bank.example", "localhost",
		":2379", at[5], ":2380", at[6], ":8008", at[7],
		"15s", "1s", "ttl: 30", "ttl: 8", "loop_wait: 10", "loop_wait: 1", "retry_timeout: 10", "retry_timeout: 3", // how long Prometheus and Patroni wait
		"{max_connections: 200,", "{max_connections: 200, dynamic_shared_memory_type: mmap,", // files that go with the folder
		"local all postgres peer", "local all postgres trust", // as a user of another name
	)
	if err := os.WriteFile(dir+"/authority.pem", m.authority.PEM(), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, last := range addresses {
		if strings.HasPrefix(name, "pg") && !failovers {
			continue
		}
		h := m.newHost(name, network+strconv.Itoa(last))
		m.hosts[name], m.hosts[h.address] = h, h
	}
	m.fill()
	return m
}

// fill gives machines the files that the guide expects there.
func (m *machines) fill() {
	m.t.Helper()
	source, front := m.hosts["source"], m.hosts["front"]
	if err := os.Mkdir(source.root+"/root/dist", 0o755); err != nil {
		m.t.Fatal(err)
	}
	source.write("root/dist/getwork_0.1.0~dev-1_amd64.deb", "a package\n", 0o644)
	err := errors.Join(os.Symlink(lab.Path("deploy"), source.root+"/root/deploy"), os.Symlink(cluster.Binary(m.t), source.root+"/root/dist/getwork_0.1.0-dev_linux_amd64"))
	if err != nil {
		m.t.Fatal(err)
	}
	browsers := m.authority.Write(m.t.TempDir(), 1, time.Time{})
	for from, to := range map[string]string{browsers.Cert: "getwork.crt", browsers.Key: "getwork.key"} {
		text, err := os.ReadFile(from)
		if err != nil {
			m.t.Fatal(err)
		}
		front.write("etc/nginx/"+to, string(text), 0o600)
	}
	conf := "pid nginx.pid;\nevents {}\nhttp {\naccess_log off;\n" // Debian's is longer
	for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		conf += kind + "_temp_path " + kind + ";\n"
	}
	front.write("etc/nginx/nginx.conf", conf+"include "+front.root+"/etc/nginx/conf.d/*.conf;\n}\n", 0o644)
}

// startDatabase starts a server that is durable, as Debian's is, and has the database postgres alone.
func (m *machines) startDatabase() {
	m.t.Helper()
	m.database = schematest.OwnServer(m.t, map[string]string{"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"})
	db := m.superuser("postgres")
	var version, major int
	var data string
	if err := db.QueryRow(m.t.Context(), `select current_setting('server_version_num')::int / 10000, current_setting('unix_socket_directories'), current_setting('hba_file'), current_setting('data_directory')`).
		Scan(&version, &m.sockets, &m.hba, &data); err != nil {
		m.t.Fatal(err)
	}
	out, _ := exec.CommandContext(m.t.Context(), "pg_dump", "--version").Output()
	if _, err := fmt.Sscanf(string(out), "pg_dump (PostgreSQL) %d", &major); err != nil || major < version {
		m.t.Skipf("PostgreSQL %d, and %s can't dump it", version, out)
	}
	if info, err := os.Stat(data); err == nil && os.Geteuid() == 0 {
		of := info.Sys().(*syscall.Stat_t)
		m.account = &syscall.Credential{Uid: of.Uid, Gid: of.Gid}
	}
	if _, err := db.Exec(m.t.Context(), `drop database getwork`); err != nil { // the test server's own
		m.t.Fatal(err)
	}
}

// superuser connects to a database as PostgreSQL's superuser.
func (m *machines) superuser(database string) *pgx.Conn {
	m.t.Helper()
	db, err := pgx.Connect(m.t.Context(), m.database.URL(database))
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { _ = db.Close(context.Background()) })
	return db
}

// ports returns free ports, each as ":1234", below those that the kernel uses for outgoing connections.
func ports(t *testing.T, n int) (found []string) {
	t.Helper()
	for range 1000 {
		at := ":" + strconv.Itoa(10_000+rand.IntN(22_000))
		l, err := net.Listen("tcp", at)
		if err != nil || slices.Contains(found, at) {
			continue
		}
		defer l.Close()
		if found = append(found, at); len(found) == n {
			return found
		}
	}
	t.Fatal("too few free ports")
	return nil
}

// newHost returns a machine whose shell lasts until the end of the test, or of a command that fails.
func (m *machines) newHost(name, address string) *host {
	m.t.Helper()
	h := &host{machines: m, name: name, address: address, root: filepath.Join(m.dir, address), services: map[string]func(){}}
	for _, dir := range []string{"root", "bin", "etc/nginx/conf.d", "etc/nginx/sites-enabled", "etc/prometheus", "etc/default", "etc/systemd/system", "etc/sysusers.d", "etc/cron.d", "etc/postgresql-common", "etc/patroni", "var/lib/postgresql", "var/lib/etcd", "var/run/postgresql", "usr/bin", "usr/local/sbin", "var/backups", "var/lib/prometheus"} {
		if err := os.MkdirAll(filepath.Join(h.root, dir), 0o755); err != nil {
			m.t.Fatal(err)
		}
		if m.account != nil && strings.HasSuffix(dir, "/postgresql") {
			if err := os.Chown(filepath.Join(h.root, dir), int(m.account.Uid), int(m.account.Gid)); err != nil {
				m.t.Fatal(err)
			}
		}
	}
	for program, script := range standIns {
		h.write("bin/"+program, "#!/bin/bash\nset -eu\n"+script+"\n", 0o755)
	}
	u, err := url.Parse(m.database.URL("postgres"))
	if err != nil {
		m.t.Fatal(err)
	}
	owner := ""
	if m.account != nil {
		owner = strconv.FormatUint(uint64(m.account.Uid), 10)
	}
	env := slices.DeleteFunc(process.Environment(), func(e string) bool {
		return strings.HasPrefix(e, "PG") || strings.HasPrefix(e, "LC_") || strings.HasPrefix(e, "LANG")
	})
	h.env = append(env, "HOME="+h.root+"/root", "PATH="+h.root+"/bin:"+h.root+"/usr/bin:"+os.Getenv("PATH")+":/usr/sbin", "LC_ALL=C.UTF-8", "GORACE=atexit_sleep_ms=0",
		"SSL_CERT_FILE="+m.dir+"/authority.pem", "CURL_CA_BUNDLE="+m.dir+"/authority.pem", "PROXY="+m.nginx, "GETWORK="+cluster.Binary(m.t),
		"ROOT="+h.root, "MACHINES="+m.dir, "MACHINE="+address, "SOURCE="+lab.Path(""), "CONTROL="+m.control.URL,
		"SOCKETS="+m.sockets, "DBPORT="+u.Port(), "DBOWNER="+owner)
	c := exec.Command("bash", "--noprofile", "--norc", "-e")
	c.Dir, c.Env = h.root+"/root", h.env
	in, err1 := c.StdinPipe()
	out, err2 := c.StdoutPipe()
	c.Stderr = c.Stdout
	if err := errors.Join(err1, err2); err != nil {
		m.t.Fatal(err)
	}
	h.shell, h.said = in, bufio.NewReader(out)
	if h.kill, _, err = runs(m.t, c); err != nil {
		m.t.Fatal(err)
	}
	return h
}

func (h *host) write(name, text string, mode os.FileMode) {
	h.t.Helper()
	if err := os.WriteFile(filepath.Join(h.root, name), []byte(text), mode); err != nil {
		h.t.Fatal(err)
	}
}

// absolute finds the paths of files that are a machine's own.
var absolute = regexp.MustCompile(`(^|[\s'"=:<>])(/(?:etc|usr/bin|usr/local/sbin|var/backups|var/lib|var/run)/)`)

// foreign finds those that typed does not know.
var foreign = regexp.MustCompile(`[\s'"=:<>(,]/(?:etc|var|root|home|boot|opt|usr/(?:bin|local|sbin|share))/`)

// typed types commands, and returns what is printed. A command that fails ends the test, unless "|| true" follows.
func (h *host) typed(commands, otherwise string) string {
	h.t.Helper()
	commands = absolute.ReplaceAllString(h.changes.Replace(commands), "${1}"+h.root+"${2}")
	if left := foreign.FindString(strings.ReplaceAll(commands, h.root, "~")); left != "" {
		h.t.Fatalf("a command would touch a file of the test's own machine (%s):\n%s", left, commands)
	}
	h.write("typed", commands, 0o600)
	h.t.Logf("%s# %s", h.name, strings.TrimSpace(commands))
	late := time.AfterFunc(timeout.Scale(time.Minute), h.kill)
	defer late.Stop()
	const end = "that was typed"
	if _, err := fmt.Fprintf(h.shell, ". %q </dev/null %s; echo; echo %q\n", h.root+"/typed", otherwise, end); err != nil {
		h.t.Fatal(err)
	}
	var said strings.Builder
	for {
		line, err := h.said.ReadString('\n')
		if line == end+"\n" {
			h.t.Logf("%s", said.String())
			return said.String()
		}
		said.WriteString(line)
		if err != nil {
			h.t.Fatalf("a command of the guide fails, or takes too long:\n%s\nit says\n%s", commands, said.String())
		}
	}
}
