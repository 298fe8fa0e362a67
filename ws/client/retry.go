package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"getwork/assign"
)

// Retry says how often and with which pauses calls are repeated.
type Retry struct {
	Tries    int           // how often a call is sent at most; 4 if 0; until its context ends if negative
	MaxPause time.Duration // between two tries; 10 s if 0. A longer Retry-After still applies

	// Foreign makes answers of something other than getwork count as temporary: a proxy whose backend is away for a moment may
	// answer anything. Without it a wrong URL is found out at once.
	Foreign bool

	// Tried, if not nil, is called after each try with its error, which is nil if the call succeeded. temporary means that
	// another try may succeed.
	Tried func(err error, temporary bool)
}

const (
	usualTries   = 4
	firstPause   = 250 * time.Millisecond
	longestPause = 10 * time.Second
	longestLimit = time.Minute // that a call waits for when its user has done something too often; the caller learns of a longer one
)

// do makes a call, and repeats it.
func (c *Client) do(ctx context.Context, what call, v any, options []Option) error {
	what.header = http.Header{}
	what.safe = what.safe || what.method == http.MethodGet
	for _, add := range options {
		add(&what)
	}
	wait, longest, left := firstPause, cmp.Or(what.pause, cmp.Or(c.Retry.MaxPause, longestPause)), cmp.Or(c.Retry.Tries, usualTries)
	var last error
	for {
		err := c.try(ctx, &what, v)
		if err != nil && ctx.Err() != nil {
			return ended(ctx, last)
		}
		if c.Retry.Tried != nil {
			c.Retry.Tried(err, c.temporary(err))
		}
		if left--; left == 0 || !c.temporary(err) || !what.repeatable(err) {
			return err
		}
		last = err
		after := retryAfterOf(err)
		if what.heed > 0 {
			after = min(after, what.heed)
		}
		if KindOf(err) == assign.RateLimited && after > longestLimit {
			return err
		}
		pause := time.NewTimer(max(jitter(min(wait, longest)), after))
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return ended(ctx, last)
		}
		wait = min(2*wait, longest)
	}
}

// ended returns the error of a call whose context ended.
func ended(ctx context.Context, last error) error {
	if last == nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("%w, and the last answer was: %w", context.Cause(ctx), last)
}

// repeatable reports whether a call that failed so may be repeated: it is safe, or the server has not begun it.
func (what *call) repeatable(err error) bool {
	var none *NoAnswer
	begun := StatusOf(err) != http.StatusTooManyRequests && (!errors.As(err, &none) || !none.Unsent)
	return what.safe || !begun
}

// temporary reports whether another try may succeed: no answer came, or one that blames the server.
func (c *Client) temporary(err error) bool {
	var none *NoAnswer
	if errors.As(err, &none) {
		return true
	}
	status := StatusOf(err)
	if foreign := new(Foreign); c.Retry.Foreign && (errors.As(err, &foreign) || status != 0 && KindOf(err) == "") {
		return true
	}
	return status >= 500 || status == http.StatusTooManyRequests || status == http.StatusRequestTimeout
}

// jitter returns d ± 50 %, so that programs that lost the same node do not come back at the same time.
func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d+1) }
