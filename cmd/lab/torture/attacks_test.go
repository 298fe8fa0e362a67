package torture_test

import (
	"fmt"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// attack is a way in which log-in and rights could fail.
type attack struct {
	what    string
	clauses []clause
}

// clause is a line of code that prevents an attack, and the test that notices when the line is missing. Where several lines
// cover each other, the edits switch all of them off.
type clause struct {
	what       string
	edits      []edit
	tree, test string // the test is below this folder; a subtest comes behind slashes, as for -run
	says       string // what the test says then
}

// in changes one text below a folder.
func in(tree, old, new string) []edit { return []edit{{tree, old, new}} }

// TestAttacks switches off each clause in turn, and expects its test to fail.
func TestAttacks(t *testing.T) {
	if os.Getenv("GETWORK_TEST_HOLES") == "" {
		t.Skip("compiles for some minutes: set GETWORK_TEST_HOLES=1")
	}
	passed := map[string]bool{}
	for i, a := range attacks {
		for _, c := range a.clauses {
			t.Run(fmt.Sprint(i+1, " ", c.what), func(t *testing.T) {
				if !passed[c.tree+c.test] {
					if out, err := c.run(t); err != nil || strings.Contains(out, "[no tests to run]") {
						t.Fatalf("with the clause %s ought to pass: %v\n%s", c.test, err, out)
					}
					passed[c.tree+c.test] = true
				}
				out, err := c.run(t, c.edits...)
				if err == nil || !strings.Contains(out, "--- FAIL: "+c.name()) || !strings.Contains(out, c.says) {
					t.Errorf("without the clause %s ought to fail, and say %q: %v\n%s", c.test, c.says, err, out)
				}
			})
		}
	}
}

// name returns the test's function.
func (c clause) name() string { name, _, _ := strings.Cut(c.test, "/"); return name }

// run runs the clause's test, with these changes. Nodes that the test builds take flags from the environment, too. The result is not a
// cached one: the cache does not know of those nodes.
func (c clause) run(t *testing.T, edits ...edit) (out string, err error) {
	t.Helper()
	test := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-timeout", "5m", "-run", "^"+strings.ReplaceAll(regexp.QuoteMeta(c.test), "/", "$/^")+"$")
	test.Dir = folderOf(t, c.tree, c.name())
	if len(edits) > 0 {
		test.Env = append(os.Environ(), "GOFLAGS=-overlay="+overlay(t, edits...))
	}
	b, err := test.CombinedOutput()
	return string(b), err
}

// The table is whole: there are twenty attacks, each has clauses, the texts that they change occur once, and their tests exist.
// docs/security.md names, in the attack's row, each of these tests.
func TestAttacksAreWhole(t *testing.T) {
	if len(attacks) != 20 {
		t.Errorf("there are %d attacks, want 20", len(attacks))
	}
	page, err := os.ReadFile(path.Join(root, "docs", "security.md"))
	if err != nil {
		t.Fatal(err)
	}
	for i, a := range attacks {
		row := regexp.MustCompile(fmt.Sprintf(`(?m)^\| %d \|.*$`, i+1)).FindString(string(page))
		if row == "" {
			t.Errorf("docs/security.md has no row for attack %d, %s", i+1, a.what)
		}
		var names []string
		for _, c := range a.clauses {
			t.Run(fmt.Sprint(i+1, " ", c.what), func(t *testing.T) {
				overlay(t, c.edits...)
				folderOf(t, c.tree, c.name())
			})
			if c.says == "" {
				t.Errorf("%s: the table does not say how %s fails", c.what, c.test)
			}
			if names = append(names, c.name()); !strings.Contains(row, "`"+c.name()+"`") {
				t.Errorf("docs/security.md does not name %s in the row of attack %d", c.name(), i+1)
			}
		}
		for _, m := range regexp.MustCompile("`(Test[A-Za-z]+)`").FindAllStringSubmatch(row, -1) {
			if !slices.Contains(names, m[1]) {
				t.Errorf("docs/security.md names %s in the row of attack %d, and no clause does", m[1], i+1)
			}
		}
	}
}
