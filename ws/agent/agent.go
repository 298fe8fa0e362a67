// Package agent takes work as a person does, and hands each item to a [Handler]: crawlers, converters and pollers are
// agents. It needs nothing but the address of a node, and a token or a name.
//
// An [Agent] has at most one request waiting, for as many items as it has free places. The request lingers, so that an
// idle agent costs nothing: the node pushes the answer over the WebSocket, and while that is away the agent asks as
// often as the node says, or twice in a lease if that is shorter. Nothing is worked on without a lease that is still
// its own: the lease is renewed before the work starts, and again after each third of it. When it is lost, or may be,
// since no node answered until its end, the handler's context is cancelled, and nothing is said of the work any more:
// somebody else has it.
//
// How a handler ends decides what becomes of the item:
//
//	nil                        complete
//	ErrLater                   back after the task's back-off; no attempt is burnt
//	ReturnAfter(d, note)       back after d; no attempt is burnt
//	any other error            failed, with the error's text; it comes back while the task grants attempts
//
// An item may be worked on more than once: by an agent that lost its lease without noticing yet, and by the one that
// has it now. A handler whose effects must happen once makes them depend on something that happens once.
package agent

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"net/url"
	"strings"
	"time"

	"getwork/assign"
)

// Handler works on items. Work is called from several goroutines at once, each with an item of its own. ctx is
// cancelled when the work is no longer the agent's ([ErrLeaseLost]) or the agent must end ([ErrDraining]);
// context.Cause tells which. A handler that goes on after that delays the end of Run. A panic counts as an error.
type Handler interface {
	Work(ctx context.Context, w assign.Work) error
}

// HandlerFunc is a function as a Handler.
type HandlerFunc func(ctx context.Context, w assign.Work) error

// Work calls f.
func (f HandlerFunc) Work(ctx context.Context, w assign.Work) error { return f(ctx, w) }

// Agent takes work of one task. URL, Task and Handler are needed, and who it is: Token, or User where the node runs
// with --auth dev.
type Agent struct {
	URL   string // of any node, such as http://127.0.0.1:8080
	Token string // an API token, which says who asks
	User  string // who asks, under dev identity
	Role  string // as what, under dev identity; empty: agent

	// Groups that the user is in, under dev identity.
	Groups []string
	// Instance tells agents of one user apart. Empty: a random one, so that each Run is a holder of its own. One that
	// is set is taken up again after a restart, with the work that it still holds; of two agents that run at the same
	// time under one user and instance, each would work on what the other has.
	Instance string

	Task        string
	Handler     Handler
	Concurrency int           // how many items it works on at the same time; 0: 1
	Lease       time.Duration // asked for where the task has none, from 1 s to 24 h; 0: 30 s
	Linger      time.Duration // how long one request waits for work, up to 24 h; 0: as long as is good for the task
	Drain       time.Duration // how long handlers may go on after ctx has ended; 0: 30 s; negative: not at all
	Once        bool          // Run returns when nothing is left, instead of waiting for more
	Log         *slog.Logger  // nil: nothing is logged
}

// withDefaults is the agent with everything set, or what is wrong with it.
func (a Agent) withDefaults() (Agent, error) {
	u, err := url.Parse(a.URL)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "":
		return a, errors.New("an agent's URL is the address of a node, such as http://127.0.0.1:8080")
	case a.Task == "":
		return a, errors.New("an agent needs the name of a task")
	case a.Handler == nil:
		return a, errors.New("an agent needs a handler")
	case a.Token == "" && a.User == "":
		return a, errors.New("an agent needs a token, or a user under dev identity")
	case a.Concurrency < 0 || a.Lease < 0 || a.Linger < 0:
		return a, errors.New("an agent's concurrency, lease and linger are not negative")
	}
	a.URL = strings.TrimRight(u.String(), "/")
	a.Role = cmp.Or(a.Role, "agent")
	a.Instance = cmp.Or(a.Instance, strings.ToLower(rand.Text()))
	a.Concurrency = cmp.Or(a.Concurrency, 1)
	a.Lease = cmp.Or(a.Lease, 30*time.Second)
	a.Drain = max(cmp.Or(a.Drain, 30*time.Second), 0)
	if a.Log == nil {
		a.Log = slog.New(slog.DiscardHandler)
	}
	return a, assign.CheckInstance(a.Instance)
}
