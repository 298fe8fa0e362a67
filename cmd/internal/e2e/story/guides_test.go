package story

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"getwork/cmd/internal/cluster"
	"getwork/cmd/internal/node"
	"getwork/schema/schematest"
	"getwork/schema/schematest/timeout"
)

// The commands of the guides are typed as they stand there, one guide on one node, with a small bank.
func TestGuides(t *testing.T) {
	t.Parallel()
	for guide, least := range map[string]int{"api": 7, "ranking-query": 6, "webhooks": 8} {
		t.Run(guide, func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(filepath.Join("../../../../docs", guide+".md"))
			if err != nil {
				t.Fatal(err)
			}
			site := newSite(t, 1, schematest.URL(t))
			site.Exec(`create schema bank`)
			site.Exec(`create table bank.loan as select i as loan_id, i * 100000 as amount, now() + i * interval '1 day' as submitted_at from generate_series(1, 20) i`)
			s := shell{t: t, dir: t.TempDir(), url: site.Nodes[0].URL, binary: cluster.Binary(t)}
			typed := 0
			for _, part := range regexp.MustCompile("(?s)```yaml\nname: ([a-z-]+)\n(.*?)```|(?m)^    [a-z][^\n]*$").FindAllStringSubmatch(string(text), -1) {
				if part[1] != "" { // a file, as it is at this place of the guide
					if err := os.WriteFile(filepath.Join(s.dir, part[1]+".yaml"), []byte("name: "+part[1]+"\n"+part[2]), 0o600); err != nil {
						t.Fatal(err)
					}
					continue
				}
				s.typed(strings.TrimSpace(part[0]))
				typed++
			}
			if typed < least {
				t.Errorf("%d commands typed; the guide has lost some", typed)
			}
		})
	}
}

// The commands of the README and of the first task's guide are typed as they stand there, one after the other in one shell, in an empty
// folder, on an empty database. Only the addresses are others, and the program is not installed once more.
func TestFromNothing(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"bash", "curl", "psql"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip("the commands can't be typed here: ", err)
		}
	}
	for page, heading := range map[string]string{"README.md": "## Use it\n", "docs/first-task.md": ""} {
		t.Run(page, func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(filepath.Join("../../../..", page))
			if err != nil {
				t.Fatal(err)
			}
			_, section, found := strings.Cut(string(text), heading)
			section, _, _ = strings.Cut(section, map[bool]string{true: "\n## ", false: "\x00"}[heading != ""])
			var typed strings.Builder
			lines := regexp.MustCompile(`(?m)^    [a-z].*$`).FindAllString(section, -1)
			for _, line := range lines {
				if line = strings.TrimSpace(line); !strings.HasPrefix(line, "go install ") {
					typed.WriteString(line + "\n")
				}
			}
			if !found || len(lines) < 10 {
				t.Fatalf("%d commands; the page has lost some", len(lines))
			}
			listener, err := net.Listen("tcp", "127.0.0.1:0") // a port that is free, for the node that the commands start
			if err != nil {
				t.Fatal(err)
			}
			address := listener.Addr().String()
			_ = listener.Close()
			ctx, cancel := context.WithTimeout(t.Context(), timeout.Scale(3*time.Minute))
			defer cancel()
			commands := strings.NewReplacer("postgres://me@localhost/mydb", "'"+schematest.URL(t)+"'", "127.0.0.1:8080", address).Replace(typed.String())
			c := exec.CommandContext(ctx, "bash", "-e", "-c", "trap 'kill %1; wait' EXIT\n"+commands)
			c.Dir = t.TempDir()
			c.Env = append(node.Environment(), "GETWORK_LISTEN="+address, "GETWORK_URL=http://"+address, "GETWORK_USER=reader",
				"PATH="+filepath.Dir(cluster.Binary(t))+string(os.PathListSeparator)+os.Getenv("PATH"))
			c.WaitDelay = 10 * time.Second
			out, err := c.CombinedOutput()
			if err != nil {
				t.Errorf("%v\n%s\n%s", err, commands, out)
			}
			t.Logf("%s", out)
		})
	}
}
