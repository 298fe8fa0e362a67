package bench

import (
	"errors"
	"net/url"
	"testing"
	"time"

	"getwork/cmd/internal/bench/stage"
	"getwork/schema/schematest"
)

func TestForLibpq(t *testing.T) {
	t.Parallel()
	for database, want := range map[string]string{
		"postgres://tracy:secret@host/db?sslmode=disable":                 "postgres://tracy@host/db?sslmode=disable",
		"postgres://tracy@host/db?password=secret&application_name=a%20b": "postgres://tracy@host/db?application_name=a%20b",
		"postgres://tracy@host/db?sslmode=disable&password=secret":        "postgres://tracy@host/db?sslmode=disable",
		"postgres://tracy@host/db?password=a&pool_max_conns=9":            "postgres://tracy@host/db",
		"host=host pool_max_conns=9 pool_max_conn_lifetime=1h user=tracy": "host=host   user=tracy",
		"postgres://tracy@host/db":                                        "postgres://tracy@host/db",
		"host=host password=secret user=tracy":                            "host=host  user=tracy",
		`host=host password = 'a \' b' user=tracy`:                        "host=host  user=tracy",
	} {
		if got := forLibpq(database); got != want {
			t.Errorf("%s: %q", database, got)
		}
	}
}

// TestBareLimits runs each of the limits for a short time, and checks what they wrote.
func TestBareLimits(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	err := onBare(t.Context(), testEnv(t), 300_000, func(b *bare) error {
		wrote := func(what string, err error) (clicks int) {
			t.Helper()
			if errors.Is(err, errNoPgbench) {
				t.Skip(err)
			}
			var items, twice int
			const count = `
select (select count(*) from getwork.bare_request where state = 'assigned'), (select count(*) from getwork.bare_work),
  (select count(*) - count(distinct item) from getwork.bare_work)`
			if err == nil {
				err = b.Conn.QueryRow(t.Context(), b.SQL(count)).Scan(&clicks, &items, &twice)
			}
			if err != nil || items != 3*clicks || twice > 0 {
				t.Fatalf("%s: %d clicks have %d items, %d of them twice (%v)", what, clicks, items, twice, err)
			}
			return clicks
		}
		for _, script := range []string{fiveStatements, oneStatement} {
			clicks := 0
			for lasts := time.Second; clicks == 0; lasts *= 2 { // a busy machine may finish nothing in a second
				if lasts > time.Minute {
					t.Fatalf("%s: no click in half a minute", script[:12])
				}
				_, err := b.perClients(t.Context(), script, lasts)
				if errors.Is(err, errNothingDone) {
					err = nil
				}
				clicks = wrote(script[:12], err)
			}
		}
		for _, batch := range []int{1, 100} {
			_, err := b.together(t.Context(), 2, batch, time.Second)
			if clicks := wrote("set-based", err); clicks < 2*batch || clicks%batch != 0 {
				t.Errorf("two connections recorded and served %d clicks, %d at a time", clicks, batch)
			}
		}
		if err := b.reset(t.Context(), 1); err != nil {
			return err
		}
		if clicks := wrote("two commits", b.write(t.Context(), b.Conn, 0, 1, true)); clicks != 1 {
			t.Errorf("two commits made %d clicks", clicks)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// A node's URL may limit its pool, and neither pgx's single connections nor pgbench know such parameters.
func TestPoolParameters(t *testing.T) {
	t.Parallel()
	database, err := url.Parse(schematest.Empty(t))
	if err != nil {
		t.Fatal(err)
	}
	parameters := database.Query()
	parameters.Set("pool_max_conns", "9")
	database.RawQuery = parameters.Encode()
	e := &stage.Env{DatabaseURL: database.String()}
	conn, err := e.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := pgbench(t.Context(), e, "select 1;", 1, time.Second); err != nil && !errors.Is(err, errNoPgbench) {
		t.Error(err)
	}
}
