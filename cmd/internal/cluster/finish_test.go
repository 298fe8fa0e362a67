package cluster

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"getwork/cmd/internal/node"
)

// judged notes what is said about a test, and goes on.
type judged struct {
	testing.TB

	errors []string
}

func (j *judged) Errorf(format string, args ...any) {
	j.errors = append(j.errors, fmt.Sprintf(format, args...))
}
func (j *judged) Logf(string, ...any) {}
func (j *judged) Failed() bool        { return len(j.errors) > 0 }

// A process that ends by itself fails its test unless its status is 0. TestNodeLives shows that one which is killed does not.
func TestOwnEndIsNoticed(t *testing.T) {
	t.Parallel()
	for program, want := range map[string]string{"false": "ended with status 1", "true": ""} {
		path, err := exec.LookPath(program)
		if err != nil {
			t.Fatal(err)
		}
		test := &judged{TB: t}
		n := &Node{t: test, Node: node.New(node.Options{Binary: path})}
		if err := n.Launch(); err != nil {
			t.Fatal(err)
		}
		<-n.Done()
		n.cleanUp()
		if said := strings.Join(test.errors, "\n"); (said == "") != (want == "") || !strings.Contains(said, want) {
			t.Errorf("the test of %q is told %q, want %q", program, said, want)
		}
	}
}
