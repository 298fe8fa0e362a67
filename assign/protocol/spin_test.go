package protocol

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// places bounds how many searches run at a time, and so their memory.
var places = make(chan struct{}, 2)

// search is one search of Spin: a model, its switches, and what to search for.
type search struct {
	model    string // a file of this folder
	switches string // set in the model, without their -D
	live     bool   // search for a request that waits for ever; otherwise, for a violated assertion
	shortest bool   // find the shortest way to the violation
	soon     bool   // it ends soon, so that compiling it well would take longer
}

// finding is the result of a search.
type finding struct {
	violation string // what was found; empty if everything was searched and nothing was found
	states    int
	unreached []string // the steps of the model that no execution takes
	folder    string   // where Spin finds the way to the violation
}

var (
	violated  = regexp.MustCompile(`pan:1: (.*) \(at depth`)
	stored    = regexp.MustCompile(`(\d+) states, stored`)
	unreached = regexp.MustCompile(`(?m)^\t(\w+\.pml:\d+), state \d+, "(.*)"$`)
)

// run generates, compiles and executes the search.
func (s search) run(t *testing.T) (f finding) {
	t.Helper()
	for _, tool := range []string{"spin", "gcc"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed, so the model is not checked: apt-get install spin gcc", tool)
		}
	}
	places <- struct{}{}
	defer func() { <-places }()
	f.folder = t.TempDir()
	text, err := os.ReadFile(s.model)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(f.folder, s.model), text, 0o600); err != nil {
		t.Fatal(err)
	}
	var defines []string
	for d := range strings.FieldsSeq(s.switches) {
		defines = append(defines, "-D"+d)
	}
	if s.live {
		defines = append(defines, "-DLIVENESS")
	}
	command(t, f.folder, "spin", append(defines, "-a", s.model)...)
	compile := []string{"-w", "-O1", "-DMEMLIM=1500", "-o", "pan", "pan.c"} // in MB
	if s.soon {
		compile[1] = "-O0"
	}
	arguments := []string{"-m200000", "-Q5"} // steps deep, minutes
	switch {
	case s.live:
		compile = append(compile, "-DNFAIR=3") // it counts the processes up to 14
		arguments = append(arguments, "-a", "-f")
	case s.shortest:
		compile = append(compile, "-DSAFETY", "-DNOFAIR", "-DBFS")
	default:
		compile = append(compile, "-DSAFETY", "-DNOFAIR")
	}
	command(t, f.folder, "gcc", compile...)
	f.read(t, command(t, f.folder, "./pan", arguments...))
	return f
}

// read parses a search's output.
func (f *finding) read(t *testing.T, out string) {
	t.Helper()
	count := stored.FindStringSubmatch(out)
	if count == nil {
		t.Fatalf("the search did not end:\n%s", out)
	}
	f.states, _ = strconv.Atoi(count[1])
	if v := violated.FindStringSubmatch(out); v != nil {
		f.violation = v[1]
		return
	}
	if !strings.Contains(out, "errors: 0") || strings.Contains(out, "not completed") || strings.Contains(out, "depth too small") {
		t.Fatalf("not everything was searched:\n%s", out)
	}
	if !strings.Contains(out, "unreached in proctype ") {
		t.Fatalf("Spin says nothing of what was not reached:\n%s", out)
	}
	for _, u := range unreached.FindAllStringSubmatch(out, -1) {
		if u[2] != "-end-" { // the end of a process that never ends
			f.unreached = append(f.unreached, u[1]+" "+u[2])
		}
	}
}

func command(t *testing.T, folder, name string, arguments ...string) string {
	t.Helper()
	c := exec.CommandContext(t.Context(), name, arguments...)
	c.Dir = folder
	c.SysProcAttr = attributes()
	out, err := c.CombinedOutput()
	var failed *exec.ExitError
	if err != nil && (name != "./pan" || !errors.As(err, &failed)) { // a search that finds a violation may exit with a status
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(arguments, " "), err, out)
	}
	return string(out)
}
