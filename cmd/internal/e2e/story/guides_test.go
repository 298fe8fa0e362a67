package story

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"getwork/cmd/internal/cluster"
	"getwork/cmd/internal/e2e"
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

// The recipes work as they stand there: what is typed is typed, what cron is to run is run as cron does, and Prometheus answers the query
// for a board from what nodes expose.
func TestRecipes(t *testing.T) {
	schematest.Long(t)
	t.Parallel()
	text, err := os.ReadFile("../../../../docs/recipes.md")
	if err != nil {
		t.Fatal(err)
	}
	site := newSite(t, 2, schematest.Plain(t))
	bank := cluster.Start(t, 1, cluster.Options{DatabaseURL: site.URL, Args: []string{"--auth", "token", "--public-url", "http://127.0.0.1:0", "--trust-query-writers"}})[0]
	s := shell{t: t, dir: t.TempDir(), url: site.Nodes[0].URL, binary: cluster.Binary(t)}
	file := func(name, content string) {
		if err := os.WriteFile(filepath.Join(s.dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	file("calls.csv", "item,applicant\n1,Ada\n2,Bruno\n")
	const mia = "export GETWORK_USER=Mia GETWORK_ROLE=manager; "
	typed := regexp.MustCompile(`(?m)^    ([a-z].*)$`).FindAllStringSubmatch(string(text), -1)
	for _, line := range typed {
		if strings.Contains(line[1], "work export") { // so that there is something to export
			s.typed("getwork get call-back --user Tracy")
			s.typed("getwork done ID --user Tracy")
		}
		s.typed(mia + line[1])
	}
	if done, err := os.ReadFile(filepath.Join(s.dir, "done.csv")); len(typed) < 4 || err != nil || !strings.Contains(string(done), ",Tracy,") {
		t.Errorf("%d commands typed; exported is %q (%v)", len(typed), done, err)
	}

	for name, rights := range map[string]string{"push": "agent --scopes push", "observer": "observer --scopes read"} {
		if out, err := s.run("umask 077; getwork token create --direct --database-url '" + site.URL + "' --user " + name + " --expires 1h --label cron --role " + rights + " >" + name + ".token"); err != nil {
			t.Fatal(out)
		}
	}
	jobs := map[string]string{}
	for _, job := range regexp.MustCompile(`(?m)^(?:[0-9*,/-]+ ){5} *getwork  (getwork (\w+) [^%\n]*)$`).FindAllStringSubmatch(string(text), -1) {
		command := strings.NewReplacer("/srv/", "", "/etc/getwork/", "", "https://getwork.bank.example", bank.URL, "'", `'\''`).Replace(job[1])
		jobs[job[2]] = `env -i PATH="$PATH" HOME="$PWD" sh -c '` + command + `'`
	}
	file("calls.csv", "item,applicant\n2,Bruno\n,Nobody\n3,Cy\n")
	if out, _ := s.run(jobs["items"]); !strings.Contains(out, "calls.csv:3: the item has no key") {
		t.Errorf("cron mails %q, which does not name the bad row", out)
	}
	if left := strings.Join(column[string](site, `select item from getwork.item where done_at is null order by item`), " "); left != "2 3" {
		t.Errorf("cron's file leaves %q in the inbox", left)
	}
	if out, _ := s.run(jobs["alerts"]); out != "" {
		t.Errorf("cron mails %q while nothing is wrong", out)
	}
	site.Task("broken", `select 1 / (i - i) as item from generate_series(1, 2) i`)
	s.typed("getwork get broken --user Tracy   # refused: the query fails")
	if out, _ := s.run(jobs["alerts"]); !strings.Contains(out, "broken") {
		t.Errorf("cron mails %q while a query fails", out)
	}
	_, query, _ := strings.Cut(string(text), "## Grafana")
	boardShows(t, site, regexp.MustCompile("(?s)```text\n(.*?)\n```").FindStringSubmatch(query))
}

// boardShows checks that Prometheus, which reads every node, counts the two calls that are left once.
func boardShows(t *testing.T, site *site, query []string) {
	t.Helper()
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("Prometheus is not asked: ", err)
	}
	if query == nil {
		t.Fatal("the guide has lost its query")
	}
	const metric, task = "getwork_task_shelf_items", `{task="call-back"`
	var series []any
	for i, n := range site.Nodes {
		e2e.Await(t, "the node exposes what is left", e2e.Soon, func() bool { return site.Figure(i, metric+task+"}") == 2 })
		series = append(series, map[string]any{"series": metric + task + `,instance="` + n.URL + `"}`, "values": "2"})
	}
	type list []any
	cases, err := json.Marshal(map[string]any{"tests": list{map[string]any{"interval": "1m", "input_series": series, "promql_expr_test": list{map[string]any{
		"expr": query[1], "eval_time": "0m", "exp_samples": list{map[string]any{"labels": task + "}", "value": 2}}}}}}})
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "board.yaml") // JSON is YAML
	if err := os.WriteFile(name, cases, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), promtool, "test", "rules", name).CombinedOutput(); err != nil {
		t.Errorf("%v: %s\n%s", err, out, cases)
	}
}
