//go:build unix

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"getwork/assign"
	"getwork/cmd/internal/e2e"
	"getwork/ws/agent"
)

// talking returns the Handler of --lines with a shell script.
func talking(t *testing.T, text string) *lines {
	t.Helper()
	p, _, _ := script(t, text)
	l := &lines{program: *p}
	t.Cleanup(l.close)
	return l
}

func numberedWork(id int64) assign.Work {
	w := someWork
	w.ID = id
	return w
}

// echoes completes every item.
const echoes = `sed -u 's/.*"id":"\([0-9]*\)".*/{"id":"\1","outcome":"complete"}/'`

// One program gets all items, and its lines say what becomes of each, whatever their order.
func TestLines(t *testing.T) {
	t.Parallel()
	l := talking(t, `echo start >&2; while read -r line; do case $line in
*'"id":"1"'*) echo '{"id":"1","outcome":"complete","note":"fine"}' ;;
*'"id":"2"'*) first=$line ;;
*'"id":"3"'*) echo '{"id":3,"outcome":"never"}'; echo; echo '{"id":"2","outcome":"return","after":"5m","to":"others"}' ;;
*'"id":"4"'*) echo '{"id":"4","outcome":"done"}' ;;
*'"id":"5"'*) echo '{"id":"99","outcome":"complete"}'; echo '{"id":"5","outcome":"fail","error":"no such page"}'; echo '{"id":"5","outcome":"complete"}' ;;
esac; done`)
	var all sync.WaitGroup
	got := make([]string, 6)
	work := func(id int64) {
		err := l.Work(t.Context(), numberedWork(id))
		got[id] = fmt.Sprint(err)
	}
	work(1)
	all.Go(func() { work(2) })
	e2e.Await(t, "the second is written", e2e.Soon, func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.now.mu.Lock()
		defer l.now.mu.Unlock()
		return len(l.now.waiting) == 1 && len(l.now.turn) == 0
	})
	work(3)
	all.Wait()
	work(4)
	work(5)
	for id, want := range []string{"", "complete", "return", "never", "done", "fail"} {
		if want != "" && got[id] != "the handler decides: "+want {
			t.Errorf("item %d: %s, want %s", id, got[id], want)
		}
	}
	l.close() // it reads no more
	if errs := l.errs.(*shared).w.(fmt.Stringer).String(); errs != "start\n" {
		t.Errorf("it was started more often than once: %q", errs)
	}
}

// If the program ends, what it was given and did not answer has failed, what it answered has not, and what was not written goes back. It
// starts again after a second, then two.
func TestLinesProgramEnds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	starts, enough := filepath.Join(dir, "starts"), filepath.Join(dir, "enough")
	l := talking(t, `echo >>`+starts+`; read -r a; if [ -e `+enough+` ]; then read -r b; else while [ ! -e `+enough+` ]; do sleep 0.01; done; fi
printf '{"id":"1","outcome":"complete"}'; echo oh no >&2; exit 3`)
	large := numberedWork(3)
	large.Details = []byte(`"` + strings.Repeat("x", 1<<20) + `"`) // more than a pipe takes
	began := time.Now()
	var all sync.WaitGroup
	errs := make([]error, 4)
	turn := func(id int64, w assign.Work) {
		all.Go(func() { errs[id] = l.Work(t.Context(), w) })
		e2e.Await(t, "it is its turn", e2e.Soon, func() bool {
			l.mu.Lock()
			defer l.mu.Unlock()
			if l.now == nil {
				return false
			}
			l.now.mu.Lock()
			defer l.now.mu.Unlock()
			_, known := l.now.waiting[id]
			return known
		})
	}
	turn(1, numberedWork(1))
	turn(3, large)
	if err := os.WriteFile(enough, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	all.Wait()
	if got := fmt.Sprint(errs[1]); got != "the handler decides: complete" {
		t.Errorf("what it answered: %s", got)
	}
	if got := fmt.Sprint(errs[3]); got != agent.ReturnAfter(0, "").Error() {
		t.Errorf("what it was not given: %.100s", got)
	}
	for i, pause := range []time.Duration{time.Second, 2 * time.Second} {
		before := time.Now()
		all.Go(func() { errs[2] = l.Work(t.Context(), numberedWork(2)) })
		all.Go(func() { errs[0] = l.Work(t.Context(), numberedWork(4)) })
		all.Wait()
		for _, err := range []error{errs[2], errs[0]} {
			if want := "the program ended without a result: exit status 3: oh no"; fmt.Sprint(err) != want {
				t.Errorf("what it did not answer: %v, want %s", err, want)
			}
		}
		if took := time.Since(before); took < pause-200*time.Millisecond {
			t.Errorf("start %d came after %v", i+2, took)
		}
	}
	if b, _ := os.ReadFile(starts); len(b) != 3 {
		t.Errorf("%d starts within %v", len(b), time.Since(began))
	}
}

