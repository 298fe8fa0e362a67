package cli

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"getwork/assign"
	"getwork/cmd/internal/e2e"
	"getwork/schema/schematest/timeout"
)

// A file with bad rows, some of which only the server can find, loses none of its good ones; pushed again it changes nothing. What
// was done with them can be exported as CSV and NDJSON.
func TestPushRowsAndExport(t *testing.T) {
	t.Parallel()
	c := e2e.NewTerminal(t)
	c.Run(0, nil, "task", "create", "--name", "bulk", "--inbox", "--max-request", "1000")
	dir := t.TempDir()
	file := filepath.Join(dir, "items.csv")
	var text strings.Builder
	text.WriteString("item,priority,slots,exclusive,amount\n")
	for n := range 2100 {
		slots := ""
		if n == 1500 {
			slots = "0" // which the server refuses
		}
		fmt.Fprintf(&text, "loan-%d,%d,%s,,%d\n", n, n%3, slots, n)
	}
	text.WriteString(",1,,,\nloan-0,high,,,\n")
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	c.Run(1, e2e.Text("2099 items pushed to task bulk", "items.csv:1502: slots: ", "items.csv:2102: the item has no key", "items.csv:2103: priority must be a whole number", "3 rows are bad, of 2102"), "items", "push", "bulk", "-f", file)
	var again struct {
		Rows, Accepted, Duplicates, Bad int
		Errors                          []struct{ Line int }
	}
	c.Decode(1, &again, "items", "push", "bulk", "-f", file)
	if again.Rows != 2102 || again.Accepted != 0 || again.Duplicates != 2099 || again.Bad != 3 || len(again.Errors) != 3 || again.Errors[0].Line != 1502 && again.Errors[2].Line != 1502 {
		t.Errorf("pushed again: %+v", again)
	}
	c.Run(1, e2e.Text("600 duplicates", "items.csv:2102: ", "3 rows are bad, of 603"), "items", "push", "bulk", "-f", file, "--from-line", "1501")
	c.Run(2, e2e.Text("--from-line needs -f"), "items", "push", "bulk", "a", "--from-line", "2")
	c.Run(1, e2e.Text("the rows from line 1501 on are not pushed", "--from-line 1501 pushes them"), "items", "push", "nowhere", "-f", file, "--from-line", "1501")
	c.Stdin = "{\"item\": \"=1+1\", \"priority\": 9, \"details\": {\"a\": 1}}\n\"last\"\n"
	c.Run(0, e2e.Text("2 items pushed"), "items", "push", "bulk", "-f", "-", "--format", "ndjson", "--priority", "8")
	c.Run(2, e2e.Text("--format needs -f"), "items", "push", "bulk", "--format", "csv", "a")
	c.Run(2, e2e.Text("no column has the name item"), "items", "push", "bulk", "-f", e2e.Write(t, "key\na\n"), "--format", "csv")

	for range 3 {
		c.Run(0, nil, "get", "bulk", "--count", "500", "--wait", "30s")
	}
	out := filepath.Join(dir, "work.csv")
	c.Run(0, nil, "work", "export", "--task", "bulk", "--out", out)
	b, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	table, err := csv.NewReader(strings.NewReader(string(b))).ReadAll()
	if err != nil || len(table) != 1501 || table[1500][2] != "'=1+1" || table[1500][4] != "oliver" || table[1500][14] != `{"a":1}` && table[1500][14] != `{"a": 1}` {
		t.Errorf("%v; %d rows, the last is %q", err, len(table), table[len(table)-1])
	}
	c.Run(2, e2e.Text("must name a file that does not exist yet"), "work", "export", "--out", out)
	lines := strings.Split(strings.TrimSpace(c.Run(0, nil, "work", "export", "--task", "bulk", "--state", "held", "--format", "ndjson")), "\n")
	ids := map[string]bool{}
	for _, line := range lines {
		var w struct{ ID, Item string }
		if err := json.Unmarshal([]byte(line), &w); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		ids[w.ID] = true
	}
	if len(ids) != 1500 {
		t.Errorf("%d lines with %d ids, want 1500", len(lines), len(ids))
	}
	continuesExport(t, c, b)
}

