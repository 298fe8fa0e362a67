package audit

import (
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"getwork/schema/schematest"
)

// BenchmarkWrite writes rows alone, and from eight writers, who wait for each other's commits.
func BenchmarkWrite(b *testing.B) {
	for name, writers := range map[string]int{"alone": 1, "eight": 8} {
		b.Run(name, func(b *testing.B) {
			w := &Writer{Node: "n1", Log: slog.New(slog.DiscardHandler), DB: schematest.Pool(b)}
			ctx := WithActor(b.Context(), mia)
			b.ResetTimer()
			var g errgroup.Group
			for i := range writers {
				g.Go(func() error {
					for range (b.N + i) / writers {
						if err := w.WriteAlone(ctx, Act{Act: "task.update", Object: "verify", Detail: map[string]int{"version": 1}}); err != nil {
							return err
						}
					}
					return nil
				})
			}
			if err := g.Wait(); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// BenchmarkVerify reads a chain of b.N rows, with a log that has all of them; the list of a rare act beside them is read by
// index.
func BenchmarkVerify(b *testing.B) {
	db := schematest.Pool(b)
	log := &Log{rows: map[int64][]Sum{}, first: 1, last: int64(b.N)}
	last := Row{At: time.Now().UTC().Truncate(time.Microsecond), Node: "n1", Act: "task.update", Outcome: Done, Detail: []byte(`{"version":1}`)}
	user := "Mia"
	_, err := db.CopyFrom(b.Context(), pgx.Identifier{"getwork", "audit"}, []string{"n", "at", "node", "actor", "act", "outcome", "detail", "prev", "hash"},
		pgx.CopyFromSlice(b.N, func(i int) ([]any, error) {
			last.N, last.Prev, last.Actor = int64(i+1), last.Hash, &user
			if last.Act = "task.update"; i == 0 {
				last.Act = "rare"
			}
			last.Hash = last.Sum()
			log.rows[last.N] = []Sum{last.Hash}
			return []any{last.N, last.At, last.Node, last.Actor, last.Act, last.Outcome, string(last.Detail), last.Prev[:], last.Hash[:]}, nil
		}))
	if err != nil {
		b.Fatal(err)
	}
	if _, err := db.Exec(b.Context(), `update getwork.audit_head set n = $1, hash = $2`, last.N, last.Hash[:]); err != nil {
		b.Fatal(err)
	}
	b.ResetTimer()
	c, err := Verify(b.Context(), db, nil, log, func(f Finding) { b.Error(f) })
	if err != nil || c.Logged != int64(b.N) {
		b.Fatal(c, err)
	}
	b.StopTimer()
	began := time.Now()
	w := &Writer{DB: db}
	for _, f := range []Filter{{Act: "rare"}, {Actor: user, Act: "rare"}, {Actor: user}, {Act: "none"}} {
		f.Limit = 100
		if _, err := w.List(b.Context(), f); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(time.Since(began).Milliseconds()), "ms-"+f.Actor+f.Act)
		began = time.Now()
	}
}
