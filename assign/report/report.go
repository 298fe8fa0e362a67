// Package report counts the past for screens that show it: what happened to tasks in the last hours ([Report.History]), who
// gives back much ([Report.Returns]), and who holds how much now ([Report.Holders]).
//
// Everything is counted from the tables when somebody asks. A node counts one history and one list of returns at a time, for
// ten seconds at most, so that a screen on the wall can't take the connections of those who click.
package report

import (
	"context"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
)

// Report reads from one database.
type Report struct {
	db  Pool
	sql func(string) string

	histories *singleFlight[spanKey, assign.History]
	returns   *singleFlight[spanKey, assign.Returns]
}

// Pool begins transactions; a pgxpool.Pool does.
type Pool interface {
	BeginTx(ctx context.Context, o pgx.TxOptions) (pgx.Tx, error)
}

// New makes a report of the database that db leads to. sql puts the schema's name into a statement; nil: it is getwork.
func New(db Pool, sql func(string) string) *Report {
	if sql == nil {
		sql = func(statement string) string { return statement }
	}
	r := &Report{db: db, sql: sql}
	r.histories, r.returns = newSingleFlight(r.readHistory), newSingleFlight(r.readReturns)
	return r
}
