package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"
)

// child is a client process.
type child struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *json.Decoder
	errs bytes.Buffer // read it only after the process has ended
	end  context.CancelFunc
}

// launch starts a client process, which ends with the context, with stop, or with this process.
func launch(ctx context.Context, command []string) (*child, error) {
	ctx, cancel := context.WithCancel(ctx)
	c := &child{cmd: exec.CommandContext(ctx, command[0], command[1:]...), end: cancel}
	c.cmd.Stderr = &c.errs
	c.cmd.WaitDelay = 5 * time.Second
	in, err1 := c.cmd.StdinPipe()
	out, err2 := c.cmd.StdoutPipe()
	if err := errors.Join(err1, err2, c.cmd.Start()); err != nil {
		cancel()
		return nil, fmt.Errorf("start its client: %w", err)
	}
	c.in, c.out = in, json.NewDecoder(out)
	return c, nil
}

func (c *child) pid() int { return c.cmd.Process.Pid }

// ask sends a request. It calls clock before and after the measurement, while the client waits.
func (c *child) ask(ctx context.Context, r request, clock func(end bool) error) (answer, error) {
	// Killing a client that hangs ends the read of its output.
	stuck := time.AfterFunc(2*patience+time.Duration(r.Seconds*float64(time.Second)), c.end)
	defer stuck.Stop()
	say := json.NewEncoder(c.in)
	if err := say.Encode(r); err != nil {
		return answer{}, c.died(ctx, err)
	}
	for {
		var a answer
		if err := c.out.Decode(&a); err != nil {
			return answer{}, c.died(ctx, err)
		}
		switch a.At {
		case atDone:
			return a, nil
		case atFailed:
			return answer{}, errors.New(a.Error)
		}
		if err := clock(a.At == atEnd); err != nil {
			return answer{}, err
		}
		if err := say.Encode(request{}); err != nil {
			return answer{}, c.died(ctx, err)
		}
	}
}

// died says why no answer came.
func (c *child) died(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	c.end()
	_ = c.cmd.Wait()
	return fmt.Errorf("its client ended (%w): %s", err, lastLines(c.errs.String(), 5))
}

// stop ends the client and waits for it.
func (c *child) stop() error {
	defer c.end()
	_ = c.in.Close()
	slow := time.AfterFunc(10*time.Second, c.end)
	defer slow.Stop()
	err := c.cmd.Wait()
	if c.cmd.ProcessState != nil && !c.cmd.ProcessState.Success() {
		return fmt.Errorf("end its client: %w: %s", err, lastLines(c.errs.String(), 5))
	}
	return nil
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(len(lines)-n, 0):], " | ")
}
