package assign

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/jackc/pgx/v5/pgconn"
)

// Kind says what is wrong with a call; it is the last part of a problem's type in the contract.
type Kind string

// The kinds of refusal.
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
	Forbidden        Kind = "forbidden"
	MethodNotAllowed Kind = "method-not-allowed"
	TooLarge         Kind = "too-large"
	Internal         Kind = "internal"
	NoVersion        Kind = "no-version"  // shown as stale-version, with status 428
	Misdirected      Kind = "misdirected" // shown as invalid, with status 421
	TooSlow          Kind = "too-slow"    // shown as invalid, with status 408
)

// Field is one thing that is wrong with what was sent.
type Field struct {
	Field  string `json:"field"`
	Detail string `json:"detail"`
}

// Refusal is an error that the caller can do something about; Detail says what. Every other error is the
// system's own.
type Refusal struct {
	Kind   Kind
	Detail string
	Fields []Field
}

func (r *Refusal) Error() string { return string(r.Kind) + ": " + r.Detail }

// Refuse makes a refusal.
func Refuse(kind Kind, format string, args ...any) *Refusal {
	return &Refusal{Kind: kind, Detail: fmt.Sprintf(format, args...)}
}

// refuseField makes a refusal of one field.
func refuseField(field, format string, args ...any) *Refusal {
	r := Refuse(Invalid, format, args...)
	r.Fields = []Field{{Field: field, Detail: r.Detail}}
	return r
}

// IsRefusal reports whether err is a refusal of that kind.
func IsRefusal(err error, kind Kind) bool {
	var r *Refusal
	return errors.As(err, &r) && r.Kind == kind
}

// Problem is a refusal as programs read it (RFC 9457): over REST, and in an error event of the live channel.
type Problem struct {
	Type   string  `json:"type"`
	Title  string  `json:"title"`
	Status int     `json:"status"`
	Detail string  `json:"detail,omitempty"`
	Errors []Field `json:"errors,omitempty"`
}

// problems is the one table of what each kind looks like outside.
var problems = map[Kind]Problem{
	Invalid:          {"/problems/invalid", "The request is not valid", 400, "", nil},
	Unauthenticated:  {"/problems/unauthenticated", "Say who you are", 401, "", nil},
	Forbidden:        {"/problems/forbidden", "Not allowed", 403, "", nil},
	NotFound:         {"/problems/not-found", "Not found", 404, "", nil},
	MethodNotAllowed: {"/problems/method-not-allowed", "This method is not allowed here", 405, "", nil},
	NotPending:       {"/problems/not-pending", "The request is not pending any more", 409, "", nil},
	AlreadyClosed:    {"/problems/already-closed", "The work is closed", 409, "", nil},
	LeaseLost:        {"/problems/lease-lost", "The lease is lost", 409, "", nil},
	NotAvailable:     {"/problems/not-available", "The item can't be handed out now", 409, "", nil},
	NoSlot:           {"/problems/no-slot", "All places are taken", 409, "", nil},
	Exists:           {"/problems/exists", "It exists already", 409, "", nil},
	InUse:            {"/problems/in-use", "It is in use", 409, "", nil},
	RunUnderWay:      {"/problems/run-under-way", "A run is under way", 409, "", nil},
	StaleVersion:     {"/problems/stale-version", "It was changed meanwhile", 412, "", nil},
	ChangedSet:       {"/problems/stale-version", "What it is about was changed meanwhile", 409, "", nil},
	NoVersion:        {"/problems/stale-version", "Say which version you change", 428, "", nil},
	TooLarge:         {"/problems/too-large", "Too large", 413, "", nil},
	Misdirected:      {"/problems/invalid", "This host name is not served here", 421, "", nil},
	TooSlow:          {"/problems/invalid", "The body came too slowly", 408, "", nil},
	QueryRefused:     {"/problems/query-refused", "PostgreSQL refuses the query", 422, "", nil},
	KeyReused:        {"/problems/idempotency-mismatch", "The Idempotency-Key was used with another body", 422, "", nil},
	Busy:             {"/problems/busy", "Too many requests", 429, "", nil},
	Internal:         {"/problems/internal", "Something went wrong here", 500, "", nil},
	Unavailable:      {"/problems/unavailable", "Not available now", 503, "", nil},
}

// TitleOf is what problems of a kind are called.
func TitleOf(k Kind) string { return problems[k].Title }

// ProblemOf is what the outside is shown of an error. Of what is not a refusal it tells nothing but whether trying
// again may help; the cause belongs in the log, and logged says so.
func ProblemOf(err error) (p Problem, logged bool) {
	var r *Refusal
	switch {
	case errors.As(err, &r):
		p = problems[r.Kind]
		p.Detail, p.Errors = r.Detail, r.Fields
		return p, false
	case unheld(err):
		p = problems[Invalid]
		p.Detail = "the database can't hold this text: U+0000, or a character that its encoding, which is not UTF-8, does not have; leave it out"
		return p, false
	case away(err):
		p = problems[Unavailable]
		p.Detail = "the database does not answer; nothing is lost, try again in a moment"
		if t, found := troubleOf(err); found {
			p.Detail = t.told
		}
	default:
		p = problems[Internal]
		p.Detail = "the cause is in the server's log; trying again may help"
	}
	return p, true
}

// unheld reports whether PostgreSQL was given text that the database can't hold: a character that its encoding does not
// have, or U+0000. Whoever sent it can mend that; trying again does not help.
func unheld(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && (pg.Code == "22P05" || pg.Code == "22021")
}

// away reports whether an error says that the database can't be reached or can't serve now.
func away(err error) bool {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		_, passing := troubleOf(err)
		return passing || !queryFault(pg)
	}
	var connect *pgconn.ConnectError
	var network net.Error
	return errors.As(err, &connect) || errors.As(err, &network) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || pgconn.SafeToRetry(err)
}
