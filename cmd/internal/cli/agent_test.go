//go:build unix

package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"getwork/assign"
	"getwork/cmd/internal/e2e"
	"getwork/schema/schematest"
	"getwork/schema/schematest/timeout"
	"getwork/ws/agent"
)

// script returns a program that runs a shell script.
func script(t *testing.T, text string) (p *program, out, errs *bytes.Buffer) {
	t.Helper()
	out, errs = new(bytes.Buffer), new(bytes.Buffer)
	w, err := newWarden()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.close)
	return &program{path: "/bin/sh", environ: os.Environ(), args: []string{"sh", "-c", text}, killAfter: 10 * time.Second, warden: w,
		out: &shared{w: out}, errs: &shared{w: errs}, log: slog.New(slog.NewTextHandler(t.Output(), nil))}, out, errs
}

var someWork = assign.Work{ID: 17, Task: "crawl", Item: "https://example.com/?a=1&b=\"é\"", Attempt: 2, State: "held",
	Details: json.RawMessage(`{"n":12345678901234567890}`)}

// A program's exit decides what happens to its item, and its environment and input say which item that is.
func TestProgramEnds(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ script, want string }{
		{`exit 0`, ""},
		{`exit 75`, agent.ErrLater.Error()},
		{`exit 1`, "exit status 1"},
		{`echo first >&2; echo "  no such page" >&2; exit 3`, "exit status 3: first\n  no such page"},
		{`kill -9 $$`, "signal: killed"},
		{`yes "a line of 20 bytes" | head -1000 >&2; exit 1`, "exit status 1: " + strings.TrimSpace(strings.Repeat("a line of 20 bytes\n", 53))},
		{`printf 'a\377b\000c' >&2; exit 1`, "exit status 1: ab\x00c"},
		{`[ "$GETWORK_ITEM" = 'https://example.com/?a=1&b="é"' ] && [ "$GETWORK_TASK.$GETWORK_WORK_ID.$GETWORK_ATTEMPT" = crawl.17.2 ]`, ""},
		{`cat >/dev/null; (sleep 60) >/dev/null 2>&1 &`, ""},
		{`(sleep 60) &`, ""}, // keeps the program's output open
	} {
		p, _, _ := script(t, tt.script)
		began, before := time.Now(), e2e.Overslept.Load()
		if err := p.Work(t.Context(), someWork); err == nil && tt.want != "" || err != nil && err.Error() != tt.want {
			t.Errorf("%s: %v, want %q", tt.script, err, tt.want)
		}
		if took := time.Since(began) - time.Duration(e2e.Overslept.Load()-before); took > 4*time.Second {
			t.Errorf("%s: took %v", tt.script, took)
		}
	}
	p, out, errs := script(t, `cat; echo done >&2`)
	if err := p.Work(t.Context(), someWork); err != nil {
		t.Error(err)
	}
	var w assign.Work
	if err := json.Unmarshal(out.Bytes(), &w); err != nil || w.Item != someWork.Item || string(w.Details) != string(someWork.Details) || errs.String() != "done\n" {
		t.Errorf("%v: %s, %s", err, out, errs)
	}
	p.path = "/no/such/program"
	if err := p.Work(t.Context(), someWork); !errors.Is(err, agent.ErrLater) {
		t.Errorf("a program that is gone: %v", err)
	}
}

