package agent

import (
	"cmp"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	"getwork/ws/client"
)

// server makes the agent's calls, and knows whether any node answers.
type server struct {
	*client.Client
	transport *http.Transport

	mu   sync.Mutex
	away bool
}

// newServer returns a server that calls as the agent, and repeats calls until their context ends.
func newServer(a *Agent) *server {
	transport := a.Transport.Clone()
	transport.MaxIdleConnsPerHost = a.Concurrency + 1
	pingHTTP2(transport)
	s := &server{transport: transport}
	s.Client = &client.Client{URL: a.URL, Token: a.Token, User: a.User, Role: a.Role, Groups: a.Groups, Instance: a.Instance,
		HTTP: &http.Client{Transport: transport},
		Retry: client.Retry{Tries: -1, Foreign: true, Tried: func(err error, temporary bool) {
			if !s.set(temporary) {
				return
			}
			if temporary {
				a.Log.Warn("the server is away; trying again until it is back", "url", a.URL, "error", err)
			} else {
				a.Log.Info("the server is back", "url", a.URL)
			}
		}}}
	return s
}

// usualTransport returns the transport of an agent that names none.
func usualTransport() *http.Transport {
	if t, ok := http.DefaultTransport.(*http.Transport); ok {
		return t
	}
	// Somebody replaced it, for example to trace calls. Run must be able to close its connections, so that one can't be used.
	return &http.Transport{Proxy: http.ProxyFromEnvironment, TLSHandshakeTimeout: 10 * time.Second, IdleConnTimeout: 90 * time.Second, ForceAttemptHTTP2: true}
}

// pingHTTP2 makes a transport drop an HTTP/2 connection within 5 s after it went silent. All calls share it, so otherwise each
// repetition would go into it until the lease is over.
func pingHTTP2(t *http.Transport) {
	var c http.HTTP2Config
	if t.HTTP2 != nil {
		c = *t.HTTP2
	}
	c.SendPingTimeout = cmp.Or(c.SendPingTimeout, 2*time.Second)
	c.PingTimeout = cmp.Or(c.PingTimeout, 3*time.Second)
	t.HTTP2 = &c
}

// atTheStart returns a client that gives up when something other than getwork answers: at the start the URL may be wrong.
func (s *server) atTheStart() *client.Client {
	c := *s.Client
	c.Retry.Foreign = false
	return &c
}

// set records whether the server is away, and reports whether that changed, so that each change is logged once.
func (s *server) set(away bool) (changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	changed = away != s.away
	s.away = away
	return changed
}

func (s *server) isAway() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.away
}

// reasonOf returns what a node said in its refusal.
func reasonOf(err error) string {
	var p *client.Problem
	if !errors.As(err, &p) {
		return err.Error()
	}
	why := p.Detail
	for i, f := range p.Errors {
		if i > 0 { // the detail has the first
			why += "; " + f.Field + ": " + f.Detail
		}
	}
	return why
}

// refusedWith reports whether a node answered with one of these statuses. A proxy's 404 does not count: the work is still ours.
func refusedWith(err error, statuses ...int) bool {
	return client.KindOf(err) != "" && slices.Contains(statuses, client.StatusOf(err))
}
