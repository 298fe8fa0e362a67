package bench

import (
	"testing"

	"getwork/schema/schematest"
)

// Queries run under the login that is made for them, which may read their tables and is gone afterwards.
func TestQueriesUnderALoginOfTheirOwn(t *testing.T) {
	t.Parallel()
	e := testEnv(t)
	e.DatabaseURL, e.queryLogin = schematest.URL(t), true
	var login string
	err := e.on(t.Context(), 1, func(s *stage) error {
		login = string(s.name)
		if err := s.makeItems(t.Context(), 50); err != nil {
			return err
		}
		_, err := s.firstRun(t.Context(), "who", `select item, current_user as who from getwork.bench_item order by item`, 50, untilEnd)
		if err != nil {
			return err
		}
		var as string
		err = s.conn.QueryRow(t.Context(), s.sql(`select details ->> 'who' from getwork.candidate limit 1`)).Scan(&as)
		if as != login {
			t.Errorf("the query ran as %q, want %q", as, login)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := e.connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	var left int
	if err := conn.QueryRow(t.Context(), `select count(*) from pg_roles where rolname = $1`, login).Scan(&left); err != nil || left != 0 {
		t.Errorf("the login %s is left behind (%v)", login, err)
	}
}
