package doctor

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/cmd/internal/serve"
	"getwork/schema"
)

// check is one row of the table.
type check struct {
	name  string
	needs need
	look  func(ctx context.Context, x *examination) ([]Finding, error)
}

// need says what a check can't do without.
type need int

const (
	nothing     need = iota
	database         // a connection to it
	tables           // and getwork's tables, of the version that this program knows
	queries          // a connection to --query-database-url
	queryTables      // both of the last
)

// checks are all checks, in the order in which they are made and printed.
var checks = []check{
	{"secrets", nothing, lookAtSecrets},
	{"certificate", nothing, lookAtCertificate},
	{"identity-provider", nothing, lookAtIssuers},
	{"files", nothing, lookAtFiles},

	{"pooler", nothing, lookAtPooler},
	{"database", nothing, lookAtDatabase},
	{"direct", nothing, lookAtDirect},
	{"query-database", nothing, lookAtQueryDatabase},
	{"tls", database, lookAtTLS},
	{"version", database, lookAtVersion},
	{"encoding", database, lookAtEncoding},
	{"schema", database, lookAtSchema},

	{"login", database, lookAtLogin},
	{"privileges", tables, lookAtPrivileges},
	{"query-role", tables, lookAtQueryRole},
	{"query-login", queries, lookAtQueryLogin},
	{"public-functions", database, lookAtFunctions},

	{"time-outs", database, lookAtTimeouts},
	{"session-settings", database, lookAtSession},
	{"client-check", database, lookAtClientCheck},
	{"keepalives", database, lookAtKeepalives},
	{"listen", database, lookAtListen},
	{"clock", database, lookAtClock},
	{"nodes", database, lookAtNodes},
	{"connections", database, lookAtConnections},
	{"notify-queue", database, lookAtNotifyQueue},

	{"durability", database, lookAtDurability},
	{"standbys", database, lookAtStandbys},
	{"replica", queryTables, lookAtReplica},

	{"invalid-indexes", tables, lookAtInvalidIndexes},
	{"indexes", tables, lookAtIndexes},
	{"definitions", tables, lookAtDefinitions},
	{"ids", tables, lookAtIDs},
	{"autovacuum", tables, lookAtAutovacuum},
	{"bloat", tables, lookAtBloat},
	{"old-transactions", database, lookAtOldTransactions},
	{"transaction-ids", database, lookAtTransactionIDs},
	{"slots", database, lookAtSlots},
	{"disk", database, lookAtDisk},

	{"failed-tasks", tables, lookAtFailedTasks},
	{"unused-tasks", tables, lookAtUnusedTasks},
	{"slow-tasks", tables, lookAtSlowTasks},
	{"waiting", tables, lookAtWaiting},
	{"needs", tables, lookAtNeeds},
	{"webhooks", tables, lookAtWebhooks},
}

// limits say from when on something is wrong.
type limits struct {
	trip          time.Duration // to the database and back
	clock         time.Duration // between this machine and the database or a node: a warning; tenfold: an error
	lag           time.Duration // of a replica
	queue         float64       // of the notification queue, from 0 to 1: a warning; fivefold: an error
	dead          int64         // rows that vacuum has not removed, if they are also five times as many as autovacuum waits for
	transaction   time.Duration // the age of a transaction that holds vacuum back
	ids           int64         // the age of the oldest transaction id: a warning
	idsEnd        int64         // an error; PostgreSQL stops at 2^31 less 3 million
	retained      int64         // bytes of WAL that an unused slot keeps
	free          float64       // of the disk, from 0 to 1: a warning; a third of it: an error
	certificate   time.Duration // before its end
	unused        time.Duration // a task that has not run for this long since it was made
	waiting       time.Duration // beyond a query's time-out
	expiredLeases time.Duration // since the end of a lease that nobody has swept
}

var usual = limits{trip: 50 * time.Millisecond, clock: 2 * time.Second, lag: 30 * time.Second, queue: 0.1, dead: 50_000, transaction: time.Hour, ids: 500_000_000, idsEnd: 1_500_000_000,
	retained: 10 << 30, free: 0.15, certificate: 14 * 24 * time.Hour, unused: 24 * time.Hour, waiting: time.Minute, expiredLeases: time.Minute}

// examination is one run of all checks, and what they share.
type examination struct {
	config *serve.Command
	name   schema.Name
	nodes  int // that there are to be; 0: as many as there are
	urls   []string
	limits limits

	db       *pgx.Conn // as the node's pools connect; nil: not reached
	queries  *pgx.Conn // --query-database-url; nil: there is none, or it was not reached
	shared   bool      // --database-url goes through a transaction pooler
	version  int       // server_version_num
	migrated bool      // the schema has the version that this program knows
	live     int       // nodes that are connected
}

func (x *examination) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	for _, c := range []*pgx.Conn{x.db, x.queries} {
		if c != nil {
			_ = c.Close(ctx)
		}
	}
}

// missing returns why a check can't be made; empty: it can.
func (x *examination) missing(n need) string {
	switch {
	case n == nothing:
		return ""
	case (n == queries || n == queryTables) && x.config.QueryDatabaseURL == "":
		return "there is no --query-database-url"
	case (n == queries || n == queryTables) && x.queries == nil:
		return "the query database was not reached"
	case n != queries && (x.db == nil || x.db.IsClosed()):
		return "the database was not reached"
	case (n == tables || n == queryTables) && !x.migrated:
		return "the schema does not have this program's version"
	}
	return ""
}

func fine(format string, args ...any) Finding {
	return Finding{State: OK, Found: fmt.Sprintf(format, args...)}
}

func skipped(format string, args ...any) Finding {
	return Finding{State: Skipped, Found: fmt.Sprintf(format, args...)}
}

func warned(advice, format string, args ...any) Finding {
	return Finding{State: Warning, Found: fmt.Sprintf(format, args...), Advice: advice}
}

func failed(advice, format string, args ...any) Finding {
	return Finding{State: Error, Found: fmt.Sprintf(format, args...), Advice: advice}
}

// one returns the findings of a check that has exactly one.
func one(f Finding) ([]Finding, error) { return []Finding{f}, nil }

// orFine returns the findings, or that all is well if there are none.
func orFine(found []Finding, format string, args ...any) ([]Finding, error) {
	if len(found) == 0 {
		return one(fine(format, args...))
	}
	return found, nil
}

// rowsOf reads rows of getwork's schema into structs, by position.
func rowsOf[T any](ctx context.Context, c *pgx.Conn, sql string, args ...any) ([]T, error) {
	rows, err := c.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[T])
}

// some returns the first few of a list, and how many more there are.
func some(list []string) string {
	const shown = 3
	if len(list) <= shown {
		return strings.Join(list, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(list[:shown], ", "), len(list)-shown)
}

// severe returns Error above the limit failure, and Warning above the limit warning; false: the value is above neither.
func severe[T cmp.Ordered](value, warning, failure T) (State, bool) {
	switch {
	case value > failure:
		return Error, true
	case value > warning:
		return Warning, true
	}
	return OK, false
}