// Exit statuses have codes, and the last line of output is an answer, if the agent is told so.
func TestProgramAnswers(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ script, want string }{
		{`exit 0`, "sent"},
		{`echo '{"code":"other"}'; exit 3`, "other"},
		{`exit 3`, "no-answer"},
		{`exit 75`, agent.ErrLater.Error()},
		{`echo '{"code":"other"}'; exit 4`, "exit status 4"},
		{`echo working; echo; printf ' {"result":{"n":1}}\n\n \n'`, "sent"},
		{`printf '{"outcome":"return",'; sleep 0.05; printf '"after":"5m","note":"down"}'`, "return"},
		{`echo '{"code":"other"}'; echo done`, `the last line that the program wrote is no answer: "done"`},
		{`yes | tr -d '\n' | head -c 300000`, `the last line that the program wrote is no answer: "` + strings.Repeat("y", 100) + `"`},
		{`yes | tr -d '\n' | head -c 300000; echo; echo '{"code":"other"}'`, "other"},
	} {
		p, out, _ := script(t, tt.script)
		p.answer, p.codes = true, map[int]string{0: "sent", 3: "no-answer", 75: "busy"}
		err := p.Work(t.Context(), someWork)
		if got := strings.TrimPrefix(fmt.Sprint(err), "the handler decides: "); got != tt.want {
			t.Errorf("%.100s: %.200s, want %.200s", tt.script, got, tt.want)
		}
		if strings.HasPrefix(tt.script, "echo working") && !strings.Contains(out.String(), "working") {
			t.Errorf("its output was kept back: %q", out)
		}
	}
}

// Agents work a task that asks for codes, with exit statuses, with answers, and in lines.
func TestAgentCodes(t *testing.T) {
	t.Parallel()
	c := e2e.NewTerminal(t)
	c.Run(0, nil, "task", "create", "--name", "mails", "--inbox", "--require-code", "--max-attempts", "1",
		"--outcomes", `[{"code":"sent","label":"Sent","do":"complete"},{"code":"no-answer","label":"No answer","do":"return","after":"2h"},{"code":"busy","label":"Busy","do":"return"}]`,
		"--result", `[{"name":"receipt","type":"number","required":true}]`)
	c.Run(0, nil, "items", "push", "mails", "1", "3", "5", "75", "0")
	c.Run(0, nil, "agent", "mails", "--once", "--codes", "0=sent,3=no-answer,75=busy", "--answer", "--", "sh", "-c",
		`[ $GETWORK_ITEM != 1 ] || echo '{"result":{"receipt":7}}'; [ $GETWORK_ITEM != 5 ] || exec echo '{"code":"no-answer","after":"5m"}'; [ $GETWORK_ITEM = 1 ] || exit $GETWORK_ITEM`)
	c.Run(0, nil, "items", "push", "mails", "b")
	c.Run(0, nil, "agent", "mails", "--once", "--lines", "--codes", "75=busy", "--", "sh", "-c",
		`sed -u 's/.*"id":"\([0-9]*\)".*/{"id":"\1","code":"sent","result":{"receipt":8}}/'`)
	got := map[string]string{}
	for line := range strings.Lines(c.Run(0, nil, "work", "export", "--task", "mails", "--format", "ndjson", "--role", "manager")) {
		var w assign.Work
		if err := json.Unmarshal([]byte(line), &w); err != nil {
			t.Fatal(err)
		}
		got[w.Item] = fmt.Sprint(w.State)
		if w.Code != nil {
			got[w.Item] += " " + *w.Code
		}
		if w.Result != nil {
			got[w.Item] += " " + string(w.Result)
		}
		if w.Error != nil {
			got[w.Item] += " " + *w.Error
		}
	}
	want := map[string]string{"1": `completed sent {"receipt":7}`, "3": "returned no-answer", "5": "returned no-answer", "75": "returned busy",
		"0": "never _failed the result is not valid: result.receipt: it is required", "b": `completed sent {"receipt":8}`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	for flags, says := range map[string]string{
		"--codes=300=sent": "from 0 to 255", "--codes=3=No": "no code", "--codes=3=x --lines": "only 75", "--answer --lines": "--answer is for",
	} {
		c.Run(2, e2e.Text(says), append(append([]string{"agent", "mails"}, strings.Fields(flags)...), "--", "true")...)
	}
}

// A program's exit decides, whatever becomes of the processes that leave its group and keep its pipes: they run on, and neither
// the time-out nor the end of the agent counts any more.
func TestProgramExitDecides(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ exit, want string }{
		"complete": {`exit 0`, ""},
		"later":    {`exit 75`, agent.ErrLater.Error()},
		"fail":     {`echo no page >&2; exit 3`, "exit status 3: no page"},
		"killed":   {`kill -9 $$`, "signal: killed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pids := filepath.Join(t.TempDir(), "pids")
			// It reads no input, and that of this item does not fit into a pipe.
			p, _, _ := script(t, `exec 3<&0; setsid sh -c 'echo $$ >"$0"; exec sleep 61 <&3' "`+pids+`" & until [ -s "`+pids+`" ]; do sleep 0.01; done; `+tt.exit)
			p.timeout = 4 * time.Second
			large := someWork
			large.Details = json.RawMessage(`{"n":"` + strings.Repeat("x", 1<<20) + `"}`)
			before := e2e.Overslept.Load()
			err := p.Work(t.Context(), large)
			over := time.Now()
			if ended, wrong := os.Stat(pids); wrong != nil || over.Sub(ended.ModTime())-time.Duration(e2e.Overslept.Load()-before) > timeout.Scale(time.Second) {
				t.Errorf("known %v after its exit: %v", over.Sub(ended.ModTime()), wrong)
			}
			if err == nil && tt.want != "" || err != nil && err.Error() != tt.want {
				t.Errorf("%v, want %q", err, tt.want)
			}
			b, _ := os.ReadFile(pids)
			left, err := strconv.Atoi(strings.TrimSpace(string(b)))
			if err == nil {
				err = syscall.Kill(left, syscall.SIGKILL)
			}
			if err != nil {
				t.Errorf("the process that left the group: %v", err)
			}
		})
	}
}

