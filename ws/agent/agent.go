// Package agent takes work as a person does, and hands each item to a [Handler]: crawlers, converters and pollers are
// agents. It needs only the address of a node, and a token or a name.
//
// An [Agent] has at most one waiting request, for as many items as it has free places. The request lingers, so an idle
// agent costs next to nothing: the node pushes the answer over the WebSocket. The agent asks, too, once a minute in case the
// WebSocket is dead, and as often as the node says while it is down; or twice in a lease if that is more often.
//
// While its last items took under a second each, and have a lease of ten seconds or more, it takes the next ones early, at most as
// many as it has places. What it has not begun after two seconds, or when it ends, goes back, and uses no attempt; if it is killed, that
// runs out, and uses one. Results and renewals are sent together: what has come by the time the last call is back. While such work is
// there whenever it asks, it closes the WebSocket.
//
// The agent works only under a lease that is still its own: it renews the lease after each third of it, and before the work starts if
// a third may be over by then. If the lease is lost, or no node answered until its end, the agent cancels the handler's context and reports nothing about
// the work, because another holder may have it.
//
// The handler's error decides what becomes of the item:
//
//	nil                        complete
//	ErrLater                   back after the task's back-off, or the time of its ReturnCode; uses no attempt
//	ReturnAfter(d, note)       back after d; uses no attempt
//	As(disposition)            what the disposition says
//	any other error            failed, with the error's text; it comes back while it has attempts left
//
// A task may require a code of whatever is not failed. As names it, and [Agent.ReturnCode] is that of returns without one, also of what
// the agent gives back by itself. What the node refuses because of its code or its result has failed, with the reason.
//
// An item may be worked on more than once: by an agent that has not noticed the loss of its lease, and by the present
// holder. A handler whose effects must happen once has to make them idempotent.
package agent

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"getwork/assign"
)

// Handler works on items. Work is called from several goroutines at once, each with its own item. ctx is cancelled
// when the work is no longer the agent's ([ErrLeaseLost]) or the agent must end ([ErrDraining]); context.Cause returns
// which. A handler that goes on after that delays the end of Run. A panic counts as an error.
type Handler interface {
	Work(ctx context.Context, w assign.Work) error
}

// HandlerFunc is a function that is a Handler.
type HandlerFunc func(ctx context.Context, w assign.Work) error

// Work calls f.
func (f HandlerFunc) Work(ctx context.Context, w assign.Work) error { return f(ctx, w) }

// Agent takes work of one task, or of Any of several. URL, Task or Any, and Handler are required, and an identity: Token, or User if the node runs
// with --auth dev.
type Agent struct {
	URL   string // of any node, such as http://127.0.0.1:8080
	Token string // an API token, which identifies the caller
	User  string // the caller's name, under dev identity
	Role  string // the caller's role, under dev identity; agent if empty

	// Groups are the user's groups, under dev identity.
	Groups []string
	// Instance distinguishes the agents of one user. If it is empty, each Run has a random one and is a holder of its
	// own. With a fixed instance, an agent resumes the work that it still holds after a restart. Two agents must not run
	// at the same time under one user and instance: each would work on the other's items.
	Instance string

	Task string
	// Any are the names of several tasks, instead of Task: each request is answered by the first of them that can, by their priority and
	// in turns.
	Any []string

	// ReturnCode is the code of returns that name none, in tasks that have it.
	ReturnCode string

	Handler     Handler
	Concurrency int           // how many items it works on at the same time; 1 if 0
	Lease       time.Duration // requested if the task has none, from 1 s to 24 h; 30 s if 0
	Linger      time.Duration // how long one request waits for work, up to 24 h; if 0, chosen to suit the task
	Drain       time.Duration // how long handlers may go on after ctx has ended; 30 s if 0; not at all if negative
	Once        bool          // Run returns when nothing is left, instead of waiting for more
	Log         *slog.Logger  // nil logs nothing

	// Transport makes the connections, such as with certificates of one's own. Run uses a copy. Nil means
	// [http.DefaultTransport], or one with the usual proxies if that was replaced by something else. Over HTTP/2 it sends a
	// ping after 2 s of silence and waits 3 s for the answer, unless its HTTP2 says otherwise.
	Transport *http.Transport
}

// withDefaults returns the agent with defaults filled in, or an error that says what is wrong with it.
func (a Agent) withDefaults() (Agent, error) {
	u, err := url.Parse(a.URL)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "":
		return a, errors.New("an agent's URL is the address of a node, such as http://127.0.0.1:8080")
	case (a.Task == "") == (len(a.Any) == 0):
		return a, errors.New("an agent needs the name of a task, or of Any of several")
	case a.Handler == nil:
		return a, errors.New("an agent needs a handler")
	case a.Token == "" && a.User == "":
		return a, errors.New("an agent needs a token, or a user under dev identity")
	case a.Concurrency < 0 || a.Lease < 0 || a.Linger < 0:
		return a, errors.New("an agent's concurrency, lease and linger are not negative")
	}
	if len(a.Any) > 0 {
		a.Task = strings.Join(a.Any, ", ")
	}
	a.URL = strings.TrimRight(u.String(), "/")
	a.Role = cmp.Or(a.Role, "agent")
	a.Instance = cmp.Or(a.Instance, strings.ToLower(rand.Text()))
	a.Concurrency = cmp.Or(a.Concurrency, 1)
	a.Lease = cmp.Or(a.Lease, 30*time.Second)
	a.Drain = max(cmp.Or(a.Drain, 30*time.Second), 0)
	if a.Transport == nil {
		a.Transport = usualTransport()
	}
	if a.Log == nil {
		a.Log = slog.New(slog.DiscardHandler)
	}
	return a, assign.CheckInstance(a.Instance)
}
