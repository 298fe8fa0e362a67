package client

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"getwork/assign"
	"getwork/schema/schematest/memnet"
)

// script answers call after call: with a status, 0 for a lost connection, -1 for one that can't be made.
type script struct {
	statuses []int
	after    string // Retry-After of what is not a 2xx
	kind     string // of the problem; empty: busy
	at       []time.Duration
	keys     []string
	began    time.Time
}

func (s *script) RoundTrip(r *http.Request) (*http.Response, error) {
	s.at = append(s.at, time.Since(s.began))
	s.keys = append(s.keys, r.Header.Get("Idempotency-Key"))
	status := s.statuses[min(len(s.at), len(s.statuses))-1]
	switch status {
	case 0:
		return nil, io.ErrUnexpectedEOF
	case -1:
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
	}
	h := http.Header{"Content-Type": {"application/problem+json"}}
	if status/100 != 2 && s.after != "" {
		h.Set("Retry-After", s.after)
	}
	return &http.Response{StatusCode: status, Header: h, Request: r, Body: io.NopCloser(strings.NewReader(`{"id":"1","type":"/problems/` + cmp.Or(s.kind, "busy") + `","status":429,"detail":"not now"}`))}, nil
}

// Only safe calls are repeated, and calls that the server has not begun, and no more often than Tries.
func TestRepeats(t *testing.T) {
	t.Parallel()
	read := func(ctx context.Context, c *Client) error { _, err := c.Pipeline(ctx); return err }
	click := func(ctx context.Context, c *Client) error { _, err := c.GetWork(ctx, "t", Click{Count: 1}); return err }
	bare := func(ctx context.Context, c *Client) error {
		_, err := c.GetWork(ctx, "t", Click{Count: 1}, Key(""))
		return err
	}
	change := func(ctx context.Context, c *Client) error { _, err := c.UpdateTask(ctx, "t", struct{}{}); return err }
	let := func(ctx context.Context, c *Client) error {
		_, err := c.Dispose(ctx, 1, assign.Disposition{})
		return err
	}
	await := func(ctx context.Context, c *Client) error { _, err := c.AwaitRequest(ctx, 1); return err }
	for name, c := range map[string]struct {
		call     func(context.Context, *Client) error
		statuses []int
		tries    int
		want     int // how often it is sent
		failed   bool
	}{
		"a read while the database is away":    {read, []int{503, 503, 200}, 0, 3, false},
		"a read that stays away":               {read, []int{503}, 0, 4, true},
		"a read that is sent once":             {read, []int{503}, 1, 1, true},
		"a read without end":                   {read, slices.Concat(slices.Repeat([]int{0}, 20), []int{200}), -1, 21, false},
		"a wait through a restart":             {await, slices.Concat(slices.Repeat([]int{502}, 20), []int{200}), 0, 21, false},
		"a wait that the caller limits":        {await, []int{502}, 2, 2, true},
		"a wait for what is not there":         {await, []int{404}, 0, 1, true},
		"a read that is refused":               {read, []int{404}, 0, 1, true},
		"a click whose answer is lost":         {click, []int{0, 200}, 0, 2, false},
		"a click without a key":                {bare, []int{0, 200}, 0, 1, true},
		"a click without a key, refused":       {bare, []int{503, 200}, 0, 1, true},
		"a click without a key, not begun":     {bare, []int{429, 200}, 0, 2, false},
		"a change whose answer is lost":        {change, []int{0, 200}, 0, 1, true},
		"a change that could not be sent":      {change, []int{-1, 200}, 0, 2, false},
		"a disposition whose answer is lost":   {let, []int{0, 200}, 0, 2, false},
		"a disposition that the server failed": {let, []int{500, 200}, 0, 2, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &script{statuses: c.statuses, began: time.Now()}
				err := c.call(t.Context(), &Client{URL: "http://node", HTTP: &http.Client{Transport: s}, Retry: Retry{Tries: c.tries}})
				if len(s.at) != c.want || (err != nil) != c.failed {
					t.Errorf("sent %d times, %v; want %d times", len(s.at), err, c.want)
				}
				if len(slices.Compact(slices.Clone(s.keys))) != 1 {
					t.Errorf("keys %q: each try needs the same", s.keys)
				}
			})
		})
	}
}

