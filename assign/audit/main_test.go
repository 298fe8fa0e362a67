package audit

import (
	"context"
	"log/slog"
	"net/netip"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"getwork/schema/schematest"
	"getwork/schema/schematest/logs"
)

func TestMain(m *testing.M) { os.Exit(schematest.Main(m)) }

// desk is a writer with its database and its log.
type desk struct {
	*Writer
	db  *pgxpool.Pool
	log *logs.Buffer // what the node logs
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	d := &desk{db: schematest.Pool(t), log: &logs.Buffer{}}
	d.Writer = &Writer{Node: "n1", Log: slog.New(slog.NewTextHandler(d.log, nil)).With("node", "n1"), DB: d.db}
	return d
}

var mia = Actor{User: "Mia", By: "session", Credential: "s:1", Address: netip.MustParseAddr("192.0.2.1")}

// as is a context of what Mia does.
func as(t *testing.T) context.Context { return WithActor(t.Context(), mia) }

func (d *desk) write(t *testing.T, a Act) {
	t.Helper()
	if err := d.WriteAlone(as(t), a); err != nil {
		t.Fatal(err)
	}
}

func (d *desk) exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	if _, err := d.db.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func (d *desk) rows(t *testing.T) []Row {
	t.Helper()
	rows, err := d.db.Query(t.Context(), `select `+columns+` from getwork.audit order by n`)
	if err != nil {
		t.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, scan)
	if err != nil {
		t.Fatal(err)
	}
	return all
}
