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
	Mismatch         Kind = "mismatch"    // shown as invalid, with status 422: a disposition against its task's codes
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
	After time.Duration // of kind RateLimited: how long to wait
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

// Problem is a refusal as clients receive it, in the form of RFC 9457: over REST, and in an error event of the live channel.
type Problem struct {
	Type   string  `json:"type"`
	Title  string  `json:"title"`
	Status int     `json:"status"`
	Detail string  `json:"detail,omitempty"`
	Errors []Field `json:"errors,omitempty"`
	LogIn  string  `json:"log_in,omitempty"` // where the caller can log in, as a path of this server

	After time.Duration `json:"-"` // how long the caller should wait before they try again; 0: the server decides
}

// problems has the type, title and status of each kind of refusal.
var problems = map[Kind]Problem{
	Invalid:          {Type: "/problems/invalid", Title: "The request is not valid", Status: 400},
	Unauthenticated:  {Type: "/problems/unauthenticated", Title: "Say who you are", Status: 401},
	LogInFailed:      {Type: "/problems/log-in-failed", Title: "The log-in failed", Status: 400},
	NameTaken:        {Type: "/problems/name-taken", Title: "The name belongs to somebody else", Status: 403},
	Forbidden:        {Type: "/problems/forbidden", Title: "Not allowed", Status: 403},
	NotFound:         {Type: "/problems/not-found", Title: "Not found", Status: 404},
	MethodNotAllowed: {Type: "/problems/method-not-allowed", Title: "This method is not allowed here", Status: 405},
	NotPending:       {Type: "/problems/not-pending", Title: "The request is not pending any more", Status: 409},
	AlreadyClosed:    {Type: "/problems/already-closed", Title: "The work is closed", Status: 409},
	LeaseLost:        {Type: "/problems/lease-lost", Title: "The lease is lost", Status: 409},
	NotAvailable:     {Type: "/problems/not-available", Title: "The item can't be handed out now", Status: 409},
	NoSlot:           {Type: "/problems/no-slot", Title: "All places are taken", Status: 409},
	Exists:           {Type: "/problems/exists", Title: "It exists already", Status: 409},
	InUse:            {Type: "/problems/in-use", Title: "It is in use", Status: 409},
	RunUnderWay:      {Type: "/problems/run-under-way", Title: "A run is under way", Status: 409},
	StaleVersion:     {Type: "/problems/stale-version", Title: "It was changed meanwhile", Status: 412},
	ChangedSet:       {Type: "/problems/stale-version", Title: "What it is about was changed meanwhile", Status: 409},
	NoVersion:        {Type: "/problems/stale-version", Title: "Say which version you change", Status: 428},
	TooLarge:         {Type: "/problems/too-large", Title: "Too large", Status: 413},
	Misdirected:      {Type: "/problems/invalid", Title: "This host name is not served here", Status: 421},
	TooSlow:          {Type: "/problems/invalid", Title: "The body came too slowly", Status: 408},
	Mismatch:         {Type: "/problems/invalid", Title: "The request is not valid", Status: 422},
	QueryRefused:     {Type: "/problems/query-refused", Title: "The query is refused", Status: 422},
	KeyReused:        {Type: "/problems/idempotency-mismatch", Title: "The Idempotency-Key was used with another body", Status: 422},
	Busy:             {Type: "/problems/busy", Title: "Too many requests", Status: 429},
	RateLimited:      {Type: "/problems/rate-limited", Title: "Too many attempts", Status: 429},
	Internal:         {Type: "/problems/internal", Title: "Something went wrong here", Status: 500},
	Unavailable:      {Type: "/problems/unavailable", Title: "Not available now", Status: 503},
}

// TitleOf returns the title of a kind's problems.
func TitleOf(k Kind) string { return problems[k].Title }

// Problem returns the refusal as clients see it.
func (r *Refusal) Problem() Problem {
	p := problems[r.Kind]
	p.Detail, p.Errors, p.LogIn, p.After = r.Detail, r.Fields, r.LogIn, r.After
	return p
}
