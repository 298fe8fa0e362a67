package main

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"getwork/cmd/internal/command"
)

// hostile is a text that recolours a terminal, sets its title, goes back to the start of the line and reverses what follows.
const hostile = "T\x1b[31mRED\x1b]0;x\a\r\u009b1m\x7f\u202e"

// hostileNode answers each call with all that openapi.json describes for it, and has hostile in every text that can hold it.
type hostileNode struct {
	t           *testing.T
	description map[string]any
	refuses     bool
}

func (n hostileNode) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if n.refuses {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusConflict)
		_ = json.NewEncoder(w).Encode(map[string]any{"type": "/problems/" + hostile, "title": hostile, "status": http.StatusConflict, "detail": hostile,
			"errors": []any{map[string]any{"field": hostile, "detail": hostile}}})
		return
	}
	for path, methods := range n.description["paths"].(map[string]any) {
		call, is := methods.(map[string]any)[strings.ToLower(r.Method)].(map[string]any)
		if !is || !regexp.MustCompile("^"+regexp.MustCompile(`\\\{[a-z]+\\\}`).ReplaceAllString(regexp.QuoteMeta(path), `[^/]+`)+"$").MatchString(r.URL.EscapedPath()) {
			continue
		}
		for _, status := range []int{200, 201, 202, 204} {
			response, is := call["responses"].(map[string]any)[strconv.Itoa(status)]
			if !is {
				continue
			}
			schema, is := n.at(response, "content", "application/json", "schema")
			if !is {
				w.WriteHeader(http.StatusNoContent)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("ETag", `"1"`)
			w.WriteHeader(status)
			_ = json.NewEncoder(w).Encode(n.value("", schema))
			return
		}
	}
	n.t.Errorf("%s %s is not described", r.Method, r.URL)
	w.WriteHeader(http.StatusNotFound)
}

// at follows keys and references.
func (n hostileNode) at(v any, keys ...string) (any, bool) {
	for {
		m, is := v.(map[string]any)
		if ref, refers := m["$ref"].(string); refers {
			v, _ = n.at(n.description, strings.Split(strings.TrimPrefix(ref, "#/"), "/")...)
			continue
		}
		if len(keys) == 0 {
			return v, is
		}
		if v, is = m[keys[0]]; !is {
			return nil, false
		}
		keys = keys[1:]
	}
}

// value returns a value of a schema.
func (n hostileNode) value(name string, schema any) any {
	resolved, _ := n.at(schema)
	s := resolved.(map[string]any)
	for _, choice := range []string{"anyOf", "oneOf"} {
		if all, is := s[choice].([]any); is {
			return n.value(name, all[0])
		}
	}
	if all, is := s["enum"].([]any); is {
		for _, ended := range []any{"assigned", "finished"} { // or the command would wait
			if slices.Contains(all, ended) {
				return ended
			}
		}
		return all[0]
	}
	kind := s["type"]
	if kinds, is := kind.([]any); is {
		kind = kinds[0]
	}
	switch kind {
	case "integer", "number":
		return 1
	case "boolean":
		return name != "paused" && name != "dry_run"
	case "array":
		return []any{n.value(name, s["items"])}
	case "string":
		pattern, _ := s["pattern"].(string)
		switch {
		case s["format"] == "date-time":
			return "2026-01-31T12:00:00Z"
		case slices.Contains([]string{"id", "delivery"}, name):
			return "1"
		case slices.Contains([]string{"after", "expires_in", "lease", "linger", "step"}, name):
			return "1s"
		case pattern == "":
			return hostile
		}
		for _, sample := range []string{"1", "1s", "verify", "EUR", "/x", strings.Repeat("0", 64), "gw_" + strings.Repeat("a", 12) + "_" + strings.Repeat("b", 49)} {
			if regexp.MustCompile(pattern).MatchString(sample) {
				return sample
			}
		}
		n.t.Errorf("no sample is of the pattern %s of %s", pattern, name)
	}
	o := map[string]any{}
	parts, _ := s["allOf"].([]any)
	for _, part := range parts {
		more, _ := n.value(name, part).(map[string]any)
		maps.Copy(o, more)
	}
	properties, _ := s["properties"].(map[string]any)
	for name, property := range properties {
		o[name] = n.value(name, property)
	}
	delete(o, "next_cursor")
	if _, done := o["work"]; done { // a result of many: it has either
		delete(o, "problem")
	}
	if more, is := s["additionalProperties"].(map[string]any); is {
		o[hostile] = n.value(hostile, more)
	} else if len(o) == 0 {
		o[hostile] = hostile
	}
	return o
}

