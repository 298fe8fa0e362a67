package bank_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"getwork/cmd/internal/bank"
	"getwork/schema/schematest"
)

// ranked runs a task's query as getwork does. It returns the items in order, and all rows as text.
func ranked(t *testing.T, conn *pgx.Conn, task bank.Task) (items, rows []string) {
	t.Helper()
	query := fmt.Sprintf("select r.item::text, r::text from (select row_number() over () as rank, q.* from (\n%s\n) q) r order by rank", task.Query)
	got, err := conn.Query(t.Context(), query)
	if err != nil {
		t.Fatal(err)
	}
	var item, row string
	if _, err := pgx.ForEachRow(got, []any{&item, &row}, func() error {
		items, rows = append(items, item), append(rows, row)
		return nil
	}); err != nil {
		t.Fatalf("%s: %v", task.Name, err)
	}
	return items, rows
}

func TestTasks(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	load(t, conn, bank.Options{Loans: 120})
	// These conditions define "best first" on the columns of the result; a row that meets one is out of order.
	misplaced := map[string]string{
		"verify-bank-account": `(submitted_at, item) < (lag(submitted_at) over w, lag(item) over w)`,
		"check-income":        `(-overstated_percent, submitted_at, item) < (lag(-overstated_percent) over w, lag(submitted_at) over w, lag(item) over w)`,
		"review-arrears":      `(-days_overdue, -overdue, item) < (lag(-days_overdue) over w, lag(-overdue) over w, lag(item) over w)`,
	}
	for _, task := range bank.Tasks(false) {
		t.Run(task.Name, func(t *testing.T) {
			items, _ := ranked(t, conn, task)
			if len(items) < 3 {
				t.Fatalf("only %d items", len(items))
			}
			seen := map[string]bool{}
			for _, item := range items {
				if seen[item] {
					t.Errorf("item %s twice", item)
				}
				seen[item] = true
			}
			wrong := value[int](t, conn, fmt.Sprintf(
				"select count(*) from (select %s as wrong from (select row_number() over () as rank, q.* from (\n%s\n) q) r window w as (order by rank)) x where wrong",
				misplaced[task.Name], task.Query))
			if wrong != 0 {
				t.Errorf("%d items out of order", wrong)
			}
			rows, err := conn.Query(t.Context(), "select * from (\n"+task.Query+"\n) q limit 0")
			if err != nil {
				t.Fatal(err)
			}
			rows.Close()
			for _, f := range task.Display.Fields {
				if !slices.ContainsFunc(rows.FieldDescriptions(), func(c pgconn.FieldDescription) bool { return c.Name == f.Column }) {
					t.Errorf("column %q is to be shown, but the query has none of that name", f.Column)
				}
			}
		})
	}
}

func TestHeavierFindsTheSame(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	conn := connect(t)
	load(t, conn, small)
	_, light := ranked(t, conn, bank.Tasks(false)[0])
	_, heavy := ranked(t, conn, bank.Tasks(true)[0])
	if diff := cmp.Diff(light, heavy); diff != "" {
		t.Errorf("(-light +heavier)\n%s", diff)
	}
}

// The task's query finds the same loans as the plainest query.
func TestWaitingLoans(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	conn := connect(t)
	load(t, conn, bank.Options{Loans: 120})
	items, _ := ranked(t, conn, bank.Tasks(false)[0])
	rows, err := conn.Query(t.Context(), `
		select l.loan_id::text
		  from bank.loan l join bank.statement s using (account_id)
		 where l.status in ('submitted', 'in_review') and s.submitted_at is not null and s.verified_at is null
		 group by l.loan_id order by min(s.submitted_at), l.loan_id`)
	if err != nil {
		t.Fatal(err)
	}
	want, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, items); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