// A line that is no result stops the program. Nobody knows which item it was of, so all that it has have failed.
func TestLinesBroken(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"no JSON": `read -r a; echo hello; sleep 60`,
		"no id":   `read -r a; echo '{"outcome":"complete"}'; sleep 60`,
		"endless": `read -r a; yes | tr -d '\n'`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := talking(t, text)
			err := l.Work(t.Context(), numberedWork(1))
			if err == nil || !strings.HasPrefix(err.Error(), "the program wrote a line that is no result: ") {
				t.Errorf("%v", err)
			}
		})
	}
}

// A program that does not answer in time is stopped, also against its will, and so is one whose item's lease is lost, and at the end of
// the agent's patience. It may answer while it ends.
func TestLinesStopped(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		script  string
		timeout time.Duration
		want    string
	}{
		"late":          {`read -r a; echo slow >&2; sleep 60`, time.Second, "timed out after 1s: slow"},
		"against it":    {`trap '' TERM; read -r a; sleep 60`, time.Second, "timed out after 1s"},
		"lost":          {`read -r a; sleep 60`, 0, "lost"},
		"lost and done": {`trap 'echo "{\"id\":\"1\",\"outcome\":\"complete\"}"; exit' TERM; read -r a; while :; do sleep 0.05; done`, 0, "the handler decides: complete"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := talking(t, tt.script)
			l.timeout, l.killAfter = tt.timeout, 500*time.Millisecond
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			if tt.timeout == 0 {
				time.AfterFunc(time.Second, func() { cancel(errors.New("lost")) })
			}
			if err := l.Work(ctx, numberedWork(1)); fmt.Sprint(err) != tt.want {
				t.Errorf("%v, want %s", err, tt.want)
			}
		})
	}
}

// The program's exit decides at once, also if a process that left its group keeps its pipes.
func TestLinesExitDecides(t *testing.T) {
	t.Parallel()
	pids := filepath.Join(t.TempDir(), "pids")
	l := talking(t, `setsid sh -c 'echo $$ >"$0"; exec sleep 61' "`+pids+`" & until [ -s "`+pids+`" ]; do sleep 0.01; done; read -r a; exit 4`)
	err := l.Work(t.Context(), numberedWork(1))
	if want := "the program ended without a result: exit status 4"; fmt.Sprint(err) != want {
		t.Errorf("%v, want %s", err, want)
	}
	b, _ := os.ReadFile(pids)
	left, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err == nil {
		err = syscall.Kill(left, syscall.SIGKILL)
	}
	if err != nil {
		t.Errorf("the process that left the group: %v", err)
	}
}

// A program that can't be started costs no attempt.
func TestLinesNoProgram(t *testing.T) {
	t.Parallel()
	l := talking(t, "")
	l.path = "/no/such/program"
	if err := l.Work(t.Context(), numberedWork(1)); !errors.Is(err, agent.ErrLater) {
		t.Errorf("%v", err)
	}
}

// The whole command works an inbox off with one program, and ends it when nothing is left.
func TestAgentLines(t *testing.T) {
	t.Parallel()
	c := e2e.NewTerminal(t)
	c.Run(0, nil, "task", "create", "--name", "photos", "--inbox", "--max-request", "50")
	var pushed []string
	for i := range 100 {
		pushed = append(pushed, fmt.Sprint("photo ", i))
	}
	c.Run(0, e2e.Text("100 items pushed"), append([]string{"items", "push", "photos"}, pushed...)...)
	starts := filepath.Join(t.TempDir(), "starts")
	c.Run(0, nil, "agent", "photos", "--lines", "--once", "--concurrency", "20", "--", "sh", "-c", "echo >>"+starts+"; "+echoes)
	if b, _ := os.ReadFile(starts); len(b) != 1 {
		t.Errorf("%d starts", len(b))
	}
	var list struct{ Work []assign.Work }
	c.Decode(0, &list, "work", "list", "--task", "photos", "--state", "completed", "--all", "--role", "manager")
	if len(list.Work) != 100 {
		t.Errorf("%d are completed", len(list.Work))
	}
}
