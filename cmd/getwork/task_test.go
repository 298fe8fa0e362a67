package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"getwork/assign"
)

func write(t *testing.T, content string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "task.yaml")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestTaskCommands(t *testing.T) {
	c := newTerminal(t)
	c.run(0, text("There are no tasks yet"), "task", "list")
	c.run(0, text("task verify created (version 1)"), "task", "create", "--name", "verify", "--title", "Verify", "--max-request", "3",
		"--query", "select i as item\nfrom generate_series(1, 9) i")
	c.run(1, text("there is a task \"verify\" already"), "task", "create", "--name", "verify", "--query", "select 1 as item")
	c.run(1, text("name: a name is", "\n  max_request: from 1 to 1000"), "task", "create", "--name", "A b", "--query", "select 1 as item", "--max-request", "0")
	c.run(1, text("syntax error"), "task", "create", "--name", "bad", "--query", "selec")
	c.run(0, text("NAME", "WAITING", "verify  active  0", "Verify"), "task", "list")

	c.run(0, text("task verify updated (version 2): query_timeout, title"), "task", "update", "verify", "--title", "V", "--query-timeout", "90s")
	c.run(0, text("task verify unchanged (version 2)"), "task", "update", "verify", "--title", "V")
	var task assign.Task
	c.decode(0, &task, "task", "show", "verify")
	want := assign.Settings{Name: "verify", Title: "V", Query: "select i as item\nfrom generate_series(1, 9) i", QueryTimeout: 90e9,
		MaxCandidates: 1000, MaxRequest: 3, RerunAfter: 60e9}
	if diff := cmp.Diff(want, task.Settings); diff != "" || task.Version != 2 {
		t.Errorf("version %d, %s", task.Version, diff)
	}
	c.run(1, text("your role is worker", "such as --role manager"), "task", "update", "verify", "--title", "X", "--role", "worker")
	c.run(1, text("no task \"nope\"; `getwork task list` lists those that there are"), "task", "show", "nope")
	c.run(1, text("no task \"nope\""), "task", "pause", "nope")

	c.run(0, text("task verify is paused now"), "task", "pause", "verify")
	c.run(0, text("task verify was paused already"), "task", "pause", "verify")
	c.run(0, text("verify  paused"), "task", "list")
	c.run(1, text("task verify is paused; a manager resumes it with `getwork task resume verify`"), "get", "verify")
	c.run(0, text("task verify is active now"), "task", "resume", "verify")
	c.decode(0, &task, "task", "resume", "verify")
	if task.Paused || task.Version != 4 {
		t.Errorf("after resume: %+v", task)
	}

	c.run(0, nil, "get", "verify")
	c.run(1, text("somebody holds work of task \"verify\""), "task", "delete", "verify")
	c.run(0, nil, "done", "1")
	c.run(0, text("task verify deleted"), "task", "delete", "verify")
	c.run(1, text("no task \"verify\""), "task", "delete", "verify")
}

func TestTaskApply(t *testing.T) {
	c := newTerminal(t)
	file := write(t, `
name: verify
query: |
  select i as item -- a comment
  from generate_series(1, 9) i
max_request: 3
---
name: bad
query: nonsense
---
# nothing here
---
name: arrears
query: select 1 as item
query_timeout: 90s
`)
	c.run(1, text("task verify created (version 1)\n", "task arrears created (version 1)\n", `task "bad": syntax error`), "task", "apply", "-f", file)
	c.run(0, text("task verify is paused"), "task", "pause", "verify")
	var applied struct {
		Applied []struct {
			Result string
			Task   assign.Task
		}
	}
	c.decode(1, &applied, "task", "apply", "-f", file)
	if len(applied.Applied) != 2 || applied.Applied[0].Result != "unchanged" || !applied.Applied[0].Task.Paused || applied.Applied[1].Task.QueryTimeout.String() != "90s" {
		t.Errorf("%+v", applied)
	}
	shown := c.run(0, text("# version 2; 0 waiting", "query: |\n  select i"), "task", "show", "verify")
	again := write(t, shown)
	c.run(0, text("task verify unchanged (version 2)"), "task", "apply", "-f", again)
	changed := write(t, strings.NewReplacer("max_request: 3", "max_request: 4", "paused: true", "paused: false").Replace(shown))
	c.run(0, text("task verify updated (version 3): max_request, paused\n", "task arrears updated (version 2): title\n"),
		"task", "apply", "-f", changed, "-f", write(t, "name: arrears\ntitle: Arrears\n"))
	c.stdin = "name: other\nquery: select 2 as item\n"
	c.run(0, text("task else created"), "task", "create", "-f", "-", "--name", "else")
}

