package story

import (
	"bytes"
	"encoding/json"
	"io"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"getwork/cmd/internal/cluster"
	"getwork/cmd/internal/e2e"
	"getwork/cmd/lab"
)

// page returns a page of docs.
func page(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(lab.Path("docs/" + name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// raiseIDs returns the SQL of docs/upgrade.md that raises the ids after a restore.
func raiseIDs(t *testing.T) string {
	t.Helper()
	found := regexp.MustCompile("(?s)```sql\n(.*?)```").FindStringSubmatch(page(t, "upgrade.md"))
	if found == nil {
		t.Fatal("docs/upgrade.md has no block of SQL any more")
	}
	return found[1]
}

// family is a metric as a node exposes it.
type family struct {
	kind   string   // counter, gauge or histogram
	labels []string // sorted
}

// scraped returns the metrics of the site's first node, by name.
func (s *site) scraped() map[string]family {
	s.T.Helper()
	s.Task("verify", `select i as item from generate_series(1, 9) i`)
	s.Takes("Oliver", 1) // so that the metrics of answers and runs exist
	var figures map[string]family
	e2e.Await(s.T, "the metrics of the task", 30*time.Second, func() bool { // the names of tasks are some seconds old
		a, err := s.As("", 0).Do(s.T.Context(), "GET", "/metrics", nil)
		if err != nil || a.Status != 200 {
			s.T.Fatalf("metrics: %d %s, %v", a.Status, a.Body, err)
		}
		figures = families(s.T, bytes.NewReader(a.Body))
		return figures["getwork_task_run_duration_seconds"].kind != "" // which is counted last
	})
	return figures
}

// scraped returns those of a node where people log in.
func (l *logIns) scraped(t *testing.T) map[string]family {
	t.Helper()
	a, err := l.Client("").Do(t.Context(), "GET", "/api/v1/me", nil, "Authorization", "Bearer none") // so that the metric of log-ins exists
	if err != nil || a.Status != 401 {
		t.Fatalf("a bad token: %d %s, %v", a.Status, a.Body, err)
	}
	at, err := url.Parse(l.metrics)
	if err != nil {
		t.Fatal(err)
	}
	a, err = cluster.Client{URL: "http://" + at.Host}.Do(t.Context(), "GET", at.Path, nil)
	if err != nil || a.Status != 200 {
		t.Fatalf("metrics: %d %s, %v", a.Status, a.Body, err)
	}
	return families(t, bytes.NewReader(a.Body))
}

// families reads a page of metrics.
func families(t *testing.T, page io.Reader) map[string]family {
	t.Helper()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	all, err := parser.TextToMetricFamilies(page)
	if err != nil {
		t.Fatal(err)
	}
	figures := map[string]family{}
	for name, f := range all {
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, l.GetName())
		}
		slices.Sort(labels)
		figures[name] = family{strings.ToLower(f.GetType().String()), labels}
	}
	return figures
}

// everyFigure returns the metrics of both kinds of nodes.
func everyFigure(t *testing.T) map[string]family {
	t.Helper()
	figures := newSite(t, 1, "").scraped()
	maps.Copy(figures, newLogIns(t).scraped(t))
	return figures
}

var (
	figureRow  = regexp.MustCompile("(?m)^\\| `(getwork_[a-z_]+)` \\| ([a-z]+) \\|([^|]*)\\|")
	figureName = regexp.MustCompile(`\bgetwork_[a-z_]+`)
	selector   = regexp.MustCompile(`(getwork_[a-z_]+)\{([^}]*)\}`)
	matcher    = regexp.MustCompile(`([a-z_]+)\s*(?:=~|!~|!=|=)`)
	inTicks    = regexp.MustCompile("`([^`]*)`")
	parts      = regexp.MustCompile(`_(bucket|sum|count)$`)
)

// What docs/watch.md, the alerts and the dashboard say of metrics is true of real nodes.
func TestOperationsMetrics(t *testing.T) {
	figures := everyFigure(t)
	t.Run("documentation", func(t *testing.T) { documented(t, figures) })
	t.Run("alerts", func(t *testing.T) { alerts(t, figures) })
	t.Run("dashboard", func(t *testing.T) { dashboards(t, figures) })
}

// docs/watch.md lists exactly the metrics that real nodes expose, with their types and labels; and every other
// page that names a metric names an existing one.
func documented(t *testing.T, figures map[string]family) {
	doc := page(t, "watch.md")
	told, there := map[string]string{}, map[string]string{}
	for _, row := range figureRow.FindAllStringSubmatch(doc, -1) {
		var labels []string
		for _, l := range inTicks.FindAllStringSubmatch(row[3], -1) {
			labels = append(labels, l[1])
		}
		slices.Sort(labels)
		told[row[1]] = strings.TrimSpace(row[2] + " " + strings.Join(labels, " "))
	}
	for name, f := range figures {
		if strings.HasPrefix(name, "getwork_") {
			there[name] = strings.TrimSpace(f.kind + " " + strings.Join(f.labels, " "))
		}
	}
	if diff := cmp.Diff(there, told); diff != "" {
		t.Errorf("figures of a node, and of docs/watch.md (-node +doc):\n%s", diff)
	}
	pages, err := filepath.Glob(lab.Path("docs/*.md"))
	if err != nil || len(pages) < 10 {
		t.Fatalf("only the pages %v, %v", pages, err)
	}
	for _, file := range pages {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range figureName.FindAllString(string(text), -1) {
			if _, known := figures[name]; !known && !strings.HasPrefix(name, "getwork_bench_") {
				t.Errorf("%s names %s, but no such metric exists", filepath.Base(file), name)
			}
		}
	}
}

var (
	rules     = lab.Path("deploy/prometheus/rules.yaml")
	dashboard = lab.Path("deploy/grafana/getwork.json")
)

var (
	ofJob  = regexp.MustCompile(`\b(sum|min|max|count) by \(job\b`)
	mixing = regexp.MustCompile(`\b(sum|min|max|count)\b *(by *)?\(`)
)

// checkExpr fails the test if an expression names no metric of a node, or a label that its metric does not have, or adds up the nodes of
// several installations.
func checkExpr(t *testing.T, figures map[string]family, where, expr string) {
	t.Helper()
	names := figureName.FindAllString(expr, -1)
	if len(names) == 0 && !strings.Contains(expr, "process_") && !strings.HasPrefix(expr, "up{") { // up is Prometheus's own
		t.Errorf("%s uses no metric", where)
	}
	for _, name := range names {
		if f, whole := figures[name], figures[parts.ReplaceAllString(name, "")]; f.kind == "" && whole.kind == "" {
			t.Errorf("%s uses %s, which does not exist", where, name)
		}
	}
	if mixed := mixing.FindString(ofJob.ReplaceAllString(expr, "")); mixed != "" {
		t.Errorf("%s mixes installations, which are jobs: %s…", where, mixed)
	}
	for _, s := range selector.FindAllStringSubmatch(expr, -1) {
		for _, m := range matcher.FindAllStringSubmatch(s[2], -1) {
			if labels := figures[parts.ReplaceAllString(s[1], "")].labels; m[1] != "job" && !slices.Contains(labels, m[1]) { // Prometheus adds job
				t.Errorf("%s asks for the label %s of %s, which has %v", where, m[1], s[1], labels)
			}
		}
	}
}

// Alerts use existing metrics and labels, and each is explained. Prometheus accepts them, fires each in its own trouble, and
// none in a normal hour.
func alerts(t *testing.T, figures map[string]family) {
	doc := page(t, "runbook.md")
	content, err := os.ReadFile(rules)
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Groups []struct {
			Name  string
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		}
	}
	if err := yaml.UnmarshalWithOptions(content, &file, yaml.Strict()); err != nil {
		t.Fatal(err)
	}
	if len(file.Groups) != 1 || len(file.Groups[0].Rules) < 8 {
		t.Fatalf("%+v; want eight rules or more in a group", file)
	}
	cases, err := os.ReadFile(strings.Replace(rules, ".yaml", "_test.yaml", 1))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range file.Groups[0].Rules {
		if r.Annotations["summary"] == "" || !slices.Contains([]string{"page", "ticket"}, r.Labels["severity"]) {
			t.Errorf("%s is incomplete: %+v", r.Alert, r)
		}
		if !strings.Contains(doc, "\n### "+r.Alert+"\n") || r.Annotations["runbook_url"] != "docs/runbook.md#"+strings.ToLower(r.Alert) {
			t.Errorf("%s is not explained", r.Alert)
		}
		if !strings.Contains(string(cases), `alertname="`+r.Alert+`"`) {
			t.Errorf("no case shows when %s fires", r.Alert)
		}
		checkExpr(t, figures, r.Alert, r.Expr)
	}
	t.Run("Prometheus", func(t *testing.T) {
		promtool, err := exec.LookPath("promtool")
		if err != nil {
			t.Skip("Prometheus itself is not asked: ", err)
		}
		for _, args := range [][]string{{"check", "rules", rules}, {"test", "rules", strings.Replace(rules, ".yaml", "_test.yaml", 1)}} {
			if out, err := exec.CommandContext(t.Context(), promtool, args...).CombinedOutput(); err != nil {
				t.Errorf("promtool %v: %v\n%s", args, err, out)
			}
		}
	})
}