// Pauses double up to the longest, and are never shorter than Retry-After.
func TestPauses(t *testing.T) {
	t.Parallel()
	gaps := func(t *testing.T, after string, retry Retry) (between []time.Duration) {
		s := &script{statuses: []int{503}, after: after, began: time.Now()}
		_, _ = (&Client{URL: "http://node", HTTP: &http.Client{Transport: s}, Retry: retry}).Pipeline(t.Context())
		for i := 1; i < len(s.at); i++ {
			between = append(between, s.at[i]-s.at[i-1])
		}
		return between
	}
	synctest.Test(t, func(t *testing.T) {
		for i, gap := range gaps(t, "", Retry{Tries: 12, MaxPause: 4 * time.Second}) {
			if middle := min(firstPause<<min(i, 10), 4*time.Second); gap < middle/2 || gap > middle*3/2 {
				t.Errorf("pause %d is %v, want %v and up to a half more or less", i+1, gap, middle)
			}
		}
		for _, seconds := range []bool{true, false} {
			after := "7"
			if !seconds {
				after = time.Now().Add(7500 * time.Millisecond).UTC().Format(http.TimeFormat)
			}
			if got := gaps(t, after, Retry{Tries: 2})[0]; got < 6*time.Second || got > 8*time.Second {
				t.Errorf("pause %v, want what Retry-After: %s says", got, after)
			}
		}
	})
}

// A call that its user makes too often is not repeated after an hour of silence: the caller gets the answer.
func TestLongLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for after, want := range map[string]int{"60": 4, "2400": 1} {
			s := &script{statuses: []int{429}, kind: "rate-limited", after: after, began: time.Now()}
			_, err := (&Client{URL: "http://node", HTTP: &http.Client{Transport: s}}).CreateToken(t.Context(), NewToken{})
			if len(s.at) != want || KindOf(err) != assign.RateLimited {
				t.Errorf("Retry-After: %s: sent %d times, want %d; %v", after, len(s.at), want, err)
			}
		}
	})
}

// Retry-After is read however large it is: a number that is not understood would make the client come back at once.
func TestRetryAfter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for text, want := range map[string]time.Duration{
			"": 0, "soon": 0, "-1": 0, "7": 7 * time.Second, "65536": 65536 * time.Second, "86401": 24 * time.Hour,
			"18446744073709551615": 24 * time.Hour, "99999999999999999999": 24 * time.Hour,
			time.Now().Add(time.Hour).UTC().Format(http.TimeFormat):            time.Hour,
			time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat):           0,
			time.Now().Add(300 * 24 * time.Hour).UTC().Format(http.TimeFormat): 24 * time.Hour,
		} {
			a := Answer{Header: http.Header{"Retry-After": {text}}}
			if got := a.RetryAfter(); got != want {
				t.Errorf("%q: %v, want %v", text, got, want)
			}
		}
	})
}

// A call ends with its context, and returns the context's cause.
func TestContextEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		why := errors.New("closing time")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, why)
		defer cancel()
		s := &script{statuses: []int{503}, began: time.Now()}
		tried := 0
		c := &Client{URL: "http://node", HTTP: &http.Client{Transport: s}, Retry: Retry{Tries: -1, Tried: func(error, bool) { tried++ }}}
		_, err := c.Pipeline(ctx)
		if !errors.Is(err, why) || !strings.Contains(err.Error(), "not now") || StatusOf(err) != 503 || time.Since(s.began) != time.Minute {
			t.Errorf("after %v: %v", time.Since(s.began), err)
		}
		if tried != len(s.at) {
			t.Errorf("told of %d tries of %d", tried, len(s.at))
		}
		if _, err := c.Pipeline(ctx); err != why { //nolint:errorlint // nothing else was to be said
			t.Errorf("with a context that has ended: %v", err)
		}
	})
}

// Over HTTP/2 all calls share a connection. One that went silent is replaced, so that a repeated call comes through.
func TestSilentConnection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		line := memnet.First{Network: memnet.New()}
		server := &http.Server{Protocols: new(http.Protocols), Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{"id":"1"}`))
		})}
		server.Protocols.SetUnencryptedHTTP2(true)
		served := make(chan error, 1)
		go func() { served <- server.Serve(line.Network) }()
		transport := usualTransport().(*http.Transport).Clone()
		transport.Protocols = server.Protocols
		transport.DialContext = line.Dial
		c := &Client{URL: "http://node", HTTP: &http.Client{Transport: transport}, Retry: Retry{Tries: 2}}
		for range 2 {
			if _, err := c.Extend(t.Context(), 1); err != nil || line.Dialled.Load() == 0 {
				t.Errorf("connection %d: %v", line.Dialled.Load(), err)
			}
			line.Silent.Store(true)
		}
		transport.CloseIdleConnections()
		_ = server.Close()
		<-served
	})
}
