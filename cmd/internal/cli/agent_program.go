package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"getwork/assign"
	"getwork/ws/agent"
)

// program is the Handler that runs a program for each item.
type program struct {
	path      string
	args      []string // including its name
	timeout   time.Duration
	killAfter time.Duration
	out, errs io.Writer
	warden    *warden
	log       *slog.Logger
}

// exitLater is the exit status of a program that can't work on the item now: EX_TEMPFAIL of sysexits.h.
const exitLater = 75

// Work runs the program. Its error is the outcome that the program's exit status stands for.
func (p *program) Work(ctx context.Context, w assign.Work) error {
	input, err := json.Marshal(w)
	if err != nil {
		return fmt.Errorf("encode the work as JSON: %w", err)
	}
	var end complaint
	cmd := &exec.Cmd{Path: p.path, Args: p.args, Stdin: bytes.NewReader(input), Stdout: p.out, Stderr: io.MultiWriter(&end, lenient{p.errs})}
	cmd.Env = append(withoutSecrets(os.Environ()), "GETWORK_ITEM="+w.Item, "GETWORK_TASK="+w.Task,
		"GETWORK_WORK_ID="+strconv.FormatInt(w.ID, 10), "GETWORK_ATTEMPT="+strconv.Itoa(w.Attempt))
	g := &group{cmd: cmd, warden: p.warden, done: make(chan struct{})}
	if err := g.start(); err != nil { // not the item's fault
		p.log.Error("can't start the program; its work goes back until that succeeds", "program", p.path, "error", err)
		return agent.ErrLater
	}
	late := p.await(ctx, g)
	state := cmd.ProcessState
	switch {
	case late:
		return end.after(fmt.Sprintf("timed out after %s", assign.Duration(p.timeout)))
	case state.Success():
		return nil
	case state.ExitCode() == exitLater:
		return agent.ErrLater
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return end.after(state.String())
}

// withoutSecrets returns the environment without the variables that give access to the agent's account or to the
// database. A program that works on an item needs neither. A program that does must get them under another name.
func withoutSecrets(environ []string) []string {
	return slices.DeleteFunc(environ, func(variable string) bool {
		name, _, _ := strings.Cut(strings.ToUpper(variable), "=")
		return name == "GETWORK_TOKEN" || name == "GETWORK_TOKEN_FILE" || strings.HasPrefix(name, "PG") || strings.Contains(name, "DATABASE_URL") || strings.Contains(name, "_SECRET")
	})
}

// await returns when the program has ended. It stops the program when ctx ends or its time-out expires; late reports
// the latter.
func (p *program) await(ctx context.Context, g *group) (late bool) {
	var over <-chan time.Time
	if p.timeout > 0 {
		t := time.NewTimer(p.timeout)
		defer t.Stop()
		over = t.C
	}
	select {
	case <-g.done:
		return false
	case <-ctx.Done():
	case <-over:
		late = true
	}
	g.stop()
	kill := time.AfterFunc(p.killAfter, g.kill)
	defer kill.Stop()
	<-g.done
	return late
}

// outputWithin is how long await reads on after the program has ended, if a process that escaped from its group keeps
// the output open.
const outputWithin = 5 * time.Second

// group is a running program and every process that it started.
type group struct {
	cmd    *exec.Cmd
	warden *warden
	done   chan struct{} // closed when the program has ended and its state is known

	mu     sync.Mutex
	reaped bool // the id may belong to another process by now
}

// start starts the program in a process group of its own.
func (g *group) start() error {
	g.cmd.SysProcAttr = groupAttributes()
	g.cmd.WaitDelay = outputWithin
	started := make(chan error)
	go func() {
		// The kernel kills the program when the thread that started it ends, so this thread must live as long as the
		// program.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := g.cmd.Start()
		if err == nil {
			g.warden.watch(g.cmd.Process.Pid)
		}
		started <- err
		if err != nil {
			return
		}
		ours := awaitEnd(g.cmd.Process.Pid)
		if !ours {
			_ = g.cmd.Wait() // ProcessState says more than the error
		}
		g.mu.Lock()
		killGroup(g.cmd.Process) // processes that it left behind
		g.reaped = true
		g.mu.Unlock()
		if ours {
			_ = g.cmd.Wait()
		}
		g.warden.forget(g.cmd.Process.Pid)
		close(g.done)
	}()
	return <-started
}

// stop asks the group to end.
func (g *group) stop() { g.signal(stopGroup) }

// kill kills the group.
func (g *group) kill() { g.signal(killGroup) }

func (g *group) signal(send func(*os.Process)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.reaped {
		send(g.cmd.Process)
	}
}

// maxComplaint is how many bytes of a program's standard error are kept with a failed attempt.
const maxComplaint = 1 << 10

// lenient passes on what can be written, and drops the rest. If a full disk or a terminal that hung up made Write fail, nobody
// would read the program's standard error any more, and its next line there would kill it by SIGPIPE in the middle of its
// effects.
type lenient struct{ w io.Writer }

func (l lenient) Write(p []byte) (int, error) {
	_, _ = l.w.Write(p)
	return len(p), nil
}

// complaint keeps the end of the text that is written to it.
type complaint struct {
	text []byte
	cut  bool
}

// Write is called by a single goroutine, which ends before the program's state is known.
func (c *complaint) Write(p []byte) (int, error) {
	c.text = append(c.text, p...)
	if over := len(c.text) - maxComplaint; over > 0 {
		c.text, c.cut = append(c.text[:0], c.text[over:]...), true
	}
	return len(p), nil
}

// after returns an error that says how a program ended, followed by the last whole lines of its output.
func (c *complaint) after(how string) error {
	text := string(c.text)
	if c.cut {
		if _, rest, ok := strings.Cut(text, "\n"); ok && strings.TrimSpace(rest) != "" {
			text = rest
		}
	}
	if text = strings.TrimSpace(strings.ToValidUTF8(text, "")); text != "" {
		how += ": " + text
	}
	return errors.New(how)
}
