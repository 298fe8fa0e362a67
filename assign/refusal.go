package assign

import (
	"errors"
	"fmt"
	"time"
)

// Kind says what is wrong with a call. Unless noted below, it is the last part of the problem's type.
type Kind string

// The kinds of refusal. [Refusal.Problem] says what title and status each has; the page at the address of its type says what it
// means, and what callers can do.
const (
	Invalid       Kind = "invalid"
	NotFound      Kind = "not-found"
	NotPending    Kind = "not-pending"
	AlreadyClosed Kind = "already-closed"
	LeaseLost     Kind = "lease-lost"
	NotAvailable  Kind = "not-available"
	NoSlot        Kind = "no-slot"
	Exists        Kind = "exists"
	InUse         Kind = "in-use"
	RunUnderWay   Kind = "run-under-way"
	StaleVersion  Kind = "stale-version"
	ChangedSet    Kind = "changed-set" // shown as stale-version, with status 409: a release whose set has changed
	QueryRefused  Kind = "query-refused"
	KeyReused     Kind = "idempotency-mismatch"
	Busy          Kind = "busy"
	Unavailable   Kind = "unavailable"

	Unauthenticated  Kind = "unauthenticated"
	NameTaken        Kind = "name-taken"
	LogInFailed      Kind = "log-in-failed"
	RateLimited      Kind = "rate-limited"
	Forbidden        Kind = "forbidden"
	MethodNotAllowed Kind = "method-not-allowed"
	TooLarge         Kind = "too-large"
	Internal         Kind = "internal"
	NoVersion        Kind = "no-version"  // shown as stale-version, with status 428
	Misdirected      Kind = "misdirected" // shown as invalid, with status 421
	TooSlow          Kind = "too-slow"    // shown as invalid, with status 408
)

// Field is one field of a call that is wrong, and why.
type Field struct {
	Field  string `json:"field"`
	Detail string `json:"detail"`
}

// Refusal is an error that the caller can correct; Detail says how. Every other error is the system's own.
type Refusal struct {
	Kind   Kind
	Detail string  // what is wrong, and what to do, in English; callers read it
	Fields []Field // the fields that are wrong; nil: it is not about fields

	LogIn string        // of kind Unauthenticated: the path to log in at, if it is not the usual one
	After time.Duration // of kind RateLimited: when to try again
}

func (r *Refusal) Error() string { return string(r.Kind) + ": " + r.Detail }

// Refuse returns a refusal.
func Refuse(kind Kind, format string, args ...any) *Refusal {
	return &Refusal{Kind: kind, Detail: fmt.Sprintf(format, args...)}
}

// RefuseField returns a refusal of one field, of kind [Invalid].
func RefuseField(field, format string, args ...any) *Refusal {
	r := Refuse(Invalid, format, args...)
	r.Fields = []Field{{Field: field, Detail: r.Detail}}
	return r
}

// IsRefusal reports whether err is a refusal of that kind.
func IsRefusal(err error, kind Kind) bool {
	var r *Refusal
	return errors.As(err, &r) && r.Kind == kind
}
