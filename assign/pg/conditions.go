package pg

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"getwork/assign"
)

// condition is a state of the database in which it answers, but can't serve: what callers are told, and what its operator
// can do. Each passes by itself when its cause does.
type condition struct{ told, advice string }

// fullQueue is the code of a commit that finds no room in the queue of notifications, and of much else.
const fullQueue = "54000"

var conditions = map[string]condition{
	"53100": {"the database has no room left on its disk; what was answered before is kept, try again in a moment",
		"the disk of the database is full: make room, or make it larger; nothing that was answered is lost, and getwork goes on by itself"},
	"53200": {"the database is out of memory; nothing is lost, try again in a moment",
		"the database is out of memory: look at work_mem, max_connections, and what else runs on that machine"},
	"53300": {"the database takes no more connections; nothing is lost, try again in a moment",
		"max_connections of the database is reached: raise it, run fewer nodes, or put a pooler between (--pooled); each node takes up to 15 and --max-runs"},
	fullQueue: {"the database's queue of notifications is full; nothing is lost, try again in a moment",
		"the queue of notifications (NOTIFY) of the database server is full: a session that has executed LISTEN stays in a transaction; the server's log has its pid, end it"},
	"55P03": {"something in the database is locked by somebody else; nothing is lost, try again in a moment",
		"a lock was waited for in vain: somebody holds a table or row in a transaction that does not end; pg_stat_activity and pg_locks show who"},
	"25006": {"the database takes nothing in just now; nothing is lost, try again in a moment",
		standbyAdvice},
	// "cannot set transaction read-write mode during recovery", from begin; none of getwork's own statements asks for
	// anything else that a server may not have.
	"0A000": {"the database takes nothing in just now; nothing is lost, try again in a moment", standbyAdvice},
}

const standbyAdvice = "the database is read only: it is a standby, or default_transaction_read_only is on; name the primary in --database-url"

func conditionOf(err error) (t condition, found bool) {
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) {
		return t, false
	}
	if pgErr.Routine == "RevalidateCachedQuery" {
		return t, false // 0A000, too: "cached plan must not change result type"
	}
	if pgErr.Code == fullQueue && pgErr.Routine != "PreCommit_Notify" {
		return t, false
	}
	t, found = conditions[pgErr.Code]
	return t, found
}

// ProblemOf is what the outside is shown of an error. Of what is not a refusal it tells nothing but whether trying
// again may help; the cause belongs in the log, and logged says so.
func ProblemOf(err error) (p assign.Problem, logged bool) {
	var r *assign.Refusal
	switch {
	case errors.As(err, &r):
		return r.Problem(), false
	case Unheld(err):
		return assign.Refuse(assign.Invalid, "the database can't hold this text: U+0000, or a character that its encoding, which is not UTF-8, does not have; leave it out").Problem(), false
	case Away(err):
		detail := "the database does not answer; nothing is lost, try again in a moment"
		if t, found := conditionOf(err); found {
			detail = t.told
		}
		return assign.Refuse(assign.Unavailable, "%s", detail).Problem(), true
	}
	return assign.Refuse(assign.Internal, "the cause is in the server's log; trying again may help").Problem(), true
}

// Unheld reports whether PostgreSQL was given text that the database can't hold: a character that its encoding does not
// have, or U+0000. Whoever sent it can mend that; trying again does not help.
func Unheld(err error) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && (pgErr.Code == "22P05" || pgErr.Code == "22021")
}

// Away reports whether an error says that the database can't be reached or can't serve now.
func Away(err error) bool {
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) {
		_, passing := conditionOf(err)
		return passing || !QueryFault(pgErr)
	}
	var connect *pgconn.ConnectError
	var network net.Error
	return errors.As(err, &connect) || errors.As(err, &network) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || pgconn.SafeToRetry(err)
}

// QueryFault reports whether an error is the query's own, its time-out included: repeating it would not help.
// Lost connections (08), exhausted resources (53), a server that stops (57P) and conflicts with others or with
// recovery (40) are the world's, and so is whatever ends the session: a server that stood still ends those that were
// idle in a transaction meanwhile, and says so to the statement that comes next.
func QueryFault(pgErr *pgconn.PgError) bool {
	switch {
	case pgErr.SeverityUnlocalized == "FATAL", pgErr.SeverityUnlocalized == "PANIC":
		return false
	case pgErr.Code == "53400": // temp_file_limit: it needs more than it may have, and will again
		return true
	case strings.HasPrefix(pgErr.Code, "08"), strings.HasPrefix(pgErr.Code, "53"), strings.HasPrefix(pgErr.Code, "57P"), strings.HasPrefix(pgErr.Code, "40"):
		return false
	}
	return true
}