// full is a disk without room.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// A program goes on when the agent can't pass on what it writes to standard error, and its item still shows the end of that.
func TestProgramOutlivesItsLog(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`yes | head -c 1000000 >&2`:                                "", // a pipe has no room for it, so most is written after the first failure
		`yes | head -c 1000000 >&2; echo no such page >&2; exit 3`: "no such page",
		`echo no such page >&2; exit 3`:                            "exit status 3: no such page",
	} {
		p, _, _ := script(t, text)
		p.errs = &shared{w: full{}}
		if err := p.Work(t.Context(), someWork); err == nil && want != "" || err != nil && (want == "" || !strings.HasSuffix(err.Error(), want)) {
			t.Errorf("%s: %.100v, want %q", text, err, want)
		}
	}
}

// A program is stopped with every process that it started, even against its will.
func TestProgramIsStopped(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	lost := errors.New("lost")
	for name, tt := range map[string]struct {
		begins, goesOn string
		timeout        time.Duration
		want           string
	}{
		"by its context":       {`trap 'exit 4' TERM`, `sleep 300 & wait`, 0, "lost"},
		"by its time":          {`echo slow >&2`, `sleep 300 & wait`, 8 * time.Second, "timed out after 8s: slow"},
		"though it ends well":  {`trap 'exit 0' TERM`, `sleep 300 & wait`, 8 * time.Second, "timed out after 8s"},
		"because it ends well": {`trap 'exit 0' TERM`, `sleep 300 & wait`, 0, ""},
		"against its will":     {`trap '' TERM`, `sleep 300 & sleep 300`, 0, "lost"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pids := filepath.Join(t.TempDir(), "pids")
			p, _, _ := script(t, tt.begins+`; sleep 299 & echo $$ $! >`+pids+`; `+tt.goesOn)
			if p.timeout = tt.timeout; name == "against its will" {
				p.killAfter = 500 * time.Millisecond
			}
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			ended := make(chan error, 1)
			go func() { ended <- p.Work(ctx, someWork) }()
			e2e.Await(t, "the program runs", e2e.Soon, func() bool { b, _ := os.ReadFile(pids); return bytes.Contains(b, []byte("\n")) })
			if tt.timeout == 0 {
				cancel(lost)
			}
			if err := <-ended; err == nil && tt.want != "" || err != nil && err.Error() != tt.want {
				t.Errorf("%v, want %q", err, tt.want)
			}
			b, _ := os.ReadFile(pids)
			for pid := range strings.FieldsSeq(string(b)) {
				e2e.AwaitGone(t, pid)
			}
		})
	}
}
