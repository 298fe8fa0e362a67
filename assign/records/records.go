package records

import (
	"time"

	"getwork/assign"
	"getwork/assign/pg"
)

// Records reads what the tables say. The context of a call chooses the pool ([pg.AsOwn]); without that mark it is the pool of
// users' calls.
type Records struct {
	db  pg.Router
	sql func(string) string

	searches chan struct{} // holds one value for each search for a value that is under way
	patience time.Duration // how long such a search may take

	lists Batcher[struct{}, []assign.Task]
}

// New returns Records that read from db. sql puts the schema's name into a statement; nil: the schema is getwork.
func New(db pg.Router, sql func(string) string) *Records {
	if sql == nil {
		sql = func(statement string) string { return statement }
	}
	rs := &Records{db: db, sql: sql, searches: make(chan struct{}, 2), patience: searchPatience}
	rs.lists.Read = rs.list
	return rs
}
