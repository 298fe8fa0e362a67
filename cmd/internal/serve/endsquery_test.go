package serve

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"getwork/cmd/internal/idp"
	"getwork/schema/schematest"
	"getwork/schema/schematest/timeout"
)

// A preview or an explanation whose query is under way when its manager's rights end shows nothing of what the query finds, and the
// query is cancelled, within two seconds. After a change of groups the client asks again.
func TestQueriesEndWithRights(t *testing.T) {
	t.Parallel()
	direct := schematest.Plain(t)
	at := newBankOf(t, append(visitors(), idp.Person{Sub: "mona", Name: "mona", Groups: []string{"loan-managers"}}), Command{DatabaseURL: direct},
		func(i *Identity) { i.TrustedProxy = []string{"127.0.0.1"} })
	o := &office{at: at, nodes: []running{at.running, at.beside(t, Command{DatabaseURL: direct})}}
	o.ready(t, direct)
	gate, err := o.db.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(gate.Release)
	for _, sql := range []string{`select pg_advisory_lock(7)`,
		`create function gated() returns text language plpgsql as $$ begin perform pg_advisory_xact_lock_shared(7); return 'L-1'; end $$`} {
		if _, err := gate.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	v := &visit{T: t, office: o}
	if err := v.call(o.nodes[0], "POST", "/api/v1/tasks", `{"name":"gated","query":"select gated() as item"}`, o.admin); err != nil {
		t.Fatal(err)
	}

	for _, end := range []struct {
		name, says string
		status     int
		by         func(*visit) error
	}{
		{"other groups", "ask again", http.StatusServiceUnavailable, func(v *visit) error { return v.regrouped("loan-managers", "new") }},
		{"log-out", "log in again", http.StatusUnauthorized, func(v *visit) error { return v.post(v.there, "/auth/logout", v.session) }},
		{"block", "blocked", http.StatusForbidden, func(v *visit) error {
			return v.call(v.there, "PATCH", "/api/v1/users/mona", `{"blocked":true}`, v.admin)
		}},
	} {
		t.Run(end.name, func(t *testing.T) {
			v := o.visit(t, "mona")
			v.there = o.nodes[1]
			calls := []string{"POST /api/v1/tasks/gated/preview", "GET /api/v1/tasks/gated/items/L-1"}
			answers := make(chan seen, len(calls))
			for i, call := range calls {
				method, path, _ := strings.Cut(call, " ")
				at := o.nodes[i] // a node executes one of them at a time
				go func() {
					status, text, err := v.do(at, method, path, "", v.header(at, v.session))
					answers <- seen{fmt.Sprint(status, " ", text, " ", call, " ", err), time.Now()}
				}()
			}
			timeout.Await(t, "both queries run", func() bool { return waitingAtGate(t, o.db) == len(calls) })
			stood := standstill(t)
			if err := end.by(v); err != nil {
				t.Fatal(err)
			}
			ended := time.Now()
			for range calls {
				select {
				case got := <-answers:
					if !strings.HasPrefix(got.how, fmt.Sprint(end.status)) || !strings.Contains(got.how, end.says) || got.at.Sub(ended)-stood() > timeout.Scale(2*time.Second) {
						t.Errorf("after %v: %s; want %d, %q, within two seconds", got.at.Sub(ended), got.how, end.status, end.says)
					}
				case <-time.After(timeout.Scale(10 * time.Second)):
					t.Fatal("a call is not answered")
				}
			}
			timeout.Await(t, "the queries end", func() bool { return waitingAtGate(t, o.db) == 0 })
		})
	}
}

// waitingAtGate returns how many sessions wait for an advisory lock in this database.
func waitingAtGate(t *testing.T, db *pgxpool.Pool) int {
	t.Helper()
	rows, err := db.Query(t.Context(), `select count(*) from pg_locks where locktype = 'advisory' and not granted
		and database = (select oid from pg_database where datname = current_database())`)
	if err != nil {
		t.Fatal(err)
	}
	n, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[int])
	if err != nil {
		t.Fatal(err)
	}
	return n
}
