package serve

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"getwork/cmd/internal/command"
	"getwork/schema/schematest"
	"getwork/schema/schematest/timeout"
)

// running is a node in this process.
type running struct {
	url     string // where it listens
	metrics string // where its figures are; empty without --metrics-listen
	log     *lines

	database string
	end      context.CancelFunc // shuts it down; the test does not wait until it has ended
}

// lines is what a node says.
type lines struct {
	mu  sync.Mutex
	all []string
}

func (l *lines) add(t *testing.T, text string) {
	t.Log(text)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, text)
}

// said counts the node's lines with a text.
func (r running) said(text string) (n int) {
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	for _, line := range r.log.all {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

// runs starts a node with these settings on a free port, on a database of its own unless they name one, and ends it with the test.
func runs(t *testing.T, c Command) running {
	t.Helper()
	if c.DatabaseURL == "" {
		c.DatabaseURL = schematest.Plain(t)
	}
	c.Tokens = Tokens{TokenMax: 8784 * time.Hour, TokenOwnerWithin: 720 * time.Hour}
	c.Schema, c.LogFormat = "getwork", "text"
	c.Listen = "127.0.0.1:0"
	c.MaxRuns, c.MaxCalls, c.MaxSockets, c.DrainTimeout, c.Retention = 2, 100, 100, 5*time.Second, time.Hour
	out, said := io.Pipe()
	ctx, end := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		err := c.Run(ctx, &command.Streams{Out: said, Errs: said})
		_ = said.CloseWithError(errors.Join(err, io.EOF))
		ended <- err
	}()
	r := running{database: c.DatabaseURL, log: &lines{}, end: end}
	text := bufio.NewScanner(out)
	for r.url == "" && text.Scan() {
		r.log.add(t, text.Text())
		if at, ok := strings.CutPrefix(text.Text(), "listening on "); ok {
			r.url = at
		}
		if at, ok := strings.CutPrefix(text.Text(), "metrics on "); ok {
			r.metrics = at
		}
	}
	if r.url == "" {
		end()
		t.Fatalf("the node did not start: %v", <-ended)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		for text.Scan() {
			r.log.add(t, text.Text())
		}
	}()
	t.Cleanup(func() {
		end()
		if err := <-ended; err != nil {
			t.Errorf("the node ended: %v", err)
		}
		<-read
	})
	return r
}

var plain = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: timeout.Scale(10 * time.Second)}

// answer makes a call.
func answer(t *testing.T, c *http.Client, method, url string, header ...string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
		if header[i] == "Host" {
			r.Host = header[i+1]
		}
	}
	response, err := c.Do(r)
	if err != nil {
		t.Fatalf("%s %s: %v", method, url, err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, url, err)
	}
	return response, string(body)
}

// A node that is not under --auth dev answers to its public URL alone, shows its figures to nobody but at their own address,
// and knows nobody without a credential.
func TestServeByToken(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	n := runs(t, Command{Identity: Identity{Auth: "token", PublicURL: "http://127.0.0.1:0", MetricsListen: "127.0.0.1:0"}, Queries: Queries{TrustQueryWriters: true}})
	for _, tt := range []struct {
		url    string
		header []string
		status int
	}{
		{n.url + "/", nil, 200},
		{n.url + "/", []string{"Host", "localhost"}, 421},
		{n.url + "/readyz", []string{"Host", "10.0.0.11"}, 200},
		{n.url + "/metrics", nil, 404},
		{n.metrics, nil, 200},
		{n.metrics, []string{"Host", "10.0.0.11"}, 200},
		{strings.TrimSuffix(n.metrics, "metrics") + "api/v1/me", nil, 404},
		{n.url + "/api/v1/me", nil, 401},
		{n.url + "/api/v1/me", []string{"X-Getwork-User", "mia"}, 401},
	} {
		r, body := answer(t, plain, "GET", tt.url, tt.header...)
		if r.StatusCode != tt.status && !(tt.status == 401 && r.StatusCode == 400 && tt.header != nil) { // 400: believed by another mode alone
			t.Errorf("%s with %v: %d %s, want %d", tt.url, tt.header, r.StatusCode, body, tt.status)
		}
		if r.StatusCode == 401 && r.Header.Get("WWW-Authenticate") != `Bearer realm="getwork"` {
			t.Errorf("challenge %q", r.Header.Get("WWW-Authenticate"))
		}
	}
}
