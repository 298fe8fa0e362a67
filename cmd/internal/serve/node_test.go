package serve

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"getwork/schema/schematest/timeout"
)

// A node is ready while its schema is there, even if a migration, or somebody else, has locked the tables.
func TestReadyNeedsTheSchema(t *testing.T) {
	t.Parallel()
	n := runs(t, Command{Identity: Identity{Auth: "dev"}})
	db, err := pgx.Connect(t.Context(), n.database)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close(t.Context())
	ready := func(want int, says string) {
		t.Helper()
		r, text := answer(t, plain, "GET", n.url+"/readyz?verbose", "X-Getwork-User", "mia", "X-Getwork-Role", "manager")
		if r.StatusCode != want || !strings.Contains(text, says) {
			t.Errorf("%d %s; want %d and %q", r.StatusCode, text, want, says)
		}
	}
	execute := func(sql string) {
		t.Helper()
		if _, err := db.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	ready(200, "database: ok")
	execute(`begin`)
	execute(`lock table getwork.version, getwork.task in access exclusive mode`)
	ready(200, "database: ok")
	execute(`rollback`)
	execute(`alter schema getwork rename to elsewhere`) // dropping it would take locks beside the node's own
	ready(503, "the database has no schema getwork")
	timeout.Await(t, "the log says why", func() bool { return n.said("has no schema getwork: restore it") > 0 })
	execute(`alter schema elsewhere rename to getwork`)
	ready(200, "database: ok")
}
