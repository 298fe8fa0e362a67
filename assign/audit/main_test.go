package audit

import (
	"bytes"
	"context"
	"log/slog"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"getwork/schema/schematest"
)

func TestMain(m *testing.M) { os.Exit(schematest.Main(m)) }

// desk is a writer with its database and its log.
type desk struct {
	*Writer
	db  *pgxpool.Pool
	log *log
}

// log is what a node logs.
type log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *log) lines() int { return strings.Count(l.String(), "msg=audit ") }

func newDesk(t *testing.T) *desk {
	t.Helper()
	d := &desk{db: schematest.Pool(t), log: &log{}}
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
