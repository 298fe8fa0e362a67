package serve

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"getwork/schema/schematest"
)

// A node that starts warns of a group in --grant that nobody has had, once somebody has come in, and of tokens that end soon; and
// under --auth dev, of users who log in at other nodes.
func TestWarningsOfRights(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	at := newBank(t, func(i *Identity) { i.Grant = append(append([]string{}, i.Grant...), "observer=loan-audti") })
	if n := at.said("in a group of --grant"); n != 0 {
		t.Errorf("%d warnings before anybody came in", n)
	}
	b := newBrowser(t)
	b.logIn(at, "0001", "/")
	b.token(at)
	soon, ended, brief := b.token(at), b.token(at), b.token(at)
	db, err := pgx.Connect(t.Context(), at.database)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close(context.WithoutCancel(t.Context()))
	for _, token := range []string{soon, ended} {
		if _, err := db.Exec(t.Context(), "update getwork.token set created_at = clock_timestamp() - interval '2 days', expires_at = clock_timestamp() + interval '13 days' where id = $1", token[3:15]); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := db.Exec(t.Context(), "update getwork.token set expires_at = clock_timestamp() + interval '5 hours' where id = $1", brief[3:15]); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec(t.Context(), "update getwork.token set ended_at = clock_timestamp(), ended_by = 'x' where id = $1", ended[3:15]); err != nil {
		t.Fatal(err)
	}
	again := runs(t, Command{DatabaseURL: at.database, Identity: at.identity, Queries: Queries{TrustQueryWriters: true}})
	for text, want := range map[string]int{"in a group of --grant": 3, "group=loan-desk": 0, "group=loan-audti": 1, "ends within 14 days": 1, "token=" + soon[3:15]: 1, soon: 0} {
		if n := again.said(text); n != want {
			t.Errorf("it said %q %d times, want %d", text, n, want)
		}
	}
	const believes = "believes every name that it is told"
	dev := runs(t, Command{DatabaseURL: at.database, Identity: Identity{Auth: "dev"}})
	alone := runs(t, Command{DatabaseURL: schematest.Plain(t), Identity: Identity{Auth: "dev"}})
	if beside, own, asks := dev.said(believes), alone.said(believes), again.said(believes); beside != 1 || own+asks != 0 {
		t.Errorf("of users who log in: %d warnings beside them, %d without any, %d where they log in", beside, own, asks)
	}
}