// What a command prints can't control a terminal, also if it goes through a pipe: every command that is a client of a node, with every
// field that the node may send, and with every refusal.
func TestEverythingPrintedIsVisible(t *testing.T) {
	text, err := os.ReadFile("../../web/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	node := hostileNode{t: t}
	if err := json.Unmarshal(text, &node.description); err != nil {
		t.Fatal(err)
	}
	tells := httptest.NewServer(node)
	t.Cleanup(tells.Close)
	node.refuses = true
	refuses := httptest.NewServer(node)
	t.Cleanup(refuses.Close)
	dir := t.TempDir()
	task := filepath.Join(dir, "task.yaml")
	items := filepath.Join(dir, "items.csv")
	limits := filepath.Join(dir, "limits.yaml")
	for name, content := range map[string]string{task: "name: verify\ntitle: \"A\\e[31m\"\nquery: select 1 as item\n", items: "item\n1\n", limits: "everybody: 3\n"} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	commands := map[string]string{
		"get": "verify", "pipeline": "", "away": "", "back": "--of bob", "done": "1", "later": "1 2h", "skills": "bob", "task list": "", "task show": "verify", "task create": "--name verify --inbox",
		"task apply": "-f " + task, "task update": "verify --title x", "task delete": "verify --yes", "task preview": "verify", "task compare": "verify --to 1", "task pause": "verify",
		"task resume": "verify", "task runs": "verify", "task versions": "verify", "task restore": "verify 1", "task log": "verify",
		"alerts": "", "limits show": "", "limits apply": "-f " + limits,
		"work list": "", "work show": "1", "work extend": "1", "work reassign": "1 --to bob", "work release": "--of bob --yes", "work holders": "",
		"items push": "verify -f " + items, "items show": "verify 1", "items claim": "verify 1", "items redrive": "verify 1",
		"webhook list": "", "webhook create": "https://hooks.example --task verify", "webhook delete": "1 --yes", "webhook test": "1", "webhook rotate": "1",
		"webhook deliveries": "1", "webhook redrive": "1", "token create": "--label x", "token list": "", "token revoke": "1 --yes", "session list": "",
		"session end": "1 --yes", "session wall": "", "user list": "", "user block": "bob --yes", "user unblock": "bob", "user rebind": "bob --issuer x --subject y --yes",
	}
	// work export gives a pipe the data as they are. The others read no texts of a node, or print another program's.
	others := []string{"work export", "agent", "login", "logout", "audit verify", "audit export", "serve", "init", "doctor", "health", "demo", "migrate up", "migrate down",
		"migrate status", "bench", "completion", "version"}
	t.Setenv("GETWORK_TOKEN", "gw_"+strings.Repeat("a", 12)+"_"+strings.Repeat("b", 49))
	parser, err := kong.New(&commandLine{}, kong.Name("getwork"), flags, kong.Writers(io.Discard, io.Discard), kong.Vars{"version": ""})
	if err != nil {
		t.Fatal(err)
	}
	for _, leaf := range parser.Model.Leaves(true) {
		path := strings.TrimPrefix(leaf.FullPath(), "getwork ")
		args, known := commands[path]
		if known == slices.Contains(others, path) {
			t.Errorf("getwork %s: say in this test how it is called, or that it prints nothing of a node", path)
		}
		if !known {
			continue
		}
		for _, url := range []string{tells.URL, refuses.URL} {
			line := slices.Concat(strings.Fields(path), strings.Fields(args), []string{"--url", url})
			status, out, errs := piped(t, line)
			if refused := url == refuses.URL || path == "webhook test" || path == "alerts"; (status != command.ExitDone) != refused { // the receiver refused the test, and there are alerts
				t.Errorf("%q ends with %d: %s", line, status, errs)
			}
			for _, printed := range [][]byte{out, errs} {
				if command.Obeyed(printed) {
					t.Errorf("%q prints %q", line, printed)
				}
			}
			if path == "task show" && url == tells.URL && bytes.Count(out, []byte(`T\u001b[31mRED`)) < 3 {
				t.Errorf("%q prints %s; want title, description and query quoted", line, out)
			}
		}
	}
}

// piped runs a command whose streams are pipes, and returns its exit status and what it has printed.
func piped(t *testing.T, line []string) (status int, out, errs []byte) {
	t.Helper()
	files := make([]*os.File, 2)
	read := make([]chan []byte, 2)
	for i := range files {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		files[i], read[i] = w, make(chan []byte, 1)
		go func() {
			all, _ := io.ReadAll(r)
			_ = r.Close()
			read[i] <- all
		}()
	}
	status = run(line, files[0], files[1])
	_, _ = files[0].Close(), files[1].Close()
	return status, <-read[0], <-read[1]
}

// An error that contains data can't control the terminal.
func TestErrorsAreVisible(t *testing.T) {
	t.Parallel()
	var out, errs bytes.Buffer
	if status := run([]string{"pipeline", "--user", "a", "--url", "http://127.0.0.1:1/\x1b[31m"}, &out, &errs); status == command.ExitDone || bytes.ContainsRune(errs.Bytes(), '\x1b') {
		t.Errorf("status %d, %q", status, errs.String())
	}
}

// The program alone says what it can do.
func TestAlone(t *testing.T) {
	t.Parallel()
	var out, errs bytes.Buffer
	status := run(nil, &out, &errs)
	if status != command.ExitDone || errs.Len() > 0 || !bytes.Contains(out.Bytes(), []byte("Get work and let go of it:\n  get ")) {
		t.Errorf("status %d, %q, %q", status, out.String(), errs.String())
	}
}
