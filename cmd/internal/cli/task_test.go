package cli

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"getwork/assign"
	"getwork/cmd/internal/command"
	"getwork/cmd/internal/e2e"
	"getwork/schema/schematest"
)

func TestTaskCommands(t *testing.T) {
	t.Parallel()
	c := e2e.NewTerminal(t)
	c.Run(0, e2e.Text("There are no tasks yet"), "task", "list")
	c.Run(0, e2e.Text("task verify created (version 1)"), "task", "create", "--name", "verify", "--title", "Verify", "--max-request", "3",
		"--query", "select i as item\nfrom generate_series(1, 9) i")
	c.Run(1, e2e.Text("there is a task \"verify\" already"), "task", "create", "--name", "verify", "--query", "select 1 as item")
	c.Run(1, e2e.Text("name: a name is", "\n  max_request: from 1 to 1000"), "task", "create", "--name", "A b", "--query", "select 1 as item", "--max-request", "0")
	c.Run(1, e2e.Text("syntax error"), "task", "create", "--name", "bad", "--query", "selec")
	c.Run(0, e2e.Text("NAME", "WAITING", "verify  active  0", "Verify"), "task", "list")

	c.Run(0, e2e.Text("task verify updated (version 2): query_timeout, title"), "task", "update", "verify", "--title", "V", "--query-timeout", "90s")
	c.Run(0, e2e.Text("task verify unchanged (version 2)"), "task", "update", "verify", "--title", "V")
	var task assign.Task
	c.Decode(0, &task, "task", "show", "verify")
	want := assign.DefaultSettings()
	want.Name, want.Title, want.Query = "verify", "V", "select i as item\nfrom generate_series(1, 9) i"
	want.QueryTimeout, want.MaxRequest = 90e9, 3
	if diff := cmp.Diff(want, task.Settings); diff != "" || task.Version != 2 {
		t.Errorf("version %d, %s", task.Version, diff)
	}
	c.Run(1, e2e.Text("your role is worker", "such as --role manager"), "task", "update", "verify", "--title", "X", "--role", "worker")
	c.Run(1, e2e.Text("no task \"nope\"; `getwork task list` lists all tasks"), "task", "show", "nope")
	c.Run(1, e2e.Text("no task \"nope\""), "task", "pause", "nope")

	c.Run(0, e2e.Text("task verify is paused now"), "task", "pause", "verify")
	c.Run(0, e2e.Text("task verify was paused already"), "task", "pause", "verify")
	c.Run(0, e2e.Text("verify  paused"), "task", "list")
	c.Run(1, e2e.Text("task verify is paused; a manager resumes it with `getwork task resume verify`"), "get", "verify")
	c.Run(0, e2e.Text("task verify is active now"), "task", "resume", "verify")
	c.Decode(0, &task, "task", "resume", "verify")
	if task.Paused || task.Version != 2 { // pausing makes no version
		t.Errorf("after resume: %+v", task)
	}

	c.Run(0, nil, "get", "verify")
	c.Run(1, e2e.Text("somebody holds work of task \"verify\""), "task", "delete", "verify")
	c.Run(0, nil, "done", "1")
	c.Run(0, e2e.Text("task verify deleted"), "task", "delete", "verify")
	c.Run(1, e2e.Text("no task \"verify\""), "task", "delete", "verify")

	c.Run(0, nil, "task", "create", "--name", "full", "--inbox")
	c.Run(0, nil, "items", "push", "full", "a", "b")
	c.Run(2, e2e.Text("task full has 2 items to hand out", "--yes"), "task", "delete", "full")
	c.Run(0, e2e.Text("task full deleted"), "task", "delete", "full", "--yes")
}

