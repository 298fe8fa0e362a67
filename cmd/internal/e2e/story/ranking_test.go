package story

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"getwork/assign"
	"getwork/cmd/internal/bank"
	"getwork/cmd/internal/e2e"
)

// rankBank ranks the sample bank's open applications without getwork: the oldest submission first, and the largest difference first
// without small loans.
const rankBank = `
create table ranks as with loan as materialized (select item::text, item as number, submitted_at, worst_gap, amount from (%s) q),
  before as (select item, row_number() over (order by submitted_at, number) as was from loan),
  after as (select item, row_number() over (order by worst_gap desc, number) as now from loan where amount >= 5000)
select * from before full join after using (item)`

const changedRanks = `
with change as (
  select case when was <= $1 and now <= $1 then 'moves' when now <= $1 then 'comes in' else 'falls out' end as what, item, was, now
  from ranks where (was <= $1 or now <= $1) and was is distinct from now)
select concat_ws(' ', what, item, coalesce(was::text, '-'), coalesce(now::text, '-'),
  (select 'held' from getwork.work w where w.item = change.item and w.state = 'held'))
from change order by array_position('{comes in,falls out,moves}', what), case what when 'falls out' then was else now end`

const commonRanks = `
select count(*) filter (where was <= $1 and now <= $1) || ' of ' || least($1, greatest(count(was), count(now))) from ranks`

// The manager of the loan desk thinks of another ranking, and compares it with the one in force before she saves it. What she reads is
// what the bank's tables say, and what the next click gets.
func TestLoanDeskComparesBeforeSaving(t *testing.T) {
	t.Parallel()
	const best = 10
	s := newSite(t, 2, "")
	conn, err := pgx.Connect(t.Context(), s.URL)
	if err != nil {
		t.Fatal(err)
	}
	if err := bank.Load(t.Context(), conn, bank.Options{Loans: 160}, nil); err != nil {
		t.Fatal(err)
	}
	_ = conn.Close(t.Context())
	desk := bank.Tasks(false)[0].Query
	other := "select * from (\n" + desk + "\n) loan where amount >= 5000 order by worst_gap desc, item"
	s.Create(map[string]any{"name": "verify", "query": desk, "fresh_for": "10m"})
	s.Got(s.As("oliver", 0), "verify", 3) // the rest of this run lies on the shelf

	mary := s.As("mary", 1)
	mary.Role = "manager"
	read := func() (c assign.Comparison) {
		t.Helper()
		a, err := mary.Do(t.Context(), "POST", "/api/v1/tasks/verify/compare", map[string]any{"query": other, "limit": best})
		if err != nil || a.Decode(&c) != nil {
			t.Fatalf("compare: %d %s, %v", a.Status, a.Body, err)
		}
		return c
	}
	c := read()
	var got []string
	promised := map[int]string{} // by rank, without what is held
	list := func(what string, shifts []assign.Shift, was, now func(assign.Shift) *int) {
		for _, one := range shifts {
			text := fmt.Sprint(what, " ", one.Item, " ", place(was(one)), " ", place(now(one)))
			if one.Held {
				text += " held"
			} else if rank := now(one); rank != nil && *rank <= best {
				promised[*rank] = one.Item
			}
			got = append(got, text)
		}
	}
	rank := func(one assign.Shift) *int { return one.Rank }
	from, to := func(one assign.Shift) *int { return one.From }, func(one assign.Shift) *int { return one.To }
	list("comes in", c.In, from, rank)
	list("falls out", c.Out, rank, to)
	list("moves", c.Moved, from, to)
	s.Exec(fmt.Sprintf(rankBank, desk))
	want := column[string](s, changedRanks, best)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what changes (-by the bank's tables +compared):\n%s", diff)
	}
	for _, o := range c.Overlap {
		if want := column[string](s, commonRanks, o.Best)[0]; want != fmt.Sprint(o.Common, " of ", o.Of) {
			t.Errorf("of the best %d, %d of %d are the same; by the bank's tables %s", o.Best, o.Common, o.Of, want)
		}
	}
	held := func(text string) bool { return strings.HasSuffix(text, " held") }
	if len(c.In) == 0 || len(c.Out) == 0 || len(c.Moved) == 0 || len(promised) < 4 || !slices.ContainsFunc(want, held) {
		t.Fatalf("the bank is no example of every change: %q", want)
	}
	if old, now := c.Old, c.New; old.Cost <= 0 || now.Cost <= 0 || old.DurationMS <= 0 || now.DurationMS <= 0 || now.Items >= old.Items {
		t.Errorf("version %d returns %d items, costs %.0f and takes %.0f ms; the other %d, %.0f and %.0f ms", c.Version, old.Items, old.Cost, old.DurationMS, now.Items, now.Cost, now.DurationMS)
	}
	if runs := s.States(); runs != "finished" {
		t.Errorf("comparing ran the task: %s", runs)
	}

	a, err := mary.Do(t.Context(), "PATCH", "/api/v1/tasks/verify", map[string]any{"query": other}, "If-Match", fmt.Sprintf("%q", fmt.Sprint(c.Version)))
	if err != nil || a.Status != 200 {
		t.Fatalf("save: %d %s, %v", a.Status, a.Body, err)
	}
	var first []string
	for _, rank := range slices.Sorted(maps.Keys(promised))[:4] {
		first = append(first, promised[rank])
	}
	work := s.Got(s.As("tracy", 0), "verify", 4).Work
	if keys := e2e.Keys(work); !slices.Equal(keys, first) {
		t.Errorf("the next click got %v; compare had promised %v", keys, first)
	}
	if c := read(); c.Version != 2 || len(c.In)+len(c.Out)+len(c.Moved) > 0 || c.Same != best {
		t.Errorf("once saved, version %d differs from itself: in %v, out %v, moved %v", c.Version, c.In, c.Out, c.Moved)
	}
}

// place writes a rank, which is missing when a query does not return the item.
func place(rank *int) string {
	if rank == nil {
		return "-"
	}
	return fmt.Sprint(*rank)
}
