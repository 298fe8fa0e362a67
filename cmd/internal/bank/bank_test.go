package bank_test

import (
	"context"
	"errors"
	"net"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"getwork/cmd/internal/bank"
	"getwork/schema/schematest"
)

func TestMain(m *testing.M) { os.Exit(schematest.Main(m)) }

var small = bank.Options{Loans: 60}

var tables = []string{"person", "account", "loan", "transaction", "statement", "income_declaration", "instalment", "sample"}

func connect(t *testing.T) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), schematest.Empty(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	if _, err := conn.Exec(t.Context(), `set timezone = 'UTC'`); err != nil {
		t.Fatal(err)
	}
	return conn
}

func load(t *testing.T, conn *pgx.Conn, opt bank.Options) {
	t.Helper()
	if err := bank.Load(t.Context(), conn, opt, nil); err != nil {
		t.Fatal(err)
	}
}

func value[T any](t *testing.T, conn *pgx.Conn, query string) T {
	t.Helper()
	var v T
	if err := conn.QueryRow(t.Context(), query).Scan(&v); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return v
}

func checksums(t *testing.T, conn *pgx.Conn) map[string]string {
	t.Helper()
	sums := map[string]string{}
	for _, table := range tables {
		sums[table] = value[string](t, conn, `select count(*) || ' ' || md5(string_agg(t::text, e'\n' order by t::text collate "C")) from bank.`+table+` t`)
	}
	return sums
}

// The sums are constants, so that a change of the rows is noticed: it needs a new edition, or old data directories keep
// the old bank.
func TestSameRowsEachTime(t *testing.T) {
	t.Parallel()
	want := map[string]string{
		"person":             "80 21af470b2ece2967e69c3beb1317aab1",
		"account":            "90 e6e0c278a6c9aa1b7bbc1ef81656df74",
		"loan":               "60 2bed4308a49cf3c8f9ab68423a4c923b",
		"transaction":        "20506 0a59288b324de34c685eaa757ec8ddf6",
		"statement":          "360 ee6a118ec515247e144433a55bb66e85",
		"income_declaration": "60 5b0795bb2cb3581a5407d1861716695f",
		"instalment":         "1464 a91fc014ac04e180dbba9e585bc72ae7",
		"sample":             "1 343766e64a5028dbd22bdf59ddd83f69",
	}
	conn := connect(t)
	load(t, conn, small)
	first := checksums(t, conn)
	if diff := cmp.Diff(want, first); diff != "" {
		t.Errorf("rows changed: raise edition (-want +got)\n%s", diff)
	}
	load(t, conn, small)
	if diff := cmp.Diff(first, checksums(t, conn)); diff != "" {
		t.Errorf("second load differs (-first +second)\n%s", diff)
	}
}

func TestLoaded(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	loaded := func(opt bank.Options) bool {
		t.Helper()
		ok, err := bank.Loaded(t.Context(), conn, opt)
		if err != nil {
			t.Fatal(err)
		}
		return ok
	}
	if loaded(small) {
		t.Error("loaded in an empty database")
	}
	var steps int
	err := bank.Load(t.Context(), conn, small, func(_ string, done, total int64) {
		steps++
		if done < 0 || done > total {
			t.Errorf("progress %d of %d", done, total)
		}
	})
	if err != nil || steps == 0 {
		t.Fatalf("load: %v after %d reports of progress", err, steps)
	}
	if !loaded(small) {
		t.Error("not loaded after Load")
	}
	if loaded(bank.Options{Loans: 61}) {
		t.Error("another size counts as loaded")
	}
}