func TestTaskApply(t *testing.T) {
	t.Parallel()
	c := e2e.NewTerminal(t)
	file := e2e.Write(t, `
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
	c.Run(1, e2e.Text("task verify created (version 1)\n", "task arrears created (version 1)\n", `task "bad": syntax error`), "task", "apply", "-f", file)
	c.Run(0, e2e.Text("task verify is paused"), "task", "pause", "verify")
	var applied struct {
		Applied []struct {
			Result string
			Task   assign.Task
		}
	}
	c.Decode(1, &applied, "task", "apply", "-f", file)
	if len(applied.Applied) != 2 || applied.Applied[0].Result != "unchanged" || !applied.Applied[0].Task.Paused || applied.Applied[1].Task.QueryTimeout.String() != "90s" {
		t.Errorf("%+v", applied)
	}
	shown := c.Run(0, e2e.Text("# version 1; 0 waiting", "query: |\n  select i"), "task", "show", "verify")
	again := e2e.Write(t, shown)
	c.Run(0, e2e.Text("task verify unchanged (version 1)"), "task", "apply", "-f", again)
	changed := e2e.Write(t, strings.NewReplacer("max_request: 3", "max_request: 4", "paused: true", "paused: false").Replace(shown))
	c.Run(0, e2e.Text("task verify updated (version 2): max_request, paused\n", "task arrears updated (version 2): title\n"),
		"task", "apply", "-f", changed, "-f", e2e.Write(t, "name: arrears\ntitle: Arrears\n"))
	sets := e2e.Write(t, "name: arrears\ngroups: [loans, desk, loans]\nconflicts_with: [verify, alpha]\n")
	c.Run(0, nil, "task", "create", "--name", "alpha", "--inbox")
	c.Run(0, e2e.Text("task arrears updated (version 3): conflicts_with, groups"), "task", "apply", "-f", sets)
	c.Run(0, e2e.Text("task arrears unchanged (version 3)"), "task", "apply", "-f", sets)
	c.Stdin = "name: other\nquery: select 2 as item\n"
	c.Run(0, e2e.Text("task else created"), "task", "create", "-f", "-", "--name", "else")
}

func TestTaskFileRefused(t *testing.T) {
	t.Parallel()
	for content, says := range map[string]string{
		"name: x\ntitel: y\n":          "[2:1] unknown field \"titel\"",
		"name: x\nversion: 3\n":        "unknown field \"version\"",
		"name: x\nmax_request: many\n": `[2:14] "many" stands where a whole number belongs`,
		"name: x\nquery_timeout: 5\n":  `a duration is a number with a unit, such as "90s"`,
		"name: x\nlease: soon\n":       `a duration is a number with a unit, such as "90s"`,
		"name: x\nmax_open: many\n":    `[2:11] "many" stands where a whole number belongs`,
		"name: x\ngroups: 3\n":         "sequence is expected",
		"name: x\nname: y\n":           "already defined",
		"name: [\n":                    "[1:7]",
		"- name: x\n":                  "mapping is expected",
		"\n# nothing\n":                "has no task in it",
		"name: x\nquery: a\n---\n\n--- # y\nname: y\nname_: b\n\n": "[7:1] unknown field \"name_\"",
	} {
		_, err := readTasks(t.Context(), e2e.Write(t, content))
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, not %q", content, err, says)
		}
	}
	err := taskApplyCmd{Files: []string{e2e.Write(t, "title: x\n")}}.Run(t.Context(), &command.Streams{})
	if err == nil || !strings.Contains(err.Error(), "task 1 has no name") {
		t.Error(err)
	}
	err = taskCreateCmd{File: e2e.Write(t, "name: a\n---\nname: b\n")}.Run(t.Context(), &command.Streams{})
	if err == nil || !strings.Contains(err.Error(), "has 2 tasks") {
		t.Error(err)
	}
}

// apply reads what show prints, whatever the text.
func TestTaskFileRoundTrip(t *testing.T) {
	t.Parallel()
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
		var want TaskFields
		want.setQuery(query)
		read, err := readTasks(t.Context(), e2e.Write(t, printed.String()))
		if err != nil || len(read) != 1 || read[0].Query != want.Query || read[0].FreshFor.String() != "90s" {
			t.Errorf("%q: %v\n%s", query, err, &printed)
		}
	}
}

// A line without a value names only a setting that may be null.
func TestTaskFileNulls(t *testing.T) {
	t.Parallel()
	got, err := readTask("name: x\ntitle:\nslots: null\ngroups: ~\npaused:\nlease:\nquery: null\ndisplay: ~\n")
	if diff := cmp.Diff(map[string]bool{"name": true, "lease": true, "query": true, "display": true}, got.named); err != nil || diff != "" {
		t.Error(err, diff)
	}
}

// Every setting can be given as a flag and in a file, shown, and set back to none.
func TestTaskSettings(t *testing.T) {
	t.Parallel()
	c := e2e.NewTerminal(t)
	c.Run(0, nil, "task", "create", "--name", "other", "--query", "select 1 as item")
	c.Run(0, e2e.Text("task photos created"), "task", "create", "--name", "photos", "--inbox", "--lease", "90s", "--slots", "2", "--max-open", "3",
		"--max-attempts", "4", "--backoff", "5s", "--conflicts-with", "other", "--groups", "editors, chiefs",
		"--position=-3", "--display", `{"title":"{name}","fields":[{"column":"n","format":"money","currency":"CHF"}]}`)
	var task assign.Task
	c.Decode(0, &task, "task", "show", "photos")
	want := assign.DefaultSettings()
	want.Name, want.Slots, want.Backoff = "photos", 2, 5e9
	want.Lease, want.MaxOpen, want.MaxAttempts = new(assign.Duration(90e9)), new(3), new(4)
	want.ConflictsWith, want.Groups = e2e.Text("other"), e2e.Text("chiefs", "editors")
	want.Position = new(-3)
	want.Display = &assign.Display{Title: "{name}", Fields: []assign.DisplayField{{Column: "n", Format: "money", Currency: "CHF"}}}
	slices.Sort(task.Groups)
	if diff := cmp.Diff(want, task.Settings); diff != "" {
		t.Error(diff)
	}
	shown := c.Run(0, e2e.Text("query: null\n", "lease: 90s\n", "max_open: 3\n", "position: -3\n", "display:\n", "currency: CHF\n"), "task", "show", "photos")
	c.Run(0, e2e.Text("task photos unchanged"), "task", "apply", "-f", e2e.Write(t, shown))

	c.Run(1, e2e.Text(`no task "photos"`), "get", "photos")
	c.Run(1, e2e.Text("nothing to do: no item"), "get", "photos", "--member-of", "readers,editors")
	c.Run(0, e2e.Text("photos  active"), "task", "list")
	if out := c.Run(0, e2e.Text("photos"), "task", "list", "--member-of", "chiefs"); strings.Contains(out, "There are no") {
		t.Error(out)
	}
	if out := c.Run(0, e2e.Text("other"), "task", "list", "--role", "worker"); strings.Contains(out, "photos") {
		t.Error("a user in no group is shown", out)
	}

	c.Run(0, e2e.Text("task photos updated (version 2): conflicts_with, display, groups, lease, max_attempts, max_open, position"), "task", "update", "photos",
		"--lease", "none", "--max-open=none", "--max-attempts", "none", "--position=none", "--display", "none", "--conflicts-with", "none", "--groups", "none")
	c.Run(0, e2e.Text("task photos unchanged"), "task", "apply", "-f", e2e.Write(t, "name: photos\nlease: null\nquery: null\ngroups: []\nmax_open:\ndisplay:\n"))
	c.Run(1, e2e.Text("display: url begins with one of https:"), "task", "apply", "-f", e2e.Write(t, "name: photos\nquery: null\ndisplay:\n  url: http://x\n"))
	c.Run(2, e2e.Text(`unknown field "titel"`), "task", "update", "photos", "--display", `{"titel":"x"}`)
	c.Decode(0, &task, "task", "show", "photos")
	if task.Lease != nil || task.MaxOpen != nil || task.MaxAttempts != nil || task.Position != nil || task.Display != nil || len(task.ConflictsWith)+len(task.Groups) > 0 || task.Slots != 2 {
		t.Errorf("set back: %+v", task.Settings)
	}
	c.Run(1, e2e.Text(`task "new": there is no such task`, "query: null makes it an inbox"), "task", "apply", "-f", e2e.Write(t, "name: new\ntitle: x\n"))
	c.Run(0, e2e.Text("task new created"), "task", "apply", "-f", e2e.Write(t, "name: new\nquery: null\n"))
	c.Run(1, e2e.Text("lease: from \"1s\" to \"168h\""), "task", "update", "new", "--lease", "1ms")
}

// A recheck is given as a flag and in a file, shown, changed, and set back to none.
func TestTaskRecheck(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	c := e2e.NewTerminal(t)
	const recheck = "select x as item\nfrom unnest($1) x -- $1 and a $2\n"
	c.Run(0, nil, "task", "create", "--name", "verify", "--query", "select 1 as item", "--recheck", recheck)
	var task assign.Task
	c.Decode(0, &task, "task", "show", "verify")
	if task.Recheck != recheck {
		t.Errorf("it is %q", task.Recheck)
	}
	shown := c.Run(0, e2e.Text("recheck: |\n  select x as item\n  from unnest($1) x -- $1 and a $2\n"), "task", "show", "verify")
	c.Run(0, e2e.Text("task verify unchanged"), "task", "apply", "-f", e2e.Write(t, shown))
	c.Run(0, e2e.Text("task verify unchanged"), "task", "apply", "-f", e2e.Write(t, "name: verify\ntitle: \"\"\n"))
	c.Run(0, e2e.Text("task verify updated (version 2): recheck"), "task", "apply", "-f", e2e.Write(t, "name: verify\nrecheck: null\n"))
	c.Run(0, e2e.Text("recheck: null\n"), "task", "show", "verify")
	c.Run(0, e2e.Text("task verify updated (version 3): recheck"), "task", "update", "verify", "--recheck", "select unnest($1) as item")
	c.Run(0, e2e.Text("task verify updated (version 4): recheck"), "task", "update", "verify", "--recheck=none")
	c.Run(0, e2e.Text("task verify unchanged"), "task", "update", "verify", "--recheck", "none")
	c.Run(1, e2e.Text("does not use $1"), "task", "update", "verify", "--recheck", "select 1 as item")
	c.Run(0, e2e.Text("oliver  recheck\n"), "task", "versions", "verify")
	c.Run(1, e2e.Text("an inbox has no query"), "task", "create", "--name", "in", "--inbox", "--recheck", recheck)
}

func TestTaskVersions(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	c := e2e.NewTerminal(t)
	c.Run(0, nil, "task", "create", "--name", "verify", "--query", "select i as item, i * 10 as amount from generate_series(1, 5) i order by i")
	c.Run(0, e2e.Text("has been run yet"), "task", "runs", "verify")
	c.Run(0, e2e.Text("RANK  ITEM  DETAILS\n1     1     amount: 10\n2     2     amount: 20\n\nThe query gave 5 rows in "), "task", "preview", "verify", "--limit", "2")
	c.Run(0, nil, "get", "verify")
	c.Stdin = "select 'x' || i as item, i as slots from generate_series(1, 3) i"
	c.Run(0, e2e.Text("RANK  ITEM  PLACES", "2     x2    2"), "task", "preview", "verify", "--query-file", "-")
	c.Run(0, e2e.Text("1 held or put off"), "task", "preview", "verify")
	var p assign.Preview
	c.Decode(0, &p, "task", "preview", "verify", "--query", "select 'y' as item")
	if len(p.Rows) != 1 || p.Rows[0].Item != "y" || len(p.Plan) == 0 {
		t.Errorf("preview %+v", p)
	}
	c.Run(1, e2e.Text("no column named \"item\""), "task", "preview", "verify", "--query", "select 1")
	c.Run(0, e2e.Text("CHANGE  OLD  NEW  ITEM  HELD\nin      -    1    7     -\nout     1    -    1     held\nout     2    -    2     -\nmoved   3    2    3     -\n\nOf the best 5, 1 are the same.\nOld (version 1): 5 rows in ", "Both return 1 item.\n"),
		"task", "compare", "verify", "--limit", "3", "--query", "select unnest(array[7, 3]) as item")
	c.Run(0, e2e.Text("Of the best 5, 5 are the same.\nOld (version 1)"), "task", "compare", "verify", "--to", "1")
	c.Run(1, e2e.Text("has no version 2; its versions are 1 to 1"), "task", "compare", "verify", "--to", "2")
	c.Run(2, e2e.Text("name the query to compare with"), "task", "compare", "verify")
	c.Run(2, e2e.Text("--limit must be from 1 to 1000"), "task", "compare", "verify", "--limit", "1001")
	c.Run(1, e2e.Text("your role is observer"), "task", "preview", "verify", "--role", "observer")

	c.Run(0, nil, "task", "update", "verify", "--title", "T", "--query", "select 'z' as item")
	c.Run(0, e2e.Text("task verify is as it was in version 1 (version 3 now)"), "task", "restore", "verify", "1")
	c.Run(0, e2e.Text("VERSION  SINCE", "3        ", "oliver  query, title\n", "oliver  created\n"), "task", "versions", "verify")
	c.Run(0, e2e.Text("There may be more", "--cursor 3 continues here"), "task", "versions", "verify", "--limit", "1")
	c.Run(1, e2e.Text("has no version 9; it has 1 to 3"), "task", "restore", "verify", "9")
	var versions struct{ Versions []assign.Version }
	c.Decode(0, &versions, "task", "versions", "verify", "--user", "mary")
	if len(versions.Versions) != 3 || versions.Versions[1].Query != "select 'z' as item" {
		t.Errorf("versions %+v", versions)
	}
	c.Run(0, e2e.Text("RUN  STARTED", "finished  1"), "task", "runs", "verify")
}

// A query can be tried before its task exists, with the settings in its file; and in place of a task's own query.
func TestTaskPreviewOfFile(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	c := e2e.NewTerminal(t)
	const task = `
name: verify
title: Verify
query: |
  select i as item, i * 10 as amount
  from generate_series(1, 5) i
  order by i desc
query_timeout: 90s
slots: 2
`
	file := e2e.Write(t, task)
	const best = "RANK  ITEM  PLACES  DETAILS\n1     5     2       amount: 50\n2     4     2       amount: 40\n\n"
	c.Run(0, e2e.Text(best+"The query gave 5 rows in ", ": 0 held or put off, 0 skipped"), "task", "preview", "-f", file, "--limit", "2")
	c.Run(0, e2e.Text("There are no tasks yet"), "task", "list")
	c.Run(1, e2e.Text(`column "nothing" does not exist`, "at position 19 of the query"), "task", "preview", "-f",
		e2e.Write(t, "name: verify\nquery: |\n  select 1 as item, nothing\n"))
	c.Run(1, e2e.Text("query_timeout of 10ms"), "task", "preview", "-f",
		e2e.Write(t, "name: verify\nquery: select 1 as item from pg_sleep(60)\nquery_timeout: 10ms\n"))
	c.Run(0, e2e.Text("1     x"), "task", "preview", "-f", file, "--query", "select 'x' as item")
	c.Run(0, e2e.Text("1     y"), "task", "preview", "--query", "select 'y' as item")
	c.Stdin = task
	c.Run(0, e2e.Text("1     5     2"), "task", "preview", "-f", "-")
	c.Run(1, e2e.Text(`no task "verify"`), "task", "preview", "verify", "--query", "select 1 as item")
	c.Run(1, e2e.Text(`no task "verify"`), "task", "preview", "-f", e2e.Write(t, "name: verify\ntitle: V\n"))
	c.Run(1, e2e.Text("your role is observer"), "task", "preview", "-f", file, "--role", "observer")

	c.Run(0, nil, "task", "create", "-f", file)
	c.Run(0, e2e.Text(best), "task", "preview", "verify", "--limit", "2")
	c.Run(0, nil, "get", "verify")
	changed := e2e.Write(t, "name: verify\nquery: select 5 - i as item, 1 as slots from generate_series(0, 1) i order by i\n")
	c.Run(0, e2e.Text("2     4\n", "1 held or put off"), "task", "preview", "-f", changed)
	c.Run(0, e2e.Text("1     5     2"), "task", "preview", "-f", e2e.Write(t, "name: verify\ntitle: V\n"))
	var p assign.Preview
	c.Decode(0, &p, "task", "preview", "-f", changed)
	if len(p.Rows) != 1 || p.Rows[0].Item != "4" || p.Blocked != 1 || len(p.Plan) == 0 {
		t.Errorf("preview %+v", p)
	}
	two := e2e.Write(t, "name: a\nquery: select 'of a' as item\n---\nname: b\nquery: select 'of b' as item\n")
	c.Run(0, e2e.Text("of b"), "task", "preview", "b", "-f", two)
	c.Run(2, e2e.Text("has several tasks; name the one"), "task", "preview", "-f", two)
	c.Run(2, e2e.Text("is an inbox, which has no query to try"), "task", "preview", "-f", e2e.Write(t, "name: photos\nquery: null\n"))
	c.Run(2, e2e.Text("name a task, or the query to try"), "task", "preview")
}

// If another client changes the task between the read and the write, its change is not lost: the task is read again,
// once.
func TestStaleVersion(t *testing.T) {
	t.Parallel()
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
		err := taskUpdateCmd{Remote: Remote{URL: server.URL, User: "mary"}, Task: "verify",
			taskFlags: taskFlags{TaskFields: Fields(assign.Settings{Title: "new"}, "title")}}.Run(t.Context(), &command.Streams{Out: new(bytes.Buffer), Errs: new(bytes.Buffer)})
		if !slices.Equal(tags, []string{`"v"`, `"vv"`}) {
			t.Errorf("sent for %q", tags)
		}
		if fails := stale > 1; fails != IsRefused(err, http.StatusPreconditionFailed) || !fails && err != nil {
			t.Errorf("stale %d times: %v", stale, err)
		}
	}
}
