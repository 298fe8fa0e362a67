package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// mayImport is the diagram of ARCHITECTURE.md: the packages of this module that each package may import. A package that
// is not listed may import none; cmd may import all.
var mayImport = map[string][]string{
	"getwork/assign":            {},
	"getwork/assign/pg":         {"getwork/assign"},
	"getwork/assign/audit":      {"getwork/assign", "getwork/assign/pg"},
	"getwork/assign/records":    {"getwork/assign", "getwork/assign/pg"},
	"getwork/assign/ranking":    {"getwork/assign", "getwork/assign/pg", "getwork/assign/records"},
	"getwork/assign/report":     {"getwork/assign", "getwork/assign/pg"},
	"getwork/assign/tracing":    {"getwork/assign/pg"},
	"getwork/assign/feed":       {"getwork/assign", "getwork/assign/pg", "getwork/assign/records", "getwork/assign/tracing", "getwork/notify"},
	"getwork/assign/hook":       {"getwork/assign", "getwork/assign/audit", "getwork/assign/pg"},
	"getwork/assign/rights":     {"getwork/assign", "getwork/assign/audit", "getwork/assign/pg", "getwork/assign/records", "getwork/notify"},
	"getwork/assign/engine":     {"getwork/assign", "getwork/assign/audit", "getwork/assign/pg", "getwork/assign/plan", "getwork/assign/ranking", "getwork/assign/records", "getwork/assign/tracing", "getwork/notify"},
	"getwork/assign/explain":    {"getwork/assign", "getwork/assign/engine", "getwork/assign/plan", "getwork/assign/ranking", "getwork/assign/records"},
	"getwork/assign/enginetest": {"getwork/assign", "getwork/assign/engine", "getwork/assign/explain", "getwork/assign/feed", "getwork/assign/manage", "getwork/assign/pg", "getwork/assign/records", "getwork/assign/tracing", "getwork/notify", "getwork/schema/schematest/pgbouncer", "getwork/schema/schematest/timeout"},
	"getwork/assign/manage":     {"getwork/assign", "getwork/assign/audit", "getwork/assign/engine", "getwork/assign/pg", "getwork/assign/records", "getwork/notify"},
	"getwork/assign/tidy":       {"getwork/assign/pg"},
	"getwork/docs":              {}, // the guides
	"getwork/notify":            {},
	"getwork/schema":            {},
	"getwork/schema/postgres":   {},
	"getwork/schema/schematest": {"getwork/schema", "getwork/schema/postgres", "getwork/schema/schematest/clock", "getwork/schema/schematest/timeout"},
	"getwork/web/card":          {},
	"getwork/web/contract":      {},
	"getwork/web/grants":        {"getwork/assign"},
	"getwork/web":               {"getwork/assign", "getwork/assign/audit", "getwork/assign/engine", "getwork/assign/explain", "getwork/assign/feed", "getwork/assign/hook", "getwork/assign/manage", "getwork/assign/pg", "getwork/assign/records", "getwork/assign/report", "getwork/assign/rights", "getwork/assign/tracing", "getwork/docs", "getwork/web/card", "getwork/web/sheet"},
	"getwork/web/sheet":         {},
	"getwork/web/identity":      {"getwork/assign", "getwork/assign/pg", "getwork/assign/rights", "getwork/web", "getwork/web/card", "getwork/web/grants", "getwork/web/identity/oidc"},
	"getwork/web/identity/oidc": {"getwork/assign", "getwork/web/card", "getwork/web/grants"},
	"getwork/ws":                {"getwork/assign"},
	"getwork/ws/agent":          {"getwork/assign", "getwork/ws/client"},
	"getwork/ws/client":         {"getwork/assign", "getwork/ws"},

	"getwork/schema/schematest/pgbouncer": {"getwork/schema/schematest/logs", "getwork/schema/schematest/timeout"},
}

// Other people's programs link the vocabulary, and must not link a database with it.
var standardOnly = map[string]bool{"getwork/assign": true, "getwork/assign/plan": true}

// The pure function may import nothing with a clock, randomness, a log or I/O.
var mayNot = map[string][]string{
	"getwork/assign/plan": {"context", "time", "log", "log/slog", "math/rand", "math/rand/v2", "os", "io", "net", "fmt"},
}

// One package knows OpenTelemetry's API, and another its SDK and exporter, which only a node links. By the third part of the path.
var mayTrace = map[string][]string{
	"getwork/assign/enginetest":          {"trace"},
	"getwork/assign/tracing":             {"attribute", "codes", "propagation", "semconv", "trace"},
	"getwork/cmd/internal/otlp":          {"exporters", "sdk", "semconv", "trace", ""},
	"getwork/cmd/internal/otlp/otlptest": {"otlp"},
}