// Ctrl-C ends a push that waits for more rows, and says where to go on.
func TestPushInterrupted(t *testing.T) {
	t.Parallel()
	c := e2e.NewTerminal(t)
	c.Run(0, nil, "task", "create", "--name", "bulk", "--inbox")
	args := []string{"items", "push", "bulk", "-f", "-", "--format", "ndjson"}
	command, out, errs := c.Command(args...)
	command.Stdin = nil
	in, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	defer time.AfterFunc(2*timeout.Scale(e2e.Soon), func() { _ = command.Process.Kill() }).Stop()
	for n := range 1001 {
		if _, err := fmt.Fprintf(in, "\"loan-%d\"\n", n); err != nil {
			t.Fatal(err)
		}
	}
	e2e.Await(t, "the first batch", e2e.Soon, func() bool {
		var task assign.Task
		c.Decode(0, &task, "task", "show", "bulk")
		return task.Shelf == 1000
	})
	if err := command.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	err = command.Wait()
	wanted := e2e.Text("the rows from line 1001 on are not pushed: interrupted\n--from-line 1001 pushes them")
	if strings.Contains(errs.String(), "from line 1 on") { // it had not heard yet that the first batch was pushed
		wanted = e2e.Text("the rows from line 1 on may be pushed or not: interrupted\n--from-line 1 pushes them")
	}
	c.Expect(args, 1, wanted, err, out.String(), errs.String())
}

// A push whose answer was lost is not said to have failed. Going on where the message says loses nothing, and pushes nothing twice.
func TestPushAnswerLost(t *testing.T) {
	t.Parallel()
	c := e2e.NewTerminal(t)
	c.Run(0, nil, "task", "create", "--name", "bulk", "--inbox")
	node, err := url.Parse(strings.TrimPrefix(c.Env[0], "GETWORK_URL="))
	if err != nil {
		t.Fatal(err)
	}
	forward := httputil.NewSingleHostReverseProxy(node)
	var pushes atomic.Int32
	line := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if pushes.Add(1) == 2 { // the node's answer goes nowhere
			forward.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		}
		forward.ServeHTTP(rw, r)
	}))
	defer line.Close()
	var text strings.Builder
	for n := range 2500 {
		fmt.Fprintf(&text, "\"loan-%d\"\n", n)
	}
	cut := c
	cut.Env = append(slices.Clone(c.Env), "GETWORK_URL="+line.URL)
	push := e2e.Text("items", "push", "bulk", "-f", e2e.Write(t, text.String()), "--format", "ndjson")
	cut.Run(1, e2e.Text("1000 items pushed", "the rows from line 1001 on may be pushed or not: the connection to "+line.URL+" was lost",
		"--from-line 1001 pushes them when the fault is mended; of what is pushed twice, only items that were completed meanwhile are pushed anew"), push...)
	if n := pushes.Load(); n != 2 {
		t.Errorf("%d pushes, want 2: one that was heard is not repeated", n)
	}
	c.Run(0, e2e.Text("500 items pushed to task bulk, 1000 duplicates"), append(push, "--from-line", "1001")...)
}

var printedCursor = regexp.MustCompile(`--cursor (\S+) continues after (\d+) rows`)

// continuesExport cuts an export after its first page. From the cursor that it printed the rest follows, without the head of the table.
func continuesExport(t *testing.T, c e2e.Terminal, whole []byte) {
	t.Helper()
	node, err := url.Parse(strings.TrimPrefix(c.Env[0], "GETWORK_URL="))
	if err != nil {
		t.Fatal(err)
	}
	forward := httputil.NewSingleHostReverseProxy(node)
	line := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("cursor") {
			http.Error(rw, "no such thing", http.StatusTeapot) // which is not tried again
			return
		}
		forward.ServeHTTP(rw, r)
	}))
	defer line.Close()
	cut := c
	cut.Env = append(slices.Clone(c.Env), "GETWORK_URL="+line.URL)
	command, out, errs := cut.Command("work", "export", "--task", "bulk")
	cut.Expect(command.Args[1:], 1, e2e.Text("the export is not complete"), command.Run(), "", errs.String())
	printed := printedCursor.FindStringSubmatch(errs.String())
	if printed == nil || printed[2] != "1000" || strings.Count(out.String(), "\n") != 1001 {
		t.Fatalf("cut, it printed %d lines and\n%s", strings.Count(out.String(), "\n"), errs)
	}
	file := filepath.Join(t.TempDir(), "cut.csv")
	cut.Run(1, e2e.Text("continues after 1000 rows"), "work", "export", "--task", "bulk", "--out", file)
	if b, err := os.ReadFile(file); err != nil || string(b) != out.String() {
		t.Errorf("the cut file: %v, %d bytes", err, len(b))
	}
	none := filepath.Join(t.TempDir(), "none.csv")
	cut.Run(1, nil, "work", "export", "--cursor", "1", "--out", none)
	if _, err := os.Stat(none); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an export of nothing is in the way of the next: %v", err)
	}
	if rest := c.Run(0, nil, "work", "export", "--task", "bulk", "--cursor", printed[1]); out.String()+rest != string(whole) {
		t.Errorf("the rest of %d lines does not make the table whole; it begins\n%.300s", strings.Count(rest, "\n"), rest)
	}
}
