package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"getwork/assign"
	"getwork/ws/agent"
)

// lines is the Handler of --lines: one program that stays, reads a line for each item, and writes one for each result. If it ends, it is
// started again for the next item, after a pause that doubles.
type lines struct {
	program

	mu    sync.Mutex
	now   *talk         // with the program that runs; nil: none does
	pause time.Duration // before it is started again after its next end
	next  time.Time     // it is not started before

	closing bool // the agent ends
}

const (
	firstPause   = time.Second
	longestPause = time.Minute // and how long the program has to run for the pause to be the first again

	maxResult = 160 << 10 // bytes of a line: two texts of 4 KiB and a result of 16 KiB, however they are escaped
)

// talk is one run of the program.
type talk struct {
	lines *lines
	group *group
	in    io.WriteCloser
	turn  chan struct{} // holds a value while somebody writes
	over  chan struct{} // closed when the program has ended, and what it wrote is read
	began time.Time
	end   complaint
	stop  func() // asks it to end, and kills it if it doesn't

	mu      sync.Mutex
	partial []byte // of a line
	broken  string // why what it writes can't be read
	waiting map[int64]chan assign.Disposition
}

// Work gives the item to the program, and waits for its result. Its error is the result, as [agent.As] has it.
func (l *lines) Work(ctx context.Context, w assign.Work) error {
	line, err := json.Marshal(w)
	if err != nil {
		return fmt.Errorf("encode the work as JSON: %w", err)
	}
	t, err := l.talk(ctx, w.Task)
	if err != nil {
		return err
	}
	unwritten := agent.ReturnAfter(0, "")
	select {
	case t.turn <- struct{}{}:
	case <-t.over:
		return unwritten
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	result := make(chan assign.Disposition, 1)
	t.mu.Lock()
	t.waiting[w.ID] = result
	t.mu.Unlock()
	defer func() {
		t.mu.Lock()
		delete(t.waiting, w.ID)
		t.mu.Unlock()
	}()
	// From here on the program may work on the item: it is stopped when it must not do so any more.
	defer context.AfterFunc(ctx, t.stop)()
	var late *time.Timer
	if l.timeout > 0 {
		late = time.AfterFunc(l.timeout, t.stop)
		defer late.Stop()
	}
	n, _ := t.in.Write(append(line, '\n'))
	<-t.turn
	select {
	case d := <-result:
		return agent.As(d)
	case <-t.over:
	}
	select {
	case d := <-result: // it wrote this before it ended
		return agent.As(d)
	default:
	}
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case n <= len(line): // without its end no line is an item
		return unwritten
	case late != nil && !late.Stop():
		return t.end.after(fmt.Sprintf("timed out after %s", assign.Duration(l.timeout)))
	case t.broken != "":
		return t.end.after(t.broken)
	}
	return t.end.after("the program ended without a result: " + t.group.state.String())
}

// talk returns the talk with the program, which it starts if it does not run and the pause is over.
func (l *lines) talk(ctx context.Context, task string) (*talk, error) {
	for {
		l.mu.Lock()
		if l.now != nil {
			defer l.mu.Unlock()
			return l.now, nil
		}
		wait := time.Until(l.next)
		if wait <= 0 {
			defer l.mu.Unlock()
			return l.begin(task)
		}
		l.mu.Unlock()
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return nil, context.Cause(ctx)
		}
	}
}

// begin starts the program. l.mu must be held.
func (l *lines) begin(task string) (*talk, error) {
	t := &talk{lines: l, turn: make(chan struct{}, 1), over: make(chan struct{}), began: time.Now(), waiting: map[int64]chan assign.Disposition{}}
	cmd := &exec.Cmd{Path: l.path, Args: l.args, Stdout: t, Stderr: io.MultiWriter(&t.end, lenient{l.errs}), Env: append(slices.Clip(l.environ), "GETWORK_TASK="+task)}
	t.group = &group{cmd: cmd, warden: l.warden, exited: make(chan struct{}), done: make(chan struct{})}
	t.stop = sync.OnceFunc(func() {
		if t.group.signal(stopGroup) {
			time.AfterFunc(l.killAfter, func() { t.group.signal(killGroup) }) // in vain if it has ended by then
		}
	})
	in, err := cmd.StdinPipe()
	if err == nil {
		t.in, err = in, t.group.start()
	}
	if err != nil { // not the item's fault
		l.log.Error("can't start the program; its work goes back until that succeeds", "program", l.path, "error", err)
		l.ended(0)
		return nil, agent.ErrLater
	}
	l.now = t
	go func() {
		<-t.group.done
		t.mu.Lock()
		t.answer(t.partial)
		t.mu.Unlock()
		l.mu.Lock()
		l.now = nil
		l.ended(time.Since(t.began))
		if !l.closing {
			l.log.Warn("the program has ended; it starts again", "program", l.path, "status", t.group.state.String(), "not_within", time.Until(l.next).Round(time.Second))
		}
		l.mu.Unlock()
		close(t.over)
	}()
	return t, nil
}

// ended sets the pause after a run that lasted so long. l.mu must be held.
func (l *lines) ended(lasted time.Duration) {
	if lasted > longestPause || l.pause == 0 {
		l.pause = firstPause
	}
	l.next = time.Now().Add(l.pause)
	l.pause = min(2*l.pause, longestPause)
}

// close ends the program: it has no more to read. By then no item waits for a result.
func (l *lines) close() {
	l.mu.Lock()
	t := l.now
	l.closing = true
	l.mu.Unlock()
	if t == nil {
		return
	}
	_ = t.in.Close()
	patient := time.AfterFunc(l.killAfter, t.stop)
	defer patient.Stop()
	<-t.over
}

// Write takes what the program writes. One goroutine calls it. An error would end the reading, and the program with it.
func (t *talk) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	rest := p
	for {
		line, after, found := bytes.Cut(rest, []byte("\n"))
		if t.partial = append(t.partial, line...); !found {
			break
		}
		t.answer(t.partial)
		t.partial, rest = t.partial[:0], after
	}
	if len(t.partial) > maxResult {
		t.breaks(t.partial)
		t.partial = t.partial[:0]
	}
	return len(p), nil
}

// answer passes a line on to the item that it is the result of. t.mu must be held.
func (t *talk) answer(line []byte) {
	if line = bytes.TrimSpace(line); len(line) == 0 || t.broken != "" {
		return
	}
	var one struct {
		ID json.RawMessage `json:"id"`
		assign.Disposition
	}
	if err := json.Unmarshal(line, &one); err != nil {
		t.breaks(line)
		return
	}
	id, err := strconv.ParseInt(strings.Trim(string(one.ID), `"`), 10, 64)
	if err != nil {
		t.breaks(line)
		return
	}
	result, known := t.waiting[id]
	if !known {
		t.lines.log.Warn("the program wrote a result of work that it does not have", "work", id)
		return
	}
	delete(t.waiting, id)
	result <- one.Disposition
}

// breaks stops a program that writes what is no result: nobody knows which item it would have been of. t.mu must be held.
func (t *talk) breaks(line []byte) {
	if t.broken == "" {
		t.broken = fmt.Sprintf("the program wrote a line that is no result: %.100q", line)
		t.lines.log.Error("the program is stopped: it wrote a line that is no result", "line", fmt.Sprintf("%.100q", line))
		go t.stop()
	}
}
