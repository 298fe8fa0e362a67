// Package report counts the past for screens that show it: what happened to tasks in the last hours ([Report.History]), who
// returns much ([Report.Returns]), and who holds how much now ([Report.Holders]).
//
// Everything is counted from the tables on request. A node counts one history and one list of returns at a time, for ten
// seconds at most, so that a screen on the wall can't take the connections that clicks need. Callers who ask the same question
// share a count that has not begun. Work that was handed out after a given time is now either held, or was closed after that
// time, so the number that was held then is counted back from now.
//
// Every hour one node sums up what happened in it ([Report.Sum]): the sums outlive the rows.
package report

import (
	"getwork/assign"
	"getwork/assign/pg"
)

// Report counts the past of one database.
type Report struct {
	db  Pool
	sql func(string) string

	histories *singleFlight[spanKey, assign.History]
	returns   *singleFlight[spanKey, assign.Returns]
}

// Pool begins transactions; a pgxpool.Pool does, and a [pg.Router].
type Pool interface{ pg.Beginner }

// New returns a report of db's database. sql puts the schema's name into a statement; nil means the schema getwork.
func New(db Pool, sql func(string) string) *Report {
	if sql == nil {
		sql = func(statement string) string { return statement }
	}
	r := &Report{db: db, sql: sql}
	r.histories, r.returns = newSingleFlight(r.readHistory), newSingleFlight(r.readReturns)
	return r
}
