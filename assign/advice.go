package assign

import (
	"errors"

	"github.com/jackc/pgx/v5/pgconn"
)

// trouble is a state of the database in which it answers, but can't serve: what callers are told, and what its operator
// can do. Each passes by itself when its cause does.
type trouble struct{ told, advice string }

var troubles = map[string]trouble{
	"53100": {"the database has no room left on its disk; what was answered before is kept, try again in a moment",
		"the disk of the database is full: make room, or make it larger; nothing that was answered is lost, and getwork goes on by itself"},
	"53200": {"the database is out of memory; nothing is lost, try again in a moment",
		"the database is out of memory: look at work_mem, max_connections, and what else runs on that machine"},
	"53300": {"the database takes no more connections; nothing is lost, try again in a moment",
		"max_connections of the database is reached: raise it, run fewer nodes, or put a pooler between (--pooled); each node takes up to 15 and --max-runs"},
	"55P03": {"something in the database is locked by somebody else; nothing is lost, try again in a moment",
		"a lock was waited for in vain: somebody holds a table or row in a transaction that does not end; pg_stat_activity and pg_locks show who"},
	"25006": {"the database takes nothing in just now; nothing is lost, try again in a moment",
		standbyAdvice},
	// "cannot set transaction read-write mode during recovery", from begin; none of getwork's own statements asks for
	// anything else that a server may not have.
	"0A000": {"the database takes nothing in just now; nothing is lost, try again in a moment", standbyAdvice},
}

const standbyAdvice = "the database is read only: it is a standby, or default_transaction_read_only is on; name the primary in --database-url"

func troubleOf(err error) (t trouble, found bool) {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return t, false
	}
	if pg.Routine == "RevalidateCachedQuery" {
		return t, false // 0A000, too: "cached plan must not change result type"
	}
	t, found = troubles[pg.Code]
	return t, found
}
