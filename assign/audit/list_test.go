package audit

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Rows are listed page by page, newest first.
func TestList(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	for i := range 30 {
		actor := Actor{User: []string{"Mia", "Ada", "mia"}[i%3]}
		if err := d.WriteAlone(WithActor(t.Context(), actor), Act{Act: []string{"x", "y"}[i%2]}); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []Filter{{}, {Act: "x"}, {Actor: "Mia"}, {Act: "y", Actor: "Ada"}, {Act: "z"}, {Actor: "z"}} {
		f.Limit = 4
		var want, got []int64
		for _, r := range d.rows(t) {
			if (f.Act == "" || f.Act == r.Act) && (f.Actor == "" || f.Actor == *r.Actor) {
				want = append([]int64{r.N}, want...)
			}
		}
		for {
			page, err := d.List(t.Context(), f)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range page {
				if r.Sum() != r.Hash {
					t.Errorf("row %+v", r)
				}
				got = append(got, r.N)
			}
			if len(page) < f.Limit {
				break
			}
			f.Before = page[len(page)-1].N
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%+v: %v, want %v", f, got, want)
		}
	}
}

// Behind a transaction pooler nothing is prepared, and the types of parameters are those of Go's.
func TestPooled(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	config := d.db.Config().Copy()
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	config.ConnConfig.StatementCacheCapacity, config.ConnConfig.DescriptionCacheCapacity = 0, 0
	config.ConnConfig.RuntimeParams["statement_timeout"] = "1h" // the login's, which a pooler can't replace
	pooled, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pooled.Close)
	d.DB, d.db = pooled, pooled
	d.fill(t, 2)
	if err := d.WriteAlone(t.Context(), Act{Act: "log-in", Outcome: Refused}); err != nil {
		t.Fatal(err)
	}
	d.wantClean(t, 3)
	for _, f := range []Filter{{Limit: 9}, {Limit: 9, Act: "log-in"}, {Limit: 9, Actor: "Mia"}, {Limit: 9, Actor: "Mia", Act: "task.update"}} {
		if page, err := d.List(t.Context(), f); err != nil || len(page) == 0 {
			t.Errorf("%+v: %d rows, %v", f, len(page), err)
		}
	}
	now := time.Now()
	exported, err := Export(t.Context(), d.db, nil, now, func(Row) error { return nil })
	if err != nil || exported.Rows != 3 {
		t.Fatalf("%+v, %v", exported, err)
	}
	d.exec(t, `create function timed() returns trigger language plpgsql as $$ begin
  if current_setting('statement_timeout') <> '0' then raise 'may be interrupted after %', current_setting('statement_timeout'); end if;
  return null; end $$; create trigger timed before delete on getwork.audit execute function timed()`)
	if _, err := d.Cut(t.Context(), exported, now); err != nil {
		t.Fatal(err)
	}
	d.wantClean(t, 1)
}
