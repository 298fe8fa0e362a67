package pg

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// ending is a database whose transactions end as it says.
type ending struct {
	pgx.Tx
	begin, commit error
}

func (e ending) BeginTx(context.Context, pgx.TxOptions) (pgx.Tx, error) { return e, e.begin }
func (e ending) Commit(context.Context) error                           { return e.commit }
func (e ending) Rollback(context.Context) error                         { return pgx.ErrTxClosed }

func (e ending) SendBatch(context.Context, *pgx.Batch) pgx.BatchResults { return begun{ending: e} }

// begun are the results of a transaction's first batch.
type begun struct {
	pgx.BatchResults
	ending
}

func (b begun) Exec() (pgconn.CommandTag, error) { return pgconn.CommandTag{}, b.begin }
func (b begun) Close() error                     { return b.begin }
func (b begun) Tx() pgx.Tx                       { return b.ending }

// What waits for a commit is called once, and only if it may have happened.
func TestAfterCommit(t *testing.T) {
	refused := errors.New("refused")
	for name, tt := range map[string]struct {
		db     ending
		f      error
		called string
	}{
		"committed":           {ending{}, nil, "true"},
		"never begun":         {ending{begin: refused}, nil, ""},
		"refused":             {ending{}, refused, ""},
		"refused, repeatedly": {ending{}, &pgconn.PgError{Code: "40P01", SeverityUnlocalized: "ERROR"}, ""},
		"rolled back":         {ending{commit: pgx.ErrTxCommitRollback}, nil, ""},
		"constraint":          {ending{commit: &pgconn.PgError{Code: "23505", SeverityUnlocalized: "ERROR"}}, nil, ""},
		"repeated at commit":  {ending{commit: &pgconn.PgError{Code: "40P01", SeverityUnlocalized: "ERROR"}}, nil, ""},
		"server ended":        {ending{commit: &pgconn.PgError{Code: "57P01", SeverityUnlocalized: "FATAL"}}, nil, "false"},
		"connection lost":     {ending{commit: errors.New("connection reset")}, nil, "false"},
	} {
		called := ""
		_ = Transact(t.Context(), tt.db, func(tx pgx.Tx) error {
			if !AfterCommit(tx, func(certain bool) { called += fmt.Sprint(certain) }) {
				t.Errorf("%s: it won't be called", name)
			}
			if _, err := tx.Exec(t.Context(), "select"); err != nil {
				return err
			}
			return tt.f
		})
		if called != tt.called {
			t.Errorf("%s: called with %q, want %q", name, called, tt.called)
		}
	}
	if AfterCommit(ending{}, func(bool) {}) {
		t.Error("a transaction of somebody else will tell")
	}
}
