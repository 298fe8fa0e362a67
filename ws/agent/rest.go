package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"
)

// call is one request of the REST API.
type call struct {
	method string
	path   string        // below /api/v1, escaped
	body   any           // sent as JSON; nil: none
	key    string        // Idempotency-Key; empty: none
	within time.Duration // how long one try may take; 0: 30 s
	pause  time.Duration // the longest between two tries; 0: 10 s
	sent   *time.Time    // gets when the last try was sent; nil: don't
}

const (
	answerWithin = 30 * time.Second
	longestPause = 10 * time.Second
	firstPause   = 250 * time.Millisecond
	maxReply     = 256 << 20 // bounds what a wrong URL can make the agent read
)

// node is the server, whichever of the nodes answers.
type node struct {
	base   string
	header http.Header
	http   *http.Client
	log    *slog.Logger

	mu   sync.Mutex
	away bool
}

func newNode(a *Agent) *node {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = a.Concurrency + 1
	return &node{base: a.URL + "/api/v1", header: a.header(), log: a.Log, http: &http.Client{
		Transport: transport,
		// A POST that follows a redirect may arrive as a GET. The API has none, so one is a wrong URL.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// insist makes a call, and repeats it while no node answers or none can serve, until ctx ends. after is when the node
// wants to be asked again, 0 if it does not say. An error is a [Refused], or says how ctx ended.
func (n *node) insist(ctx context.Context, c call, v any) (after time.Duration, err error) {
	wait, longest := firstPause, or(c.pause, longestPause)
	for {
		after, err = n.try(ctx, c, v)
		if err != nil && ctx.Err() != nil {
			return 0, fmt.Errorf("%w, and the last answer was: %w", context.Cause(ctx), err)
		}
		n.reached(err)
		if !temporary(err) {
			return after, err
		}
		var r *Refused
		if errors.As(err, &r) {
			after = r.RetryAfter
		}
		pause := time.NewTimer(max(jitter(min(wait, longest)), after))
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return 0, fmt.Errorf("%w, and the last answer was: %w", context.Cause(ctx), err)
		}
		wait = min(2*wait, longest)
	}
}

// jitter is d ± 50 %, so that agents that lost the same node do not come back in step.
func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d+1) }

// reached says once that the server is away, and once that it is back.
func (n *node) reached(err error) {
	gone := temporary(err)
	n.mu.Lock()
	changed := gone != n.away
	n.away = gone
	n.mu.Unlock()
	switch {
	case changed && gone:
		n.log.Warn("the server is away; trying again until it is back", "url", n.base, "error", err)
	case changed:
		n.log.Info("the server is back", "url", n.base)
	}
}

func (n *node) isAway() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.away
}

// try makes a call once.
func (n *node) try(ctx context.Context, c call, v any) (after time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, or(c.within, answerWithin))
	defer cancel()
	req, err := n.request(ctx, c)
	if err != nil {
		return 0, err
	}
	if c.sent != nil {
		*c.sent = time.Now()
	}
	resp, err := n.http.Do(req)
	if err != nil {
		var wrapped *url.Error // names the method and the address once more
		if errors.As(err, &wrapped) {
			err = wrapped.Err
		}
		return 0, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxReply))
	if err != nil {
		return 0, err
	}
	seconds, _ := strconv.ParseUint(resp.Header.Get("Retry-After"), 10, 16)
	after = time.Duration(seconds) * time.Second
	if resp.StatusCode/100 != 2 {
		return after, refusal(resp, body, after)
	}
	if err := json.Unmarshal(body, v); err != nil {
		return after, fmt.Errorf("%s: %w (%w)", req.URL, errForeign, err)
	}
	return after, nil
}

func (n *node) request(ctx context.Context, c call) (*http.Request, error) {
	var body io.Reader
	if c.body != nil {
		b, err := json.Marshal(c.body)
		if err != nil {
			return nil, fmt.Errorf("encode the call: %w", err)
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, c.method, n.base+c.path, body)
	if err != nil {
		return nil, fmt.Errorf("make the call: %w", err)
	}
	req.Header = n.header.Clone()
	req.Header.Set("Accept", "application/json")
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.key != "" {
		req.Header.Set("Idempotency-Key", c.key)
	}
	return req, nil
}
