package story

import (
	"bytes"
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

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"getwork/cmd/internal/cluster"
	"getwork/cmd/internal/e2e"
)

// operations returns docs/operations.md, and its block in a language.
func operations(t *testing.T, language string) (doc, block string) {
	t.Helper()
	b, err := os.ReadFile("../../../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("(?s)```" + language + "\n(.*?)```").FindSubmatch(b)
	if found == nil {
		t.Fatalf("docs/operations.md has no block of %s any more", language)
	}
	return string(b), string(found[1])
}

// family is a metric as a node exposes it.
type family struct {
	kind   string   // counter, gauge or histogram
	labels []string // sorted
}

// scraped returns the metrics of the site's first node, by name.
func (s *site) scraped() map[string]family {
	s.T.Helper()
	s.Figure(0, "getwork_listener_up") // one answer, so that the metric of answers exists
	a, err := s.As("", 0).Do(s.T.Context(), "GET", "/metrics", nil)
	if err != nil || a.Status != 200 {
		s.T.Fatalf("metrics: %d %s, %v", a.Status, a.Body, err)
	}
	return families(s.T, bytes.NewReader(a.Body))
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

// docs/operations.md lists exactly the metrics that real nodes expose, with their types and labels; and every other
// page that names a metric names an existing one.
func TestOperationsFigures(t *testing.T) {
	doc, _ := operations(t, "yaml")
	figures := everyFigure(t)
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
		t.Errorf("figures of a node, and of docs/operations.md (-node +doc):\n%s", diff)
	}
	for _, name := range figureName.FindAllString(doc, -1) {
		if _, known := figures[name]; !known {
			t.Errorf("%s is named, but no such metric exists", name)
		}
	}
}

// Prometheus accepts the alert rules; they use existing metrics and labels; and each is explained.
func TestOperationsAlerts(t *testing.T) {
	doc, block := operations(t, "yaml")
	var file struct {
		Groups []struct {
			Name  string
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		}
	}
	if err := yaml.UnmarshalWithOptions([]byte(block), &file, yaml.Strict()); err != nil {
		t.Fatal(err)
	}
	if len(file.Groups) != 1 || len(file.Groups[0].Rules) != 8 {
		t.Fatalf("%+v; want eight rules in a group", file)
	}
	figures := everyFigure(t)
	for _, r := range file.Groups[0].Rules {
		if r.Annotations["summary"] == "" || !slices.Contains([]string{"page", "ticket"}, r.Labels["severity"]) {
			t.Errorf("%s is incomplete: %+v", r.Alert, r)
		}
		if !strings.Contains(doc, "\n| `"+r.Alert+"` | ") {
			t.Errorf("%s is not explained", r.Alert)
		}
		names := figureName.FindAllString(r.Expr, -1)
		if len(names) == 0 {
			t.Errorf("%s uses no metric", r.Alert)
		}
		for _, name := range names {
			if f, whole := figures[name], figures[parts.ReplaceAllString(name, "")]; f.kind == "" && whole.kind == "" {
				t.Errorf("%s uses %s, which does not exist", r.Alert, name)
			}
		}
		for _, s := range selector.FindAllStringSubmatch(r.Expr, -1) {
			for _, m := range matcher.FindAllStringSubmatch(s[2], -1) {
				if labels := figures[parts.ReplaceAllString(s[1], "")].labels; !slices.Contains(labels, m[1]) {
					t.Errorf("%s asks for the label %s of %s, which has %v", r.Alert, m[1], s[1], labels)
				}
			}
		}
	}
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Log("Prometheus itself was not asked: ", err)
		return
	}
	if out, err := exec.CommandContext(t.Context(), promtool, "check", "rules", e2e.Write(t, block)).CombinedOutput(); err != nil {
		t.Errorf("promtool check rules: %v\n%s", err, out)
	}
}

// A log line that the page calls worth watching is one that a node writes.
func TestOperationsLogLines(t *testing.T) {
	doc, _ := operations(t, "yaml")
	_, section, _ := strings.Cut(doc, "\n## Log lines\n")
	section, _, _ = strings.Cut(section, "\n## ")
	lines := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(section, -1) {
		lines[row[1]] = true
	}
	if len(lines) < 5 {
		t.Fatalf("only these lines were found: %v", lines)
	}
	err := filepath.WalkDir("../../../..", func(path string, d fs.DirEntry, err error) error {
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
	_, statement := operations(t, "sql")
	s := newSite(t, 1, "")
	s.Task("verify", `select i as item from generate_series(1, 9) i`)
	before := s.Takes("Oliver", 1)[0]
	const rounds = `select last_value from getwork.round`
	round := column[int64](s, rounds)[0]
	s.Exec(statement)
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
