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

var update = flag.Bool("schema.update", false, "write objects.txt")

// The list of objects is what the migrations make, whatever the schema is called. After a migration, execute
// go test -run TestObjects ./schema -schema.update
func TestObjects(t *testing.T) {
	t.Parallel()
	for _, name := range []schema.Name{schema.Default, "order"} {
		conn, err := pgx.Connect(t.Context(), schematest.Empty(t))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(t.Context())
		if err := schema.Create(t.Context(), conn, name); err != nil {
			t.Fatal(err)
		}
		if err := schema.MigrateTo(t.Context(), conn, name, schema.Released, nil); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Exec(t.Context(), `set standard_conforming_strings = off; set intervalstyle = 'iso_8601'; set search_path = getwork`); err != nil { // as a server or a login may have them
			t.Fatal(err)
		}
		made, err := schema.Inventory(t.Context(), conn, name)
		if err != nil {
			t.Fatal(err)
		}
		if *update && name == schema.Default {
			var b strings.Builder
			for _, o := range made {
				b.WriteString(strings.Join([]string{o.Kind, o.Table, o.Name, o.Definition}, "\t") + "\n")
			}
			if err := os.WriteFile("objects.txt", []byte(b.String()), 0o644); err != nil {
				t.Fatal(err)
			}
			return
		}
		if diff := cmp.Diff(made, schema.Objects(name)); diff != "" {
			t.Errorf("%s: objects.txt is not what the migrations make (-made +listed); go test -run TestObjects ./schema -schema.update writes it\n%s", name, diff)
		}
	}
}
