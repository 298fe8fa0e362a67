package schema_test

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"getwork/schema"
	"getwork/schema/schematest"
)

var update = flag.Bool("schema.update", false, "write indexes.txt")

// The list of indexes is what the migrations make. After a migration that changes some, execute
// go test -run TestIndexes ./schema -schema.update
func TestIndexes(t *testing.T) {
	t.Parallel()
	pool := schematest.Pool(t)
	const list = `select regexp_replace(pg_get_indexdef(indexrelid), '\s+', ' ', 'g') from pg_index join pg_class c on c.oid = indrelid where c.relnamespace = 'getwork'::regnamespace
and c.relname <> 'schema_version' order by 1`
	rows, err := pool.Query(t.Context(), list)
	if err != nil {
		t.Fatal(err)
	}
	made, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile("indexes.txt", []byte(strings.Join(made, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	var listed []string
	for _, i := range schema.Indexes(schema.Default) {
		if !strings.Contains(i.Definition, " INDEX "+i.Name+" ON getwork.") {
			t.Errorf("the index %q is read from %q", i.Name, i.Definition)
		}
		listed = append(listed, i.Definition)
	}
	if diff := cmp.Diff(made, listed); diff != "" {
		t.Errorf("indexes.txt is not what the migrations make (-made +listed); go test -run TestIndexes ./schema -schema.update writes it\n%s", diff)
	}
	if other := schema.Indexes("other")[0].Definition; !strings.Contains(other, ` ON "other".`) {
		t.Errorf("in another schema: %s", other)
	}
}