func TestTaskFileRefused(t *testing.T) {
	for content, says := range map[string]string{
		"name: x\ntitel: y\n":          "[2:1] unknown field \"titel\"",
		"name: x\nversion: 3\n":        "unknown field \"version\"",
		"name: x\nmax_request: many\n": `[2:14] "many" stands where a whole number belongs`,
		"name: x\nquery_timeout: 5\n":  `a duration is a number with a unit, such as "90s"`,
		"name: x\nname: y\n":           "already defined",
		"name: [\n":                    "[1:7]",
		"- name: x\n":                  "mapping is expected",
		"\n# nothing\n":                "has no task in it",
		"name: x\nquery: a\n---\n\n--- # y\nname: y\nname_: b\n\n": "[7:1] unknown field \"name_\"",
	} {
		_, err := readTasks(t.Context(), write(t, content))
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, not %q", content, err, says)
		}
	}
	err := taskApplyCmd{Files: []string{write(t, "title: x\n")}}.Run(t.Context(), &streams{})
	if err == nil || !strings.Contains(err.Error(), "task 1 has no name") {
		t.Error(err)
	}
	err = taskCreateCmd{File: write(t, "name: a\n---\nname: b\n")}.Run(t.Context(), &streams{})
	if err == nil || !strings.Contains(err.Error(), "has 2 tasks") {
		t.Error(err)
	}
}

// What show prints is what apply reads, whatever the text.
func TestTaskFileRoundTrip(t *testing.T) {
	for _, query := range []string{"", "null", "1", "%x\n- y", "a\n b   \n", "\ta\nb\n", "  a\n b\n", "a\r\nb\r\n", "a\n---\nb\n", "a: b # c\n",
		"\n\nselect '<&>'", "x\n  \ny\n\n\n", "'\"\\", "select 'é ✓'\nfrom t"} {
		raw, err := json.Marshal(map[string]any{"name": "x", "query": query, "fresh_for": "90s", "version": 3})
		if err != nil {
			t.Fatal(err)
		}
		var printed bytes.Buffer
		if err := (remoteTask{raw: raw}).print(&printed); err != nil {
			t.Errorf("%q: %v", query, err)
		}
		read, err := readTasks(t.Context(), write(t, printed.String()))
		if err != nil || len(read) != 1 || *read[0].Query != query || read[0].FreshFor.String() != "90s" {
			t.Errorf("%q: %v\n%s", query, err, &printed)
		}
	}
}

// Somebody else's change between the read and the write is not lost: the task is read again, once.
func TestStaleVersion(t *testing.T) {
	for _, stale := range []int{1, 2} {
		version, tags := 1, []string(nil)
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == "PATCH" {
				if tags = append(tags, r.Header.Get("If-Match")); len(tags) <= stale {
					version++
					w.Header().Set("Content-Type", "application/problem+json")
					w.WriteHeader(http.StatusPreconditionFailed)
					_, _ = w.Write([]byte(`{"type":"/problems/stale-version","detail":"changed meanwhile"}`))
					return
				}
			}
			w.Header().Set("ETag", `"`+strings.Repeat("v", version)+`"`)
			_, _ = w.Write([]byte(`{"name":"verify","title":"old"}`))
		}))
		defer server.Close()
		err := taskUpdateCmd{remote: remote{URL: server.URL, User: "mary"}, Task: "verify",
			taskFlags: taskFlags{taskFields: taskFields{Title: new("new")}}}.Run(t.Context(), &streams{new(bytes.Buffer), new(bytes.Buffer)})
		if !slices.Equal(tags, []string{`"v"`, `"vv"`}) {
			t.Errorf("sent for %q", tags)
		}
		if fails := stale > 1; fails != isRefused(err, http.StatusPreconditionFailed) || !fails && err != nil {
			t.Errorf("stale %d times: %v", stale, err)
		}
	}
}
