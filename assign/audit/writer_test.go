package audit

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"getwork/assign/pg"
	"getwork/schema/schematest/timeout"
)

// A row has what was done, by whom and from where; what can't be stored is replaced.
func TestRow(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.write(t, Act{Act: "task.update", Object: "verify", Detail: map[string]any{"version": 2, "text": "<ü>", "big": 1e30, "none": nil}})
	ctx := WithActor(t.Context(), Actor{User: "a\x00b\xffc", By: "token", Credential: "t:x", Address: netip.MustParseAddr("::ffff:192.0.2.1")})
	if err := d.WriteAlone(ctx, Act{Act: "log-in", Outcome: Refused, Detail: map[string]string{"na\x00me": "x\x00y", "reason": `\u0000`}}); err != nil {
		t.Fatal(err)
	}
	if err := d.WriteAlone(WithActor(t.Context(), Actor{Address: netip.MustParseAddr("fe80::1%eth0")}), Act{Act: "log-in"}); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range d.rows(t) {
		text := func(s *string) string {
			if s == nil {
				return "-"
			}
			return *s
		}
		got = append(got, fmt.Sprintf("%d %s %q %s %s %s %s %s %s %s", r.N, r.Node, text(r.Actor), text(r.By), text(r.Credential), text(r.Address), r.Act, text(r.Object), r.Outcome, r.Detail))
	}
	want := []string{
		`1 n1 "Mia" session s:1 192.0.2.1 task.update verify done {"big":1000000000000000000000000000000,"none":null,"text":"<ü>","version":2}`,
		`2 n1 "a�b�c" token t:x 192.0.2.1 log-in - refused {"na�me":"x�y","reason":"\\u0000"}`,
		`3 n1 "-" - - fe80::1 log-in - done {}`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	d.wantChain(t, 3)
}

// wantChain checks that the rows are a chain of that length, which ends where audit_head says.
func (d *desk) wantChain(t *testing.T, length int) {
	t.Helper()
	all := d.rows(t)
	if len(all) != length {
		t.Errorf("%d rows, want %d", len(all), length)
	}
	var prev Sum
	for i, r := range all {
		if r.N != int64(i+1) || r.Prev != prev || r.Hash != r.Sum() || i > 0 && r.At.Before(all[i-1].At) {
			t.Fatalf("row %d is %+v", i+1, r)
		}
		prev = r.Hash
	}
	var n int
	var hash Sum
	if err := d.db.QueryRow(t.Context(), selectHead).Scan(&n, &hash); err != nil || n != length || hash != prev {
		t.Errorf("the head: %d %s, %v", n, hash, err)
	}
}

// Many writers make one chain. Each is logged once, with the number and the hash that it has.
func TestManyWriters(t *testing.T) {
	t.Parallel()
	const writers, each = 64, 5
	d := newDesk(t)
	var g errgroup.Group
	for i := range writers {
		g.Go(func() error {
			for j := range each {
				err := pg.Transact(as(t), d.db, func(tx pgx.Tx) error {
					if err := d.Write(as(t), tx, Act{Act: "task.update", Object: fmt.Sprint(i), Detail: map[string]int{"version": j}}); err != nil {
						return err
					}
					if j == 1 {
						return errRefused // which leaves no gap
					}
					return nil
				})
				if err != nil && !errors.Is(err, errRefused) {
					return err
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	d.wantChain(t, writers*(each-1))
	for _, r := range d.rows(t) {
		line := fmt.Sprintf("msg=audit node=n1 n=%d hash=%s act=task.update actor=Mia object=%s outcome=done\n", r.N, r.Hash, *r.Object)
		if strings.Count(d.log.String(), line) != 1 {
			t.Errorf("the log has not once: %s", line)
		}
	}
	if got := d.log.Count("msg=audit "); got != writers*(each-1) {
		t.Errorf("%d lines are logged", got)
	}
}

var errRefused = errors.New("refused")

// Two transactions that deadlock before they write: one is repeated, and each writes one row, and one line.
func TestRepeatedTransaction(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.exec(t, `create table thing (id int primary key); insert into thing values (1), (2)`)
	var g errgroup.Group
	tries := make(chan int, 10)
	first, over := [2]chan struct{}{make(chan struct{}), make(chan struct{})}, [2]chan struct{}{make(chan struct{}), make(chan struct{})}
	for i := range 2 {
		g.Go(func() error {
			defer close(over[i])
			try := 0
			return pg.Transact(as(t), d.db, func(tx pgx.Tx) error {
				try++
				tries <- try
				if try > 1 {
					<-over[1-i]
				}
				if _, err := tx.Exec(t.Context(), `select from thing where id = $1 for update`, 1+i); err != nil {
					return err
				}
				if try == 1 {
					close(first[i])
					<-first[1-i]
				}
				if _, err := tx.Exec(t.Context(), `select from thing where id = $1 for update`, 2-i); err != nil {
					return err
				}
				return d.Write(as(t), tx, Act{Act: "task.update", Object: fmt.Sprint(i)})
			})
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	if len(tries) != 3 {
		t.Errorf("%d tries, want 3: there was no deadlock", len(tries))
	}
	d.wantChain(t, 2)
	if got := d.log.Count("msg=audit "); got != 2 {
		t.Errorf("%d lines are logged, want 2:\n%s", got, d.log)
	}
}

// Another transaction than pg.Transact's does not report when it has committed, so its line does not say that it has.
func TestUncertainLine(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	err := pgx.BeginFunc(t.Context(), d.db, func(tx pgx.Tx) error { return d.Write(as(t), tx, Act{Act: "x"}) })
	if err != nil {
		t.Fatal(err)
	}
	if got := d.log.String(); !strings.HasSuffix(got, "commit=unknown\n") {
		t.Errorf("logged: %s", got)
	}
}

// Without a head nothing is written. The error is none that callers take for a row that is not there.
func TestNoHead(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.exec(t, `delete from getwork.audit_head`)
	err := d.WriteAlone(as(t), Act{Act: "x"})
	if !errors.Is(err, errNoHead) || errors.Is(err, pgx.ErrNoRows) {
		t.Errorf("error %v", err)
	}
}

// An actor's act on an object is written once an hour; what could not be written is tried again.
func TestWriteHourly(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	read := func(actor, object string) error {
		return d.WriteHourly(WithActor(t.Context(), Actor{User: actor}), Act{Act: "pipeline.read", Object: object})
	}
	d.exec(t, `alter table getwork.audit_head rename to gone`)
	if read("Mia", "Oliver") == nil {
		t.Error("it can't have been written")
	}
	d.exec(t, `alter table getwork.gone rename to audit_head`)
	for range 3 {
		for _, pair := range [][2]string{{"Mia", "Oliver"}, {"Mia", "Tracy"}, {"Ada", "Oliver"}} {
			if err := read(pair[0], pair[1]); err != nil {
				t.Fatal(err)
			}
		}
	}
	d.wantChain(t, 3)
	for key := range d.hourly {
		d.hourly[key] = d.hourly[key].Add(-hour)
	}
	if err := read("Mia", "Oliver"); err != nil {
		t.Fatal(err)
	}
	d.wantChain(t, 4)
}

// Nobody changes or removes rows by accident.
func TestRowsStay(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.write(t, Act{Act: "x"})
	for _, sql := range []string{
		`update getwork.audit set act = 'y'`,
		`update getwork.audit set n = n`,
		`delete from getwork.audit`,
		`truncate getwork.audit`,
		`begin; set local getwork_audit.cut = 'yes'; update getwork.audit set act = 'y'; commit`,
		`begin; set local getwork_audit.cut = 'yes'; truncate getwork.audit; commit`,
	} {
		if _, err := d.db.Exec(t.Context(), sql); err == nil || !strings.Contains(err.Error(), "never changed or removed") {
			t.Errorf("%s: %v", sql, err)
		}
	}
	d.wantChain(t, 1)
}

// The end of the chain is logged at once.
func TestRun(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.write(t, Act{Act: "x"})
	ctx, end := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	line := fmt.Sprintf("msg=\"audit head\" node=n1 n=1 hash=%s\n", d.rows(t)[0].Hash)
	timeout.Await(t, "the end is logged", func() bool { return strings.Contains(d.log.String(), line) })
	end()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
