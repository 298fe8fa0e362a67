package audit

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/netip"

	"getwork/assign"
)

// Actor is the user or program that acts, and how it was authenticated.
type Actor struct {
	User       string     // empty: nobody who is known, such as at a log-in that was refused
	By         string     // dev, session, token, jwt, proxy, or direct: by a program that writes to the database itself
	Credential string     // with what, as work_requested has it
	Address    netip.Addr // from where; the zero Addr: unknown
}

type actorKey struct{}

// WithActor returns a context of what actor does.
func WithActor(ctx context.Context, actor Actor) context.Context {
	return context.WithValue(ctx, actorKey{}, actor)
}

// ActorOf returns the actor of a context; the zero Actor if it has none.
func ActorOf(ctx context.Context) Actor {
	actor, _ := ctx.Value(actorKey{}).(Actor)
	return actor
}

// The outcomes of an act.
const (
	Done    = "done"
	Refused = "refused"
)

// Act is what somebody did.
type Act struct {
	Act     string // what: task.update, work.release, token.create …
	Actor   string // who, if the context names nobody: somebody who has just logged in
	Object  string // to what: a task's name, a user's, a token's id; empty: nothing that has a name
	Outcome string // Done, which is the default, or Refused
	Detail  any    // what else is to be known of it, as encoding/json encodes it: an object, without secrets; nil: nothing
	Then    []Act  // acts that this one caused, such as the end of somebody's session; each gets a row after it, with the same actor
}

// Texts are the SHA-256 of what managers let the database execute. The versions of the task keep the texts themselves.
type Texts struct {
	Query   *string `json:"query_sha256"`
	Recheck *string `json:"recheck_sha256"`
}

// TextsOf returns those of a task.
func TextsOf(s *assign.Settings) Texts { return Texts{sumOf(s.Query), sumOf(s.Recheck)} }

func sumOf(q assign.Query) *string {
	if q == "" {
		return nil
	}
	sum := sha256.Sum256([]byte(q))
	text := hex.EncodeToString(sum[:])
	return &text
}
