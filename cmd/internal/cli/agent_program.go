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
	args      []string // with its name
	timeout   time.Duration
	killAfter time.Duration
	out, errs io.Writer
	warden    *warden
	log       *slog.Logger
}

// exitLater is how a program says that the item can't be worked on now: EX_TEMPFAIL of sysexits.h.
const exitLater = 75

// Work runs the program, and makes of how it ended what becomes of the item.
func (p *program) Work(ctx context.Context, w assign.Work) error {
	input, err := json.Marshal(w)
	if err != nil {
		return fmt.Errorf("write the work as JSON: %w", err)
	}
	var end complaint
	cmd := &exec.Cmd{Path: p.path, Args: p.args, Stdin: bytes.NewReader(input), Stdout: p.out, Stderr: io.MultiWriter(p.errs, &end)}
	cmd.Env = append(withoutSecrets(os.Environ()), "GETWORK_ITEM="+w.Item, "GETWORK_TASK="+w.Task,
		"GETWORK_WORK_ID="+strconv.FormatInt(w.ID, 10), "GETWORK_ATTEMPT="+strconv.Itoa(w.Attempt))
	g := &group{cmd: cmd, warden: p.warden, done: make(chan struct{})}
	if err := g.start(); err != nil { // the item is not to blame
		p.log.Error("the program can't be started; its work goes back until it can", "program", p.path, "error", err)
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

// withoutSecrets is the environment without what lets somebody act as the agent, or into the database: a program that
// works on an item needs neither. One that does needs a variable of another name.
func withoutSecrets(environ []string) []string {
	return slices.DeleteFunc(environ, func(variable string) bool {
		name, _, _ := strings.Cut(strings.ToUpper(variable), "=")
		return name == "GETWORK_TOKEN" || strings.HasPrefix(name, "PG") || strings.HasSuffix(name, "DATABASE_URL") || strings.Contains(name, "_SECRET")
	})
}

// await returns when the program has ended; it is stopped when ctx ends, or when its time is over: late.
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

// outputWithin is how long a process that escaped from its group may keep a program's output open after that has ended.
const outputWithin = 5 * time.Second

// group is a running program with all that it started.
type group struct {
	cmd    *exec.Cmd
	warden *warden
	done   chan struct{} // closed when it has ended, and its state is known

	mu     sync.Mutex
	reaped bool // its id may be somebody else's by now
}

// start starts the program in a process group of its own.
func (g *group) start() error {
	g.cmd.SysProcAttr = groupAttributes()
	g.cmd.WaitDelay = outputWithin
	started := make(chan error)
	go func() {
		// Where the kernel kills a program whose parent has died, it goes by the thread: this one lasts as long.
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
			_ = g.cmd.Wait() // its state tells more
		}
		g.mu.Lock()
		killGroup(g.cmd.Process) // what it left behind
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

// kill ends it.
func (g *group) kill() { g.signal(killGroup) }

func (g *group) signal(send func(*os.Process)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.reaped {
		send(g.cmd.Process)
	}
}

// maxComplaint is how much of what a program said is kept with an attempt that failed, in bytes.
const maxComplaint = 1 << 10

// complaint keeps the end of what is written to it.
type complaint struct {
	text []byte
	cut  bool
}

// Write is called by one goroutine, which has ended when the program's state is known.
func (c *complaint) Write(p []byte) (int, error) {
	c.text = append(c.text, p...)
	if over := len(c.text) - maxComplaint; over > 0 {
		c.text, c.cut = append(c.text[:0], c.text[over:]...), true
	}
	return len(p), nil
}

// after makes an error of how a program ended and what it said last: whole lines, if there is more than one.
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
