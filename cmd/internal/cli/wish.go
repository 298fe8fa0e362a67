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

// Wish is one request for work on its way.
type Wish struct {
	Client  *Client
	Task    string
	Count   int
	linger  assign.Duration
	lease   assign.Duration // 0: as the task says
	Key     string          // of the click: repeating it after a lost connection does not ask twice
	Until   time.Time
	waiting func(*assign.Request) // called once, if it has to wait; may be nil
	Other   func() *Client        // of a node that can be reached, when this one can't; nil, or gives nil: it is asked again

	Asked   bool            // the server may know of the click
	Request assign.Request  // as it was last read; its id is 0 until then
	raw     json.RawMessage // the same as it came
	after   time.Duration   // the server asks to be asked again in that time
}

const (
	firstHold = 2 * time.Second // then whoever waits is told so
	maxHold   = 120 * time.Second
)

// Fulfil asks until the request is complete or the time is over. The server holds its answers; whoever
// answers earlier with nothing new is asked again when it says.
func (w *Wish) Fulfil(ctx context.Context) error {
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

// turn goes to another node when this one can't be reached: request and key hold on every one.
func (w *Wish) turn(err error) {
	if lost := new(unreached); w.Other == nil || !errors.As(err, &lost) {
		return
	}
	if c := w.Other(); c != nil {
		w.Client.HTTP.CloseIdleConnections()
		w.Client = c
	}
}

// hold is for how long to let the server wait: whole seconds.
func (w *Wish) hold() time.Duration {
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

// ask sends the click until it has been answered once, and then asks how it stands.
func (w *Wish) ask(ctx context.Context, hold time.Duration) error {
	what := Call{Method: "GET", Path: "/requests/" + strconv.FormatInt(w.Request.ID, 10), hold: hold}
	if w.Request.ID == 0 {
		what = Call{Method: "POST", Path: "/tasks/" + url.PathEscape(w.Task) + "/requests", hold: hold,
			Body: w.click(), header: map[string]string{"Idempotency-Key": w.Key}}
	}
	return w.read(ctx, what)
}

// click is the body that asks for work.
func (w *Wish) click() any {
	return struct {
		Count  int             `json:"count"`
		Linger assign.Duration `json:"linger,omitzero"`
		Lease  assign.Duration `json:"lease,omitzero"`
	}{w.Count, w.linger, w.lease}
}

func (w *Wish) read(ctx context.Context, what Call) error {
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

// abandonWithin bounds what is still done for somebody who pressed Ctrl-C.
const abandonWithin = 5 * time.Second

// abandon cancels the request, unless it is to be kept. If it has ended meanwhile, it is left as it ended, and
// what it got is shown. The click may have been interrupted before its answer: sent again under its key, it tells
// which request that is.
func (w *Wish) abandon(ctx context.Context, keep bool) error {
	ctx, cancel := context.WithTimeout(ctx, abandonWithin)
	defer cancel()
	if err := w.ask(ctx, 0); err != nil {
		return fmt.Errorf("interrupted; whether the request still waits is not known: %w\nsee `getwork pipeline`", err)
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
