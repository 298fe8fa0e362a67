package engine

import (
	"testing"

	"getwork/schema/schematest"
)

// The database goes away between the read of a request and that of its work. There must be no answer, since it would say that
// the user holds two items, and show none.
func TestARequestWithoutItsWorkIsNoAnswer(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	db := pool(t, url)
	newTask(t, n, "task", `select i as item from generate_series(1, 9) i`, nil)
	id := n.endedRequest(t, n.click(t, "task", "ann", 2).ID).ID

	tx, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(t.Context())
	if _, err := tx.Exec(t.Context(), `lock table getwork.work in access exclusive mode`); err != nil {
		t.Fatal(err)
	}
	batch := []*click{{id: id}}
	done := make(chan struct{})
	go func() { (recorder{n.Engine}).answer(t.Context(), 0, batch); close(done) }()
	const cut = `select count(pg_terminate_backend(pid)) > 0 from pg_locks where database = (select oid from pg_database where datname = current_database()) and relation = 'getwork.work'::regclass and not granted`
	await(t, "the reading of its work is cut off", func() bool { return query[bool](t, db, cut) })
	<-done
	if k := batch[0]; k.err == nil || k.answer != nil {
		t.Errorf("answered with %+v, %v", k.answer, k.err)
	}
}