func TestLayout(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Imports,GoFiles,Dir", "getwork/...").Output()
	if err != nil {
		t.Fatal(err)
	}
	sockets := 0
	for d := json.NewDecoder(strings.NewReader(string(out))); d.More(); {
		var p struct {
			ImportPath, Dir  string
			Imports, GoFiles []string
		}
		if err := d.Decode(&p); err != nil {
			t.Fatal(err)
		}
		for _, i := range p.Imports {
			if strings.HasPrefix(i, "getwork/") && !strings.HasPrefix(p.ImportPath, "getwork/cmd/") && !slices.Contains(mayImport[p.ImportPath], i) {
				t.Errorf("%s imports %s", p.ImportPath, i)
			}
			if standardOnly[p.ImportPath] && strings.Contains(strings.Split(i, "/")[0], ".") {
				t.Errorf("%s imports %s; it may import the standard library alone", p.ImportPath, i)
			}
			if slices.Contains(mayNot[p.ImportPath], i) {
				t.Errorf("%s imports %s", p.ImportPath, i)
			}
			if strings.HasPrefix(i, "go.opentelemetry.io/") && !slices.Contains(mayTrace[p.ImportPath], strings.Split(i+"//", "/")[2]) {
				t.Errorf("%s imports %s; see mayTrace", p.ImportPath, i)
			}
			if strings.HasPrefix(i, "nhooyr.io/") {
				t.Errorf("%s imports %s, which is frozen", p.ImportPath, i)
			}
			if i == "getwork/cmd/internal/e2e" {
				t.Errorf("%s imports %s, which only tests may", p.ImportPath, i)
			}
			if i == "github.com/coder/websocket" {
				sockets++
				if p.ImportPath != "getwork/ws" {
					t.Errorf("%s imports the WebSocket library; only ws may", p.ImportPath)
				}
			}
		}
		top := strings.Split(strings.TrimPrefix(p.ImportPath, "getwork/"), "/")[0]
		if !slices.Contains([]string{"cmd", "docs", "notify", "assign", "ws", "web", "schema"}, top) {
			t.Errorf("there is another top-level folder: %s", top)
		}
		if room, ok := strings.CutPrefix(p.ImportPath, "getwork/cmd/"); ok && room != "getwork" && !strings.HasPrefix(room, "internal/") {
			t.Errorf("there is a second program in this module: %s; cmd/lab and cmd/peers are modules of their own", room)
		}
	}
	if sockets != 1 {
		t.Errorf("%d packages import the WebSocket library, want ws alone", sockets)
	}
	if files := importers(t, "github.com/coder/websocket"); len(files) != 1 {
		t.Errorf("the WebSocket library is imported in %v; one file of ws may", files)
	}
}

// TestProgramLinksNoLies: the demo has an identity provider, and what users run has none that could be made to lie, nor what drives whole
// processes in tests.
func TestProgramLinksNoLies(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "getwork/cmd/getwork").Output()
	if err != nil {
		t.Fatal(err)
	}
	for dep := range strings.FieldsSeq(string(out)) {
		if dep == "testing" || dep == "getwork/cmd/internal/e2e" || strings.HasPrefix(dep, "getwork/cmd/lab") || strings.Contains(dep, "/chromedp") {
			t.Errorf("the program links %s", dep)
		}
	}
	if testing.Short() {
		t.Skip("links the program")
	}
	binary := filepath.Join(t.TempDir(), "getwork") // cluster.Binary's has no symbols
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "getwork/cmd/getwork").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	symbols, err := exec.CommandContext(t.Context(), "go", "tool", "nm", binary).Output()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(symbols), "getwork/cmd/internal/idp.Start") {
		t.Error("the symbols lack the demo's identity provider: this test would find no lie either")
	}
	for line := range strings.Lines(string(symbols)) {
		line = strings.TrimSpace(line)
		if strings.Contains(line, "getwork/cmd/lab") || strings.HasSuffix(line, "idp.(*Provider).Set") || strings.Contains(line, "idp.Wrong") {
			t.Errorf("the program has %s", line)
		}
	}
	program, err := os.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(program, []byte("https://evil.example")) { // the liar's texts have it
		t.Error("the program has the texts of lies")
	}
}

// TestClientsLinkNoDatabase: ws/client and ws/agent are meant for programs of others, which must not grow by PostgreSQL's driver
// and the engine.
func TestClientsLinkNoDatabase(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "getwork/ws/client", "getwork/ws/agent").Output()
	if err != nil {
		t.Fatal(err)
	}
	for dep := range strings.FieldsSeq(string(out)) {
		if strings.HasPrefix(dep, "github.com/jackc/") || strings.HasPrefix(dep, "getwork/assign/") || dep == "database/sql" {
			t.Errorf("a client links %s", dep)
		}
	}
}

// importers returns the files of ws that import a package.
func importers(t *testing.T, path string) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-f", `{{.Dir}}`, "getwork/ws").Output()
	if err != nil {
		t.Fatal(err)
	}
	found, err := exec.CommandContext(t.Context(), "grep", "-rl", `"`+path+`"`, "--include=*.go", strings.TrimSpace(string(out))).Output()
	if err != nil {
		t.Fatal(err)
	}
	var files []string
	for f := range strings.FieldsSeq(string(found)) {
		files = append(files, filepath.Base(f))
	}
	return files
}