// An interrupted load leaves what was there before it.
func TestInterruptedLoadChangesNothing(t *testing.T) {
	t.Parallel()
	url := schematest.Empty(t)
	for _, c := range []struct {
		at     string
		before bool
	}{{"write transaction rows", false}, {"analyze", false}, {"write transaction rows", true}, {"analyze", true}} {
		ctx, stop := context.WithCancel(t.Context())
		conn, err := pgx.Connect(ctx, url)
		if err != nil {
			t.Fatal(err)
		}
		err = bank.Load(ctx, conn, bank.Options{Loans: 70}, func(step string, done, total int64) {
			if step == c.at && (done > 0 || total == 1) {
				stop()
			}
		})
		stop()
		_ = conn.Close(context.Background())
		if !errors.Is(err, context.Canceled) && !errors.Is(err, net.ErrClosed) { // a copy that is writing says the latter
			t.Fatalf("load interrupted at %q: %v", c.at, err)
		}
		fresh, err := pgx.Connect(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		got, err := bank.Loaded(t.Context(), fresh, small)
		if err != nil || got != c.before {
			t.Errorf("the former bank is there: %v, %v; want %v", got, err, c.before)
		}
		if c.at == "analyze" && !c.before {
			load(t, fresh, small)
		}
		_ = fresh.Close(context.Background())
	}
}

func TestForeignSchemaIsKept(t *testing.T) {
	t.Parallel()
	conn := connect(t)
	if _, err := conn.Exec(t.Context(), `create schema bank; create table bank.vault as select 1 as gold`); err != nil {
		t.Fatal(err)
	}
	if err := bank.Load(t.Context(), conn, small, nil); !errors.Is(err, bank.ErrForeign) {
		t.Errorf("load over a foreign schema: %v", err)
	}
	if got := value[int](t, conn, `select gold from bank.vault`); got != 1 {
		t.Errorf("gold = %d", got)
	}
}

func TestBooksAreConsistent(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	conn := connect(t)
	load(t, conn, bank.Options{Loans: 240})
	none := map[string]string{
		"lines whose balance is not the sum so far": `
			select count(*) from (select balance, sum(amount) over (partition by account_id order by transaction_id) as due from bank.transaction) t where balance <> due`,
		"lines booked before the one in front of them": `
			select count(*) from (select booked_on, lag(booked_on) over (partition by account_id order by transaction_id) as former from bank.transaction) t where booked_on < former`,
		"lines outside the account's life": `
			select count(*) from bank.transaction join bank.account using (account_id), bank.sample where booked_on < opened or booked_on > business_day`,
		"verified statements that are wrong": `
			select count(*) from bank.statement s where verified_at is not null and closing_balance is distinct from
				(select sum(amount) from bank.transaction t where t.account_id = s.account_id and t.booked_on < s.month + interval '1 month')`,
		"moments after the business day": `
			select count(*) from bank.statement, bank.sample where greatest(submitted_at, verified_at) >= business_day + 1`,
		"account numbers that fail the check": `
			select count(*) from bank.account where (substr(iban, 5) || '3311' || substr(iban, 3, 2))::numeric % 97 <> 1`,
		"repaid loans that are short": `
			select count(*) from bank.loan l where status = 'repaid' and (select sum(amount) from bank.instalment i where i.loan_id = l.loan_id) <>
				(select -sum(amount) from bank.transaction t where t.account_id = l.account_id and kind = 'loan_payment')`,
	}
	for what, query := range none {
		if n := value[int](t, conn, query); n != 0 {
			t.Errorf("%s: %d", what, n)
		}
	}
	some := map[string]string{
		"missing statements":  `select count(*) from bank.statement where submitted_at is null`,
		"waiting statements":  `select count(*) from bank.statement where submitted_at is not null and verified_at is null`,
		"verified statements": `select count(*) from bank.statement where verified_at is not null`,
		"wrong statements": `
			select count(*) from bank.statement s where closing_balance <>
				(select sum(amount) from bank.transaction t where t.account_id = s.account_id and t.booked_on < s.month + interval '1 month')`,
	}
	for what, query := range some {
		if n := value[int](t, conn, query); n == 0 {
			t.Errorf("no %s", what)
		}
	}
}
