package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"getwork/assign"
)

// WorkRequest is one request for work, from the click to its answer.
type WorkRequest struct {
	Client  *Client
	Task    string
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
	firstHold = 2 * time.Second // after this long the user is told that the request waits
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
	}
	return w.read(ctx, what)
}

// click is the body of a request for work.
func (w *WorkRequest) click() any {
	return struct {
		Count  int             `json:"count"`
		Linger assign.Duration `json:"linger,omitzero"`
		Lease  assign.Duration `json:"lease,omitzero"`
	}{w.Count, w.linger, w.lease}
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
