package cli

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"getwork/assign"
	"getwork/cmd/internal/command"
	"getwork/web"
)

// GetCmd asks for work and waits for it.
type GetCmd struct {
	Tasks   []string       `arg:"" optional:"" name:"task" help:"The task to get work from; getwork task list lists the tasks. If you name several, the first that can answers, and with none it is the next item of any of your tasks."`
	Count   int            `help:"How many items you want; the task limits how many you may ask for." default:"1" placeholder:"N"`
	Wait    *time.Duration `help:"How long to wait for an answer; the default is 60s, or as long as the request lingers." placeholder:"60s"`
	Linger  time.Duration  `help:"If there is nothing, wait this long for something to come, at most 24h." default:"0s"`
	Lease   time.Duration  `help:"For agents: hold the work this long, from 1s to 24h, if the task sets no lease." default:"0s"`
	Supply  int            `help:"Go on until Ctrl-C, and ask for more whenever you hold fewer than this." default:"0" placeholder:"N"`
	Keep    bool           `help:"On Ctrl-C, leave the request waiting instead of cancelling it."`
	holding `embed:""`
}

// Help returns the text that --help adds.
func (GetCmd) Help() string {
	return `Prints what you got and exits with 0, or with 1 if there was nothing or no answer in time.

With --linger a request that finds nothing goes on waiting, and is served as soon as an item is pushed, falls due, is let go of or matches again. You can have one waiting request per task, and one for several: if you ask again, you wait for that one. A request that is not answered within --wait stays: the work that it gets appears in your pipeline.`
}

// Run gets work.
func (c GetCmd) Run(ctx context.Context, s *command.Streams) error {
	switch {
	case slices.Contains(c.Tasks, ""):
		return command.Usage("the name of a task is empty; `getwork task list` lists the tasks, and without a name you get the next item of any")
	case c.Supply < 0:
		return command.Usage("--supply must be 1 or more, not %d", c.Supply)
	case c.Count < 1:
		return command.Usage("--count must be 1 or more, not %d", c.Count)
	case c.Wait != nil && *c.Wait < 0:
		return command.Usage("--wait must be 0s or more, not %s", assign.Duration(*c.Wait))
	case c.Linger < 0 || c.Linger > time.Duration(assign.MaxLinger):
		return command.Usage("--linger must be from 0s to %s, not %s", assign.MaxLinger, assign.Duration(c.Linger))
	case c.Lease != 0 && (c.Lease < time.Second || c.Lease > 24*time.Hour):
		return command.Usage("--lease must be from 1s to 24h, not %s", assign.Duration(c.Lease))
	}
	role := web.Worker
	if c.Lease != 0 {
		role = web.Agent
	}
	client, err := c.connect(role)
	if err != nil {
		return err
	}
	if c.Supply > 0 {
		return c.supply(ctx, s, client)
	}
	return c.get(ctx, s, client)
}

// supply gets work whenever fewer items than that are held, until ctx ends.
func (c GetCmd) supply(ctx context.Context, s *command.Streams, client *Client) error {
	c.Count, c.Linger = 1, max(c.Linger, 10*time.Minute)
	again := time.NewTimer(0)
	defer again.Stop()
	said := "" // why there is nothing, once
	for {
		select {
		case <-ctx.Done():
			return ErrInterrupted
		case <-again.C:
		}
		var p assign.Pipeline
		if _, err := client.Do(ctx, Call{Method: "GET", Path: "/pipeline"}, &p); err != nil {
			return err
		}
		pause := 2 * time.Second
		if held := slices.DeleteFunc(p.Work, func(w assign.Work) bool { return len(c.Tasks) > 0 && !slices.Contains(c.Tasks, w.Task) }); len(held) < c.Supply {
			switch err := c.get(ctx, s, client); {
			case ctx.Err() != nil || errors.As(err, new(*refused)):
				return err
			case err == nil:
				pause, said = 0, ""
			case err.Error() != said:
				said = err.Error()
				_, _ = fmt.Fprintln(s.Errs, err)
			}
		}
		again.Reset(pause)
	}
}

// get gets work once.
func (c GetCmd) get(ctx context.Context, s *command.Streams, client *Client) error {
	w := &WorkRequest{Client: client, Count: c.Count, Key: rand.Text(), Until: time.Now().Add(c.wait()),
		linger: assign.Duration(c.Linger), lease: assign.Duration(c.Lease)}
	switch len(c.Tasks) {
	case 0:
		w.tasks = []string{"*"}
	case 1:
		w.Task = c.Tasks[0]
	default:
		w.tasks = c.Tasks
	}
	shown := func() {} // ends the line that counts
	if !c.JSON {
		w.waiting = func(r *assign.Request) {
			_, _ = fmt.Fprintln(s.Errs, waitingText(r, c.Count, c.Keep))
			shown = command.NewProgress(s).Count("Waiting")
		}
	}
	err := w.Await(ctx)
	shown()
	if errors.Is(err, ErrInterrupted) {
		err = w.cancel(context.WithoutCancel(ctx), c.Keep)
	}
	if err != nil {
		return err
	}
	if c.JSON {
		err = printJSON(s.Out, w.raw)
	} else if len(w.Request.Work) > 0 {
		err = printWork(s.Out, w.Request.Work)
	}
	if w.Request.Stale && w.Request.RankedAt != nil && !c.JSON {
		_, _ = fmt.Fprintf(s.Errs, "These were ranked at %s; a newer ranking is under way.\n", moment(w.Request.RankedAt))
	}
	return errors.Join(err, c.outcome(s, &w.Request))
}

