package measure

import (
	"testing"

	"getwork/cmd/internal/bench/stage"
	"getwork/schema/schematest"
)

// Queries run under the login that is made for them, which may read their tables and is gone afterwards.
func TestQueriesUnderALoginOfTheirOwn(t *testing.T) {
	t.Parallel()
	e := testEnv(t)
	e.DatabaseURL = schematest.URL(t)
	var login string
	onStage := func(s *stage.Stage) error {
		if err := s.MakeItems(t.Context(), 50); err != nil {
			return err
		}
		_, err := firstRun(t.Context(), s, "who", `select item, current_user as who from getwork.bench_item order by item`, 50, stage.UntilEnd)
		if err != nil {
			return err
		}
		var as string
		err = s.Conn.QueryRow(t.Context(), s.SQL(`select details ->> 'who' from getwork.candidate limit 1`)).Scan(&as)
		if as != login {
			t.Errorf("the query ran as %q, want %q", as, login)
		}
		return err
	}
	err := onQueryLogin(t.Context(), e, func(own *stage.Env) error {
		login = own.QueryLogin
		return own.On(t.Context(), 1, onStage)
	})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := e.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	var left int
	if err := conn.QueryRow(t.Context(), `select count(*) from pg_roles where rolname = $1`, login).Scan(&left); err != nil || left != 0 {
		t.Errorf("the login %s is left behind (%v)", login, err)
	}
}
