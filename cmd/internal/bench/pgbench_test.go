package bench

import (
	"errors"
	"testing"
	"time"
)

func TestWithoutPassword(t *testing.T) {
	t.Setenv("PGPASSWORD", "")
	for database, want := range map[string][2]string{
		"postgres://tracy:secret@host/db?sslmode=disable":                 {"postgres://tracy@host/db?sslmode=disable", "secret"},
		"postgres://tracy@host/db?password=secret&application_name=a%20b": {"postgres://tracy@host/db?application_name=a%20b", "secret"},
		"postgres://tracy@host/db":                                        {"postgres://tracy@host/db", ""},
		"host=host password=secret user=tracy":                            {"host=host  user=tracy", "secret"},
		`host=host password = 'a \' b' user=tracy`:                        {"host=host  user=tracy", "a ' b"},
	} {
		without, password, err := withoutPassword(database)
		if err != nil || without != want[0] || password != want[1] {
			t.Errorf("%s: %q and %q, %v", database, without, password, err)
		}
	}
}

// TestBareLimits runs each of the limits for a second, and looks at what they have written.
func TestBareLimits(t *testing.T) {
	e := testEnv(t)
	b, leave, err := e.bare(t.Context(), 300_000)
	if err != nil {
		t.Fatal(err)
	}
	defer leave()
	wrote := func(what string, rate float64, err error) {
		t.Helper()
		if errors.Is(err, errNoPgbench) {
			t.Skip(err)
		}
		if err != nil || rate <= 0 {
			t.Fatalf("%s: %v a second, %v", what, rate, err)
		}
		var clicks, items, twice int
		const count = `
select (select count(*) from getwork.bare_request where state = 'assigned'), (select count(*) from getwork.bare_work),
  (select count(*) - count(distinct item) from getwork.bare_work)`
		if err := b.conn.QueryRow(t.Context(), b.name.SQL(count)).Scan(&clicks, &items, &twice); err != nil {
			t.Fatal(err)
		}
		if clicks == 0 || items != 3*clicks || twice > 0 {
			t.Errorf("%s: %d clicks have %d items, %d of them twice", what, clicks, items, twice)
		}
	}
	for _, script := range []string{fiveStatements, oneStatement} {
		if err := b.reset(t.Context(), 8); err != nil {
			t.Fatal(err)
		}
		rate, err := e.pgbench(t.Context(), b.name.SQL(script), 8, time.Second)
		wrote(script[:12], rate, err)
	}
	rate, err := b.setBased(t.Context(), time.Second)
	wrote("set-based", rate, err)
}