// wait returns how long to wait for an answer. A lingering request is answered when its time is over, and wait adds a
// moment for that.
func (c GetCmd) wait() time.Duration {
	if c.Wait != nil {
		return *c.Wait
	}
	return max(60*time.Second, c.Linger+5*time.Second)
}

// outcome returns nil if something was assigned, and otherwise an error that says why not.
func (c GetCmd) outcome(s *command.Streams, r *assign.Request) error {
	switch r.State {
	case assign.Assigned:
		return nil
	case assign.Partial:
		if !c.JSON {
			_, _ = fmt.Fprintln(s.Errs, partialText(r))
		}
		return nil
	case assign.None:
		return errors.New(NoneText(r))
	case assign.Failed:
		if r.Task == "*" {
			return fmt.Errorf("the query of one of your tasks failed, and the others have nothing: %s", r.WhyFailed())
		}
		return fmt.Errorf("the query of task %s failed: %s\na manager can change it with `getwork task update %s`", r.Task, r.WhyFailed(), r.Task)
	case assign.Cancelled:
		return fmt.Errorf("request %d was cancelled", r.ID)
	}
	return fmt.Errorf("no answer yet: request %d still waits\n`%s` waits for it again; the work that it gets appears in `getwork pipeline`", r.ID, strings.Join(append([]string{"getwork get"}, c.Tasks...), " "))
}

// partialText says why the request got less than it asked for.
func partialText(r *assign.Request) string {
	got := fmt.Sprintf("you got %d of %d.", r.Assigned, r.Wanted)
	switch {
	case r.Reason != nil && *r.Reason == assign.AtLimit:
		return fmt.Sprintf("You hold as much as you may, of task %s or over all tasks: %s", r.Task, got)
	case r.Reason != nil && *r.Reason == assign.Rules:
		return fmt.Sprintf("There was no more that you may have: %s", got)
	}
	return "There was no more: " + got
}

// NoneText says why the request got nothing.
func NoneText(r *assign.Request) string {
	reason := ""
	if r.Reason != nil {
		reason = string(*r.Reason)
	}
	switch {
	case reason == "away":
		return "you are away, and get no work; `getwork back` ends that"
	case r.Task == "*":
		switch reason {
		case "no_match":
			return "nothing to do: your tasks have no item now"
		case "all_held":
			return "nothing to do: every item of your tasks is held already, by you or by others, or put off"
		case "rules":
			return "nothing to do: your tasks have some items, but none that you may have"
		case "at_limit":
			return "you hold as much as you may; let go of some with `getwork done`"
		case "paused":
			return "your tasks are paused; a manager resumes them with `getwork task resume`"
		}
		return fmt.Sprintf("nothing to do: your tasks have nothing to hand out (%s)", reason)
	}
	switch reason {
	case "no_match":
		return fmt.Sprintf("nothing to do: no item matches task %s now", r.Task)
	case "all_held":
		return fmt.Sprintf("nothing to do: every item that matches task %s is held already, by you or by others, or put off", r.Task)
	case "rules":
		return fmt.Sprintf("nothing to do: some items match task %s, but none that you may have", r.Task)
	case "at_limit":
		return fmt.Sprintf("you hold as much as you may, of task %s or over all tasks; let go of some with `getwork done`", r.Task)
	case "paused":
		return fmt.Sprintf("task %s is paused; a manager resumes it with `getwork task resume %s`", r.Task, r.Task)
	}
	return fmt.Sprintf("nothing to do: task %s has nothing to hand out (%s)", r.Task, reason)
}

// waitingText is printed once, for a user who has to wait.
func waitingText(r *assign.Request, count int, keep bool) string {
	text := fmt.Sprintf("Request %d waits", r.ID)
	if r.Wanted != count {
		text = fmt.Sprintf("Request %d, for %d, was waiting already; this command waits for it", r.ID, r.Wanted)
	}
	if r.Asking != nil {
		text += ", now for task " + *r.Asking
	}
	if r.Position != nil {
		text += fmt.Sprintf(", at place %d in line", *r.Position)
	}
	if r.LingerUntil != nil {
		text += ", until at most " + moment(r.LingerUntil)
	}
	if r.EtaSeconds != nil {
		text += fmt.Sprintf(", for about %.0f s", max(*r.EtaSeconds, 1))
	}
	if keep {
		return text + ". Ctrl-C stops waiting here; the request stays."
	}
	return text + ". Ctrl-C cancels it."
}

