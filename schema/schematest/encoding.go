package schematest

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// Encoded returns the URL of a migrated database for this test alone with another encoding than UTF-8, such as LATIN1 or
// SQL_ASCII. The database is dropped after the test.
func Encoded(t testing.TB, encoding string) string {
	t.Helper()
	address, err := url.Parse(URL(t)) // its login may make databases
	if err != nil {
		t.Fatal(err)
	}
	admin := address.String()
	address.Path = "/" + strings.ToLower(encoding) + address.Path[strings.LastIndex(address.Path, "_"):] // names have at most 63 bytes
	name := pgx.Identifier{strings.TrimPrefix(address.Path, "/")}.Sanitize()
	make := fmt.Sprintf(`create database %s template template0 encoding '%s' lc_collate 'C' lc_ctype 'C'`, name, encoding)
	if err := execute(t.Context(), admin, make); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := execute(context.Background(), admin, `drop database `+name+` with (force)`); err != nil {
			t.Error(err)
		}
	})
	if err := migrateUp(t.Context(), address.String()); err != nil {
		t.Fatal(err)
	}
	return address.String()
}
