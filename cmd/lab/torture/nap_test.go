package torture

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/cmd/lab/torture/history"
	"getwork/schema/schematest"
	"getwork/schema/schematest/clock"
	"getwork/schema/schematest/timeout"
)

// A node that freezes inside a transaction whose query has napped does not keep other queries asleep.
func TestNapBesideAFrozenNode(t *testing.T) {
	s := &stage{url: schematest.Server(t).URL("postgres")}
	n := nap{0.005, 0.03, true}
	ctx, cancel := context.WithTimeout(t.Context(), timeout.Scale(2*time.Minute))
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	all.Go(func() { s.wake(ctx, []job{{nap: n}, {nap: n}}) })
	connect := func() *pgx.Conn {
		conn, err := pgx.Connect(ctx, s.url)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close(context.Background()) })
		return conn
	}
	frozen, other := connect(), connect()
	if _, err := frozen.Exec(ctx, `begin; select `+n.sql()); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if _, err := other.Exec(ctx, `select `+n.sql()); err != nil {
			t.Fatal("the query sleeps for ever:", err)
		}
	}
}

// A tick that the checker ignores, since it may show either time, does not count as the one between two settings of the
// clock.
func TestTicksBetweenSettings(t *testing.T) {
	c, err := clock.New(t.Context())
	if err != nil {
		t.Skip(err)
	}
	defer c.Remove()
	rec := history.NewRecorder()
	s := &storm{stage: &stage{rec: rec, clock: c}, seen: newSampler("", rec)}
	s.seen.ticked = 1
	if !s.setClock(t.Context(), time.Hour) {
		t.Fatal("the clock can't be set")
	}
	for _, e := range rec.History(history.Tables{}).Entries {
		if e.Fault != nil && s.set < e.Fault.Ended {
			t.Errorf("a tick from %v on would satisfy the next setting, but the checker uses none before %v", s.set, e.Fault.Ended)
		}
	}
}
