package engine

import (
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
	"getwork/assign/pg"
	"getwork/schema/schematest"
)

// BenchmarkNeeds reads a shelf for somebody who may have none of the 50,000 items in front, but the one behind them: by class, as a round
// does, and by a scan that reads them all. By class it takes at most a twentieth of the time: 89 ms and 1,885 ms on two busy cores, with
// PostgreSQL 15.
func BenchmarkNeeds(b *testing.B) {
	const front = 50_000
	url := schematest.URL(b)
	n := startNode(b, url, nodeOptions{})
	task := newTask(b, n, "shelf", `select i as item, case when i <= 50000 then 'french' end as needs from generate_series(1, 50001) i order by i`,
		func(s *assign.Settings) { s.FreshFor, s.MaxCandidates = assign.Duration(time.Hour), 2*front })
	r, err := n.GetWork(b.Context(), "shelf", skilled("ann", "french"))
	if err != nil {
		b.Fatal(err)
	}
	if r = n.endedRequest(b, r.ID); len(r.Work) != 1 {
		b.Fatalf("ann ends %s with %v", r.State, items(r))
	}
	execute(b, pool(b, url), `vacuum analyze getwork.candidate, getwork.work, getwork.run`)
	for _, way := range []struct {
		name string
		read func(*round) ([]offer, error)
	}{
		{"by class", func(r *round) ([]offer, error) {
			s := shelf{r}
			if _, err := r.readClasses(b.Context(), s); err != nil {
				return nil, err
			}
			offers, _, err := s.take(b.Context(), r, 10)
			return offers, err
		}},
		{"by scan", func(r *round) ([]offer, error) {
			rows, err := r.tx.Query(b.Context(), r.e.SQL(selectShelf), r.task, r.state.conflicts, r.state.shelfRun, r.state.shelfFrom)
			if err != nil {
				return nil, err
			}
			return pgx.CollectRows(rows, scanOffer)
		}},
	} {
		b.Run(way.name, func(b *testing.B) {
			for b.Loop() {
				err := pg.Transact(b.Context(), n.DB, func(tx pgx.Tx) error {
					r := &round{e: n.Engine, tx: tx, task: task.ID, looks: true}
					if _, err := r.lock(b.Context(), nil); err != nil {
						return err
					}
					r.waiting = []waiter{{holder: assign.Holder{User: "bob"}, wanted: 1, groups: new([]string{"law"})}}
					offers, err := way.read(r)
					if err == nil && !slices.ContainsFunc(offers, func(o offer) bool { return o.cand.Item == "50001" }) {
						b.Errorf("the item that is for bob is not among %d", len(offers))
					}
					return err
				})
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
