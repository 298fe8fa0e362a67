package schematest

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// Setting the clock takes effect at once in open sessions, within a transaction, and after a crash.
func TestClockServer(t *testing.T) {
	t.Parallel()
	server, c := ClockServer(t)
	connect := func() *pgx.Conn {
		conn, err := pgx.Connect(t.Context(), server.URL("getwork"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close(t.Context()) })
		return conn
	}
	ahead := func(conn *pgx.Conn, want time.Duration) {
		t.Helper()
		before := time.Now()
		var now time.Time
		if err := conn.QueryRow(t.Context(), `select clock_timestamp()`).Scan(&now); err != nil {
			t.Fatal(err)
		}
		const micro = time.Microsecond
		if least, most := now.Sub(time.Now()), now.Sub(before); least > want+micro || most < want-micro {
			t.Errorf("the clock is between %v and %v ahead, want %v", least, most, want)
		}
	}
	one, other := connect(), connect()
	ahead(one, 0)
	if _, err := other.Exec(t.Context(), `begin; select 1`); err != nil {
		t.Fatal(err)
	}
	for _, by := range []time.Duration{2 * time.Hour, -2 * time.Hour, 1500 * time.Millisecond, -time.Microsecond, 0, time.Hour} {
		c.Set(by)
		ahead(one, by)
		ahead(other, by)
	}
	server.Crash()
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	ahead(connect(), time.Hour)
}
