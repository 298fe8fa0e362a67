package pg

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"getwork/assign"
)

// condition is a state in which the database answers but can't serve. told is what callers read, and advice for the operator. A
// condition passes by itself when its cause does.
type condition struct{ told, advice string }

// fullQueue is the SQLSTATE of a commit that finds no room in the notification queue. Other errors share it.
const fullQueue = "54000"

var conditions = map[string]condition{
	"53100": {"the database has no room left on its disk; earlier answers are kept, try again in a moment",
		"the disk of the database is full: free some space or enlarge it; no answered request is lost, and getwork continues by itself"},
	"53200": {"the database is out of memory; nothing is lost, try again in a moment",
		"the database is out of memory: check work_mem, max_connections, and the other programs on that machine"},
	"53300": {"the database accepts no more connections; nothing is lost, try again in a moment",
		"max_connections of the database is reached: raise it, run fewer nodes, or use a pooler (--pooled); each node opens up to 16 plus --max-runs"},
	fullQueue: {"the database's queue of notifications is full; nothing is lost, try again in a moment",
		"the queue of notifications (NOTIFY) of the database server is full: a session that has executed LISTEN stays in a transaction; end that session, its pid is in the server's log"},
	"55P03": {"another session holds a lock in the database; nothing is lost, try again in a moment",
		"a wait for a lock timed out: a transaction that does not end holds a table or row; pg_stat_activity and pg_locks show which"},
	"25006": {"the database can't be written to just now; nothing is lost, try again in a moment",
		standbyAdvice},
	// The message is "cannot set transaction read-write mode during recovery", and it comes from begin. No other statement of
	// getwork asks for a feature that a server may lack.
	"0A000": {"the database can't be written to just now; nothing is lost, try again in a moment", standbyAdvice},
}

const standbyAdvice = "the database is read only: it is a standby, or default_transaction_read_only is on; name the primary in --database-url"

func conditionOf(err error) (t condition, found bool) {
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) {
		return t, false
	}
	if pgErr.Routine == "RevalidateCachedQuery" {
		return t, false // "cached plan must not change result type" is 0A000 as well
	}
	if pgErr.Code == fullQueue && pgErr.Routine != "PreCommit_Notify" {
		return t, false
	}
	t, found = conditions[pgErr.Code]
	return t, found
}

// Advice is what the operator of the database can do about an error, if PostgreSQL said in it that it can't serve now.
func Advice(err error) (advice string, found bool) {
	c, found := conditionOf(err)
	return c.advice, found
}

// ProblemOf returns what clients see of an error. For anything but a refusal it says only whether trying again may help. The
// cause belongs in the log; logged: the caller is to write it there.
func ProblemOf(err error) (p assign.Problem, logged bool) {
	var r *assign.Refusal
	switch {
	case errors.As(err, &r):
		return r.Problem(), false
	case Unheld(err):
		return assign.Refuse(assign.Invalid, "the database can't store this text: it contains U+0000, or a character that the database's encoding lacks because it is not UTF-8; leave it out").Problem(), false
	case Away(err):
		detail := "the database does not answer; nothing is lost, try again in a moment"
		if t, found := conditionOf(err); found {
			detail = t.told
		}
		return assign.Refuse(assign.Unavailable, "%s", detail).Problem(), true
	}
	return assign.Refuse(assign.Internal, "the cause is in the server's log; trying again may help").Problem(), true
}

// Unheld reports whether PostgreSQL rejected text that the database can't store: U+0000, or a character that its encoding
// lacks. The sender can correct the text; trying again does not help.
func Unheld(err error) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && (pgErr.Code == "22P05" || pgErr.Code == "22021")
}

// Away reports whether an error means that the database can't be reached or can't serve now.
func Away(err error) bool {
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) {
		_, passing := conditionOf(err)
		return passing || !QueryFault(pgErr)
	}
	var connect *pgconn.ConnectError
	var network net.Error
	return errors.As(err, &connect) || errors.As(err, &network) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, ErrURL) || pgconn.SafeToRetry(err)
}

// QueryFault reports whether an error is the query's own, its time-out included, so that repeating the query would not help.
// Lost connections (08), exhausted resources (53), a server that stops (57P), and conflicts with other transactions or with
// recovery (40) are not the query's fault. Neither is an error that ends the session: a server that was frozen ends the
// sessions that were idle in a transaction meanwhile, and reports that to each session's next statement.
func QueryFault(pgErr *pgconn.PgError) bool {
	switch {
	case pgErr.SeverityUnlocalized == "FATAL", pgErr.SeverityUnlocalized == "PANIC":
		return false
	case pgErr.Code == "53400": // temp_file_limit: the query would exceed it again
		return true
	case strings.HasPrefix(pgErr.Code, "08"), strings.HasPrefix(pgErr.Code, "53"), strings.HasPrefix(pgErr.Code, "57P"), strings.HasPrefix(pgErr.Code, "40"):
		return false
	}
	return true
}

// briefly is how many bytes of a text of PostgreSQL's are kept.
const briefly = 2000

// Brief cuts off a text of PostgreSQL's that is too long to be stored and shown. PostgreSQL quotes the value that an error is about,
// however large it is, and the text is stored with the run, the task, and each request that waits.
func Brief(text string) string {
	if len(text) <= briefly {
		return text
	}
	return strings.ToValidUTF8(text[:briefly], "") + "…"
}

// logEvery is the least time between two log lines about the same passing condition. Without it each of a thousand calls a
// second would write one while the database is away.
const logEvery = 10 * time.Second

// LogLimiter limits how often the same kind of fault is logged. The zero value is ready for use.
type LogLimiter struct {
	mu    sync.Mutex
	kinds map[string]*limited // by SQLSTATE, empty if the database did not answer; Again puts the name of the repeated work before it
}

type limited struct {
	last time.Time
	more int // errors of this kind since
}

// About returns what to log about an error: the error itself, how many like it were withheld since the last one, and advice
// for the operator. It returns nil, and nothing is to be logged, if such an error was logged a moment ago. Errors other than those
// of [Away] are never withheld.
func (c *LogLimiter) About(err error) (facts []any) {
	if !Away(err) {
		return []any{"error", err}
	}
	return c.limited(codeOf(err), err)
}

// Again is About for work that is repeated whatever its result. It limits every error, also one that does not pass, such as a
// revoked right.
func (c *LogLimiter) Again(what string, err error) (facts []any) {
	if Away(err) {
		return c.About(err)
	}
	return c.limited(what+" "+codeOf(err), err)
}

// Withheld returns the largest number of errors of one kind that were withheld since the last one that was logged.
func (c *LogLimiter) Withheld() (most int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range c.kinds {
		most = max(most, k.more)
	}
	return most
}

func codeOf(err error) string {
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) {
		return pgErr.Code
	}
	return ""
}

func (c *LogLimiter) limited(kind string, err error) (facts []any) {
	facts = []any{"error", err}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.kinds == nil {
		c.kinds = map[string]*limited{}
	}
	k := c.kinds[kind]
	if k == nil {
		k = &limited{}
		c.kinds[kind] = k
	}
	if time.Since(k.last) < logEvery {
		k.more++
		return nil
	}
	if k.more > 0 {
		facts = append(facts, "more_since", k.more)
	}
	if t, found := conditions[codeOf(err)]; found {
		facts = append(facts, "advice", t.advice)
	}
	k.last, k.more = time.Now(), 0
	return facts
}