// WorkRequest is one request for work, from the click to its answer.
type WorkRequest struct {
	Client  *Client
	Task    string
	tasks   []string // instead of Task: any of these; "*": of all
	Count   int
	linger  assign.Duration
	lease   assign.Duration // 0: the task's lease
	Key     string          // the click's idempotency key: a click that is repeated after a lost connection does not ask twice
	Until   time.Time
	waiting func(*assign.Request) // called once, if the request has to wait; may be nil
	Other   func() *Client        // returns a client of a node that can be reached, if this one can't; if it is or returns nil, the same node is asked again

	Asked   bool            // the server may know of the click
	Request assign.Request  // the request as it was last read; its id is 0 until then
	raw     json.RawMessage // the same, undecoded
	after   time.Duration   // when to ask again, as the server says
}

const (
	firstHold = 2 * time.Second // after this long the user reads that the request waits
	maxHold   = 120 * time.Second
)

// Await asks until the request has ended or the time is over. The server holds its answers; if a server answers
// earlier with nothing new, Await asks again when that server says.
func (w *WorkRequest) Await(ctx context.Context) error {
	for {
		began := time.Now()
		hold := w.hold()
		err := w.ask(ctx, hold)
		var pause time.Duration
		switch again, temporary := retryIn(err, w.Asked); {
		case ctx.Err() != nil:
			return ErrInterrupted
		case err != nil && !temporary:
			return err
		case err != nil:
			pause = again
			w.turn(err)
		case w.Request.State != assign.Pending:
			return nil
		case time.Since(began) < hold-hold/10:
			pause = max(w.after, time.Second)
		}
		left := time.Until(w.Until)
		if left <= 0 {
			return err
		}
		if err == nil && w.waiting != nil {
			w.waiting(&w.Request)
			w.waiting = nil
		}
		select {
		case <-ctx.Done():
			return ErrInterrupted
		case <-time.After(min(pause, left)):
		}
	}
}

// turn goes to another node when this one can't be reached: request and key are valid on every node.
func (w *WorkRequest) turn(err error) {
	if lost := new(unreached); w.Other == nil || !errors.As(err, &lost) {
		return
	}
	if c := w.Other(); c != nil {
		w.Client.HTTP.CloseIdleConnections()
		w.Client = c
	}
}

// hold returns how long the server may hold its answer, in whole seconds.
func (w *WorkRequest) hold() time.Duration {
	left := time.Until(w.Until)
	if left <= 0 {
		return 0
	}
	longest := maxHold
	if w.Request.ID == 0 {
		longest = firstHold
	}
	return min(longest, max(time.Second, left.Truncate(time.Second)))
}

// ask sends the click until it has been answered once, and then reads the request.
func (w *WorkRequest) ask(ctx context.Context, hold time.Duration) error {
	what := Call{Method: "GET", Path: "/requests/" + strconv.FormatInt(w.Request.ID, 10), hold: hold}
	if w.Request.ID == 0 {
		what = Call{Method: "POST", Path: "/tasks/" + url.PathEscape(w.Task) + "/requests", hold: hold,
			Body: w.click(), header: map[string]string{"Idempotency-Key": w.Key}}
		if w.tasks != nil {
			what.Path = "/requests"
		}
	}
	return w.read(ctx, what)
}

// click is the body of a request for work.
func (w *WorkRequest) click() any {
	return struct {
		Tasks  []string        `json:"tasks,omitzero"`
		Count  int             `json:"count"`
		Linger assign.Duration `json:"linger,omitzero"`
		Lease  assign.Duration `json:"lease,omitzero"`
	}{w.tasks, w.Count, w.linger, w.lease}
}

func (w *WorkRequest) read(ctx context.Context, what Call) error {
	var r assign.Request
	got, err := w.Client.Do(ctx, what, &r)
	if lost := new(unreached); !errors.As(err, &lost) || !lost.unsent {
		w.Asked = true
	}
	if err != nil {
		return err
	}
	w.Request, w.raw, w.after = r, got.body, got.RetryAfter()
	return nil
}

// cancelWithin bounds the clean-up after Ctrl-C.
const cancelWithin = 5 * time.Second

// cancel cancels the request, unless it is to be kept. A request that has ended meanwhile is left as it is, and what
// it got is shown. If Ctrl-C came before the click's answer, cancel sends the click again under its key to learn the
// request's id.
func (w *WorkRequest) cancel(ctx context.Context, keep bool) error {
	ctx, cancel := context.WithTimeout(ctx, cancelWithin)
	defer cancel()
	if err := w.ask(ctx, 0); err != nil {
		return fmt.Errorf("interrupted; the request may still wait: %w\nsee `getwork pipeline`", err)
	}
	if keep || w.Request.State != assign.Pending {
		return nil
	}
	err := w.read(ctx, Call{Method: "DELETE", Path: "/requests/" + strconv.FormatInt(w.Request.ID, 10)})
	if IsRefused(err, http.StatusConflict) {
		err = w.ask(ctx, 0)
	}
	if err != nil {
		return fmt.Errorf("cancel request %d: %w\nsee `getwork pipeline`", w.Request.ID, err)
	}
	return nil
}
