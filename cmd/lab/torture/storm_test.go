package torture

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"getwork/schema/schematest"
)

// A fault that fails is only counted as one that found nothing to break, so its statement is tried here.
func TestSomeBackends(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	own, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close(t.Context())
	node, err := pgx.Connect(t.Context(), url+"&application_name=torture-0")
	if err != nil {
		t.Fatal(err)
	}
	defer node.Close(t.Context())
	var n int
	if err := own.QueryRow(t.Context(), someBackends, int64(7), 1+uint64(7)%4).Scan(&n); err != nil || n != 1 {
		t.Fatalf("%d were terminated, %v", n, err)
	}
	if err := node.Ping(t.Context()); err == nil {
		t.Error("it lives")
	}
}
