package ranking

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"getwork/assign"
	"getwork/assign/pg"
	"getwork/schema/schematest"
)

// A result is the best max_candidates free items, and cut only if there are more, wherever a chunk of rows ends.
func TestResultsAtTheEndOfAChunk(t *testing.T) {
	t.Parallel()
	db, err := pgxpool.New(t.Context(), schematest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	const held = 3 // the items 1 to 3
	var task int64
	if err := db.QueryRow(t.Context(), `insert into getwork.task default values returning id`).Scan(&task); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec(t.Context(), `insert into getwork.work (task_id, item, user_name) select $1, i, 'ann' from generate_series(1, $2::integer) i`, task, held); err != nil {
		t.Fatal(err)
	}
	here := New(Config{DB: pg.Router{Calls: db, Own: db}, Runs: db, SQL: func(s string) string { return s }})
	there := New(here.Config)
	there.Queries = db
	for _, most := range []int{chunkRows - held, chunkRows - 1, chunkRows, chunkRows + 1, 2 * chunkRows} {
		for _, free := range []int{most - 1, most, most + 1, most + chunkRows} {
			for _, first := range []int{1, held + 1} { // with the held items, and without
				for name, read := range map[string]func(tx pgx.Tx, s assign.Settings) (Result, error){
					"here":  func(tx pgx.Tx, s assign.Settings) (Result, error) { return here.read(t.Context(), tx, task, s) },
					"there": func(tx pgx.Tx, s assign.Settings) (Result, error) { return there.Stream(t.Context(), tx, task, s) },
				} {
					s := assign.DefaultSettings()
					s.MaxCandidates, s.Query = most, assign.Query(fmt.Sprintf(`select i as item from generate_series(%d, %d) i order by i`, first, free+held))
					tx, err := db.BeginTx(t.Context(), pg.ReadOnly)
					if err != nil {
						t.Fatal(err)
					}
					found, err := read(tx, s)
					_ = tx.Rollback(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					kept := min(free, most)
					if len(found.Items) != kept || found.Items[0].Item != fmt.Sprint(held+1) || found.Items[kept-1].Item != fmt.Sprint(held+kept) || found.Cut != (free > most) {
						t.Errorf("%s, of %d free items at most %d, from item %d: there are %d, cut: %t", name, free, most, first, len(found.Items), found.Cut)
					}
				}
			}
		}
	}
}

func TestDetailsOf(t *testing.T) {
	t.Parallel()
	for row, want := range map[string]string{
		`{"item":1}`:                                                   `{}`,
		`{"item":"a","note":"x"}`:                                      `{"note":"x"}`,
		`{"note":"x","item":"a"}`:                                      `{"note":"x"}`,
		`{"z":1,"slots":3,"a":null}`:                                   `{"z":1,"a":null}`,
		`{"exclusive":"g","items":[1,2]}`:                              `{"items":[1,2]}`,
		`{"a":{"item":1},"item":2,"b":"},"}`:                           `{"a":{"item":1},"b":"},"}`,
		`{"a":"\"item\":","item":"\\","b":"\",\"item\":1"}`:            `{"a":"\"item\":","b":"\",\"item\":1"}`,
		`{"a": [ {"x" : "]" } , 2 ],"item":{"k": [1, "}"]},"c":"ä\\"}`: `{"a": [ {"x" : "]" } , 2 ],"c":"ä\\"}`,
		`{"\"item":1,"Item":2}`:                                        `{"\"item":1,"Item":2}`,
	} {
		if got, _, _, _ := DetailsOf(row, Own{Deadline: true}); got != want {
			t.Errorf("of %s: %s, want %s", row, got, want)
		}
	}
}

// Whatever a row holds: what is left is the row without three members.
func FuzzDetailsOf(f *testing.F) {
	f.Add("a", `"x"`, "item", `{"b":[1,"\\"]}`)
	f.Add("slots", `1`, `",item`, `null`)
	f.Fuzz(func(t *testing.T, name, value, other, more string) {
		if !json.Valid([]byte(value)) || !json.Valid([]byte(more)) || name == other || name == "item" {
			t.Skip()
		}
		n, _ := json.Marshal(name)
		o, _ := json.Marshal(other)
		if string(n) == string(o) { // not UTF-8: both are replaced
			t.Skip()
		}
		row := `{` + string(n) + `:` + value + `,"item":"k",` + string(o) + `:` + more + `}`
		var want, got map[string]any
		if json.Unmarshal([]byte(row), &want) != nil {
			t.Skip()
		}
		details, _, _, _ := DetailsOf(row, Own{})
		if err := json.Unmarshal([]byte(details), &got); err != nil {
			t.Fatalf("of %s: %v", row, err)
		}
		maps.DeleteFunc(want, func(k string, _ any) bool { return k == "item" || k == "slots" || k == "exclusive" })
		if !reflect.DeepEqual(got, want) {
			t.Errorf("of %s: %v, want %v", row, got, want)
		}
	})
}