// Each query of the dashboard finds its metric and labels in what real nodes expose.
func dashboards(t *testing.T, figures map[string]family) {
	content, err := os.ReadFile(dashboard)
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(content, &board); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, p := range board.Panels {
		for _, target := range p.Targets {
			checkExpr(t, figures, p.Title, strings.NewReplacer(",route=\"/api/v1/tasks/{task}/requests\"", "").Replace(target.Expr))
			n++
		}
	}
	if n < 15 {
		t.Errorf("the dashboard has only %d queries", n)
	}
}

// A log line that the page calls worth watching is one that a node writes.
func TestOperationsLogLines(t *testing.T) {
	_, section, _ := strings.Cut(page(t, "watch.md"), "\n## Log lines\n")
	section, _, _ = strings.Cut(section, "\n## ")
	lines := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(section, -1) {
		lines[row[1]] = true
	}
	if len(lines) < 5 {
		t.Fatalf("only these lines were found: %v", lines)
	}
	err := filepath.WalkDir(lab.Path(""), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		for line := range lines {
			if strings.Contains(string(source), `"`+line+`"`) {
				delete(lines, line)
			}
		}
		return err
	})
	if err != nil || len(lines) > 0 {
		t.Errorf("no node writes %v (%v)", slices.Sorted(maps.Keys(lines)), err)
	}
}

// After a restore to an earlier time no id is given out a second time.
func TestOperationsRestore(t *testing.T) {
	s := newSite(t, 1, "")
	s.Task("verify", `select i as item from generate_series(1, 9) i`)
	before := s.Takes("Oliver", 1)[0]
	const rounds = `select last_value from getwork.round`
	round := column[int64](s, rounds)[0]
	s.Exec(raiseIDs(t))
	after := s.Takes("Tracy", 1)[0]
	if after.ID < before.ID+1_000_000 {
		t.Errorf("work %d, and after the restore %d", before.ID, after.ID)
	}
	for _, table := range []string{"work_requested", "run"} {
		if ids := column[int64](s, `select id from getwork.`+table+` order by id`); len(ids) != 2 || ids[1] < ids[0]+1_000_000 {
			t.Errorf("%s has the ids %v", table, ids)
		}
	}
	if now := column[int64](s, rounds)[0]; now < round+1_000_000 {
		t.Errorf("the rounds' ids were at %d, and are now at %d", round, now)
	}
}
