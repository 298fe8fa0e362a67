package deploy

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/types"

	"getwork/cmd/lab"
	"getwork/schema/postgres"
)

// passwords are those that compose.yaml wants.
var passwords = []string{"POSTGRES_PASSWORD=p1", "GETWORK_DB_PASSWORD=p2", "GETWORK_QUERY_PASSWORD=p3"}

// database is a PostgreSQL as Compose starts it: with a database getwork, in which logins.sh was run. It returns its address.
func database(t *testing.T) (host string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "getwork-check-") // t.TempDir is in a folder that another user may not enter, as whom root's server runs
	if err != nil {
		t.Fatal(err)
	}
	server, err := postgres.Start(t.Context(), postgres.Config{Dir: dir, Fast: true, TCP: true, Remove: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(context.Background()); err != nil { // the test's own context has ended
			t.Error(err)
		}
	})
	u, err := url.Parse(server.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	output(t, "psql", "-c", "create database getwork", u.String())
	password, _ := u.User.Password()
	c := exec.Command("sh", lab.Path("deploy/logins.sh"))
	c.Env = append(os.Environ(), append(passwords, "PGHOST="+u.Hostname(), "PGPORT="+u.Port(), "PGPASSWORD="+password, "POSTGRES_DB=getwork")...)
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("logins.sh: %v\n%s", err, out)
	}
	return u.Host
}

// serves runs a node with these settings and no others, has it execute a query for an administrator, and drains it.
func serves(t *testing.T, settings map[string]string) {
	t.Helper()
	file, err := program()
	if err != nil {
		t.Fatal(err, file)
	}
	env := []string{"GETWORK_LISTEN=127.0.0.1:0"}
	for name, value := range settings {
		if name != "GETWORK_LISTEN" && name != "GETWORK_METRICS_LISTEN" { // all addresses of a container
			env = append(env, name+"="+value)
		}
	}
	node := exec.Command(file, "serve")
	node.Env = env
	node.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	log, err := node.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := node.Start(); err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	address := ""
	lines := bufio.NewScanner(log)
	for address == "" && lines.Scan() {
		fmt.Fprintln(&said, lines.Text())
		_, address, _ = strings.Cut(lines.Text(), "listening on ")
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		for lines.Scan() {
			fmt.Fprintln(&said, lines.Text())
		}
	}()
	defer func() {
		_ = node.Process.Signal(syscall.SIGTERM)
		<-read
		if err := node.Wait(); err != nil {
			t.Errorf("the node ends with %v", err)
		}
		if t.Failed() {
			t.Logf("it said:\n%s", &said)
		}
	}()
	if address == "" {
		t.Fatal("the node does not start")
	}

	token := exec.Command(file, "token", "create", "--direct", "--user", "rescue", "--role", "manager", "--admin", "--expires", "1h", "--label", "first admin")
	token.Env = env
	var errs strings.Builder
	token.Stderr = &errs
	secret, err := token.Output()
	if err != nil {
		t.Fatalf("no token: %v: %s", err, &errs)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address+"/api/v1/preview", strings.NewReader(`{"query":"select 'a' as item"}`))
	if err != nil {
		t.Fatal(err)
	}
	public, err := url.Parse(settings["GETWORK_PUBLIC_URL"])
	if err != nil {
		t.Fatal(err)
	}
	r.Host = public.Host
	r.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(secret)))
	r.Header.Set("Content-Type", "application/json")
	response, err := (&http.Client{Timeout: time.Minute}).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var shown struct{ Rows []struct{ Item string } }
	if err := json.NewDecoder(response.Body).Decode(&shown); err != nil || response.StatusCode != http.StatusOK || len(shown.Rows) != 1 || shown.Rows[0].Item != "a" {
		t.Errorf("a preview: %d %+v %v", response.StatusCode, shown, err)
	}
}

// A node runs with the settings of compose.yaml, on a database that logins.sh has prepared.
func TestComposeRuns(t *testing.T) {
	t.Parallel()
	project := composed(t, passwords...)
	node, err := project.GetService("node1")
	if err != nil {
		t.Fatal(err)
	}
	host, settings := database(t), map[string]string{}
	for name, value := range node.Environment {
		settings[name] = strings.ReplaceAll(*value, "@postgres:5432/", "@"+host+"/")
	}
	serves(t, settings)
	if db, err := project.GetService("postgres"); err != nil || *db.Environment["POSTGRES_DB"] != "getwork" || !initialises(db) {
		t.Errorf("PostgreSQL does not run logins.sh for the database getwork: %v %v", db.Volumes, err)
	}
}

// initialises reports whether the image of PostgreSQL runs logins.sh.
func initialises(db types.ServiceConfig) bool {
	for _, v := range db.Volumes {
		if filepath.Base(v.Source) == "logins.sh" && filepath.Dir(v.Target) == "/docker-entrypoint-initdb.d" {
			return true
		}
	}
	return false
}

// A node runs with the settings of the manifests, as they are.
func TestKubernetesRuns(t *testing.T) {
	t.Parallel()
	c := built(t)
	host, dir, settings := database(t), t.TempDir(), map[string]string{}
	for name, login := range map[string]string{"database-url": "getwork:p2", "query-database-url": "getwork_query:p3"} {
		if err := os.WriteFile(filepath.Join(dir, name), fmt.Appendf(nil, "postgres://%s@%s/getwork?sslmode=disable\n", login, host), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, value := range c.settings.Data {
		settings[name] = value
	}
	pod := c.deployment.Spec.Template.Spec
	for _, v := range pod.Containers[0].Env {
		settings[v.Name] = strings.Replace(v.Value, pod.Containers[0].VolumeMounts[0].MountPath, dir, 1)
	}
	serves(t, settings)
}
