package deploy

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"

	"getwork/cmd/lab"
)

// read returns a file of deploy/ or of the repository.
func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// programIn is the folder of program, which is deleted after the last test.
var programIn string

func TestMain(m *testing.M) {
	code := m.Run()
	if err := os.RemoveAll(programIn); err != nil { // nothing, if no test needed it
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// program is getwork, built from this tree.
var program = sync.OnceValues(func() (file string, err error) {
	if programIn, err = os.MkdirTemp("", "getwork-check-"); err != nil {
		return "", err
	}
	file = filepath.Join(programIn, "getwork")
	c := exec.Command("go", "build", "-o", file, "./cmd/getwork")
	c.Dir = lab.Path("")
	if out, err := c.CombinedOutput(); err != nil {
		return string(out), err
	}
	return file, nil
})

// help is what `getwork serve --help` says.
func help(t *testing.T) string {
	t.Helper()
	file, err := program()
	if err != nil {
		t.Fatal(err, file)
	}
	return output(t, file, "serve", "--help")
}

func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	c := exec.Command(name, args...)
	var errs bytes.Buffer
	c.Stderr = &errs
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, out, &errs)
	}
	return string(out)
}

// knows fails if getwork serve has no such setting.
func knows(t *testing.T, variable string) {
	t.Helper()
	if !regexp.MustCompile(`\$` + variable + `\b`).MatchString(help(t)) {
		t.Errorf("getwork serve does not know %s", variable)
	}
}

// drain is the default of --drain-timeout.
func drain(t *testing.T) time.Duration {
	t.Helper()
	found := regexp.MustCompile(`--drain-timeout=(\w+)`).FindStringSubmatch(help(t))
	if found == nil {
		t.Fatal("getwork serve has no --drain-timeout")
	}
	d, err := time.ParseDuration(found[1])
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// enough fails if a node would be killed before it has drained, or long after.
func enough(t *testing.T, name string, given time.Duration) {
	t.Helper()
	if least := drain(t) + 5*time.Second; given < least || given > 3*drain(t) {
		t.Errorf("%s is %s; a node takes up to %s to drain, so it must be at least %s", name, given, drain(t), least)
	}
}

// composed is compose.yaml, as Compose's own loader reads it in this environment.
func composed(t *testing.T, env ...string) *types.Project {
	t.Helper()
	options, err := cli.NewProjectOptions([]string{lab.Path("deploy/compose.yaml")}, cli.WithEnv(env))
	if err != nil {
		t.Fatal(err)
	}
	project, err := options.LoadProject(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return project
}

// compose.yaml is as Compose's own loader wants it, and names only settings that getwork has.
func TestCompose(t *testing.T) {
	t.Parallel()
	project := composed(t, passwords...)
	nginx, err := project.GetService("nginx")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"node1", "node2"} {
		node, err := project.GetService(name)
		if err != nil {
			t.Fatal(err)
		}
		if trusted, want := *node.Environment["GETWORK_TRUSTED_PROXY"], nginx.Networks["inside"].Ipv4Address+"/32"; trusted != want {
			t.Errorf("%s lets %s name clients, and nginx is %s", name, trusted, want)
		}
		if !node.ReadOnly || len(node.CapDrop) != 1 || node.CapDrop[0] != "ALL" {
			t.Errorf("%s may write, or has capabilities", name)
		}
		if node.StopGracePeriod == nil {
			t.Fatalf("%s has no stop_grace_period", name)
		}
		enough(t, "stop_grace_period", time.Duration(*node.StopGracePeriod))
		for variable := range node.Environment {
			knows(t, variable)
		}
		if !strings.Contains(read(t, lab.Path("deploy/nginx.conf")), "server "+name+":8080 max_fails=0;") {
			t.Errorf("nginx does not know %s", name)
		}
	}
	for i, without := range passwords {
		missing, err := cli.NewProjectOptions([]string{lab.Path("deploy/compose.yaml")}, cli.WithEnv(slices.Delete(slices.Clone(passwords), i, i+1)))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := missing.LoadProject(t.Context()); err == nil {
			t.Errorf("it starts without %s", without)
		}
	}
}

// nginx accepts its file, apart from the nodes' names, which only Compose's network knows.
func TestNginx(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	site := regexp.MustCompile(`server node\d`).ReplaceAllString(read(t, lab.Path("deploy/nginx.conf")), "server 127.0.0.1")
	config := "pid nginx.pid;\nevents {}\nhttp {\naccess_log off;\n"
	for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		config += kind + "_temp_path " + kind + ";\n"
	}
	site = strings.Replace(site, "listen 80;", "listen unix:"+dir+"/socket;", 1)
	if err := os.WriteFile(dir+"/nginx.conf", []byte(config+site+"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(sbin("nginx"), "-t", "-e", "stderr", "-p", dir, "-c", dir+"/nginx.conf").CombinedOutput()
	if err != nil || bytes.Contains(out, []byte("[warn]")) {
		t.Errorf("%v\n%s", err, out)
	}
}

// sbin finds a program that an ordinary user's PATH does not have.
func sbin(name string) string {
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	return "/usr/sbin/" + name
}

var unit = lab.Path("deploy/package/getwork.service")

// The unit gives a node the time to drain, and its rights are few.
func TestUnit(t *testing.T) {
	t.Parallel()
	found := regexp.MustCompile(`(?m)^TimeoutStopSec=(.*)$`).FindStringSubmatch(read(t, unit))
	if found == nil {
		t.Fatal("there is no TimeoutStopSec")
	}
	d, err := time.ParseDuration(found[1])
	if err != nil {
		t.Fatal(err)
	}
	enough(t, "TimeoutStopSec", d)
	// 15 is an exposure of 1.5. What is left is what a node needs: the network, and its settings on the machine's disk.
	output(t, "systemd-analyze", "security", "--offline=true", "--no-pager", "--threshold=15", unit)
}

// Each setting that the packages' file offers is one of getwork serve, or one of OpenTelemetry's that the manual lists.
func TestSettingsFile(t *testing.T) {
	t.Parallel()
	all := regexp.MustCompile(`(?m)^#?([A-Z_]+)=`).FindAllStringSubmatch(read(t, lab.Path("deploy/package/getwork.env")), -1)
	if len(all) < 10 {
		t.Fatalf("only %d settings are found", len(all))
	}
	manual := read(t, lab.Path("docs/configuration.md"))
	for _, one := range all {
		switch {
		case !strings.HasPrefix(one[1], "OTEL_"):
			knows(t, one[1])
		case !strings.Contains(manual, "`"+one[1]+"`"):
			t.Errorf("docs/configuration.md does not list %s", one[1])
		}
	}
}
