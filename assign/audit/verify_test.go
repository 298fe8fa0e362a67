package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// verify returns what is found, and what was read.
func (d *desk) verify(t *testing.T, log *Log) (found []string, c Checked) {
	t.Helper()
	c, err := Verify(t.Context(), d.db, nil, log, func(f Finding) { found = append(found, f.String()) })
	if err != nil {
		t.Fatal(err)
	}
	return found, c
}

// logged returns what the desk's log says.
func (d *desk) logged(t *testing.T) *Log {
	t.Helper()
	log, err := ReadLog(strings.NewReader(d.log.String()))
	if err != nil {
		t.Fatal(err)
	}
	return log
}

// wantClean checks that nothing is found, with the log and without.
func (d *desk) wantClean(t *testing.T, rows int64) {
	t.Helper()
	for _, log := range []*Log{nil, d.logged(t)} {
		if found, c := d.verify(t, log); len(found) > 0 || c.Rows != rows || c.Unlogged > 0 {
			t.Errorf("found %q in %+v, want nothing in %d rows", found, c, rows)
		}
	}
}

// fill writes rows.
func (d *desk) fill(t *testing.T, rows int) {
	t.Helper()
	for i := range rows {
		d.write(t, Act{Act: "task.update", Object: "verify", Detail: map[string]any{"version": i, "n": 1.50, "text": "ü<&>", "list": []any{nil, true}}})
	}
}

// tampering is what somebody who owns the tables does.
const untrigger = `alter table getwork.audit disable trigger all; `

// rewrite makes the chain right again from row n on, as somebody would who knows how.
func (d *desk) rewrite(t *testing.T, from int64) {
	t.Helper()
	var prev Sum
	for _, r := range d.rows(t) {
		if r.N >= from {
			if r.N > 1 {
				r.Prev = prev
			}
			r.Hash = r.Sum()
			d.exec(t, `update getwork.audit set prev = $2, hash = $3 where n = $1`, r.N, r.Prev[:], r.Hash[:])
		}
		prev = r.Hash
		d.exec(t, `update getwork.audit_head set n = $1, hash = $2`, r.N, r.Hash[:])
	}
}

// Whatever somebody who owns the tables changes is found. Each case says what is found without the log, and with it.
func TestTampering(t *testing.T) {
	t.Parallel()
	after := func(n int, what string) string { return fmt.Sprintf("row %d: %s", n, what) }
	type tampering struct {
		name          string
		sql           string // of ten rows
		rewrite       int64  // from that row on
		without, with string // with: empty: the same
	}
	cases := []tampering{
		{"nothing", ``, 0, "", ""},
		{"a row is missing", `delete from getwork.audit where n = 5`, 0, after(5, missing), ""},
		{"rows are missing", `delete from getwork.audit where n in (3, 4, 5, 8)`, 0, "rows 3 to 5: " + missing + "\n" + after(8, missing), ""},
		{"the first row is missing", `delete from getwork.audit where n = 1`, 0, after(1, uncut), ""},
		{"the first rows are missing", `delete from getwork.audit where n < 4`, 0, "rows 1 to 3: " + uncut, ""},
		{"the end is missing", `delete from getwork.audit where n > 8`, 0, "rows 9 to 10: " + cutTail, ""},
		{"the end is missing, and the head knows nothing of it", `delete from getwork.audit where n > 8; update getwork.audit_head h set n = a.n, hash = a.hash from getwork.audit a where a.n = 8`, 0,
			"", "rows 9 to 10: " + loggedCutTail},
		{"all is missing", `truncate getwork.audit`, 0, "rows 1 to 10: " + cutTail, ""},
		{"all is missing, and the head knows nothing of it", `truncate getwork.audit; update getwork.audit_head set n = 0, hash = decode(repeat('00', 32), 'hex')`, 0, "", "rows 1 to 10: " + loggedCutTail},
		{"a row is missing and the others are renumbered", `delete from getwork.audit where n = 5; update getwork.audit set n = n - 1 where n > 5`, 0,
			after(5, unchained) + "\nrows 5 to 9: " + changed + "\n" + after(10, cutTail), "rows 5 to 9: " + notAsLogged},
		{"two numbers are swapped", `update getwork.audit set n = -4 where n = 4; update getwork.audit set n = 4 where n = 6; update getwork.audit set n = 6 where n = -4`, 0,
			after(4, "swapped with row 6") + "\n" + after(4, changed) + "\n" + after(6, changed) + "\nrows 4 to 7: " + unchained, after(4, notAsLogged) + "\n" + after(6, notAsLogged)},
		{"the fields of two rows are swapped", `update getwork.audit a set at = b.at, object = b.object, detail = b.detail from getwork.audit b where a.n = 10 - b.n and a.n in (4, 6)`, 0,
			after(4, "swapped with row 6") + "\n" + after(4, changed) + "\n" + after(6, changed), ""},
		{"a row is inserted before the first", `insert into getwork.audit select 0, at, node, actor, by, credential, address, act, object, outcome, detail, prev, hash from getwork.audit where n = 1`, 0, after(0, inserted), ""},
		{"a row is inserted after the last", `insert into getwork.audit select 11, at, node, actor, by, credential, address, act, object, outcome, detail, prev, hash from getwork.audit where n = 10`, 0,
			after(11, changed) + "\n" + after(11, unchained) + "\n" + after(11, behind), ""},
		{"a right row is inserted after the last, beside the head", `with h as (update getwork.audit_head set n = 9, hash = (select hash from getwork.audit where n = 9)) select 1`, 0, after(10, behind), ""},
		{"a row is inserted between, and the others are renumbered", `update getwork.audit set n = n + 1000 where n > 5; update getwork.audit set n = n - 999 where n > 1000;
			insert into getwork.audit select 6, at, node, actor, by, credential, address, act, object, outcome, detail, hash, prev from getwork.audit where n = 5`, 0,
			"rows 6 to 11: " + changed + "\n" + after(7, unchained) + "\n" + after(11, behind), "rows 6 to 10: " + notAsLogged},
		{"a hash is changed", `update getwork.audit set hash = sha256('x') where n = 5`, 0, after(5, changed) + "\n" + after(6, unchained), after(5, notAsLogged)},
		{"the first prev is changed", `update getwork.audit set prev = sha256('x') where n = 1`, 0, after(1, changed) + "\n" + after(1, unchained), ""},
		{"a prev is changed", `update getwork.audit set prev = sha256('x') where n = 5`, 0, after(5, changed) + "\n" + after(5, unchained), ""},
		{"the head's hash is changed", `update getwork.audit_head set hash = sha256('x')`, 0, after(10, otherHead), ""},
		{"the head is gone", `delete from getwork.audit_head`, 0, headless, ""},
		{"the chain is written anew from a row on", `update getwork.audit set actor = 'Ada' where n = 5`, 5, "", "rows 5 to 10: " + notAsLogged},
		{"the whole chain is written anew", `update getwork.audit set actor = 'Ada'`, 1, "", "rows 1 to 10: " + notAsLogged},
		{"a row is missing, and the chain is written anew", `delete from getwork.audit where n = 5; update getwork.audit set n = n - 1 where n > 5`, 5, "", "rows 5 to 9: " + notAsLogged + "\n" + after(10, loggedCutTail)},
	}
	for column, value := range map[string]string{"at": `at + interval '1 microsecond'`, "node": `'n2'`, "actor": `'Ada'`, "by": `'token'`, "credential": `null`, "address": `'192.0.2.0/24'`,
		"act": `'task.create'`, "object": `''`, "outcome": `'refused'`, "detail": `detail || '{"version":99}'`} {
		cases = append(cases, tampering{"changed: " + column, fmt.Sprintf(`update getwork.audit set %s = %s where n = 5`, column, value), 0, after(5, changed), ""})
		if column != "at" {
			cases = append(cases, tampering{"changed to null: " + column, fmt.Sprintf(`alter table getwork.audit alter %[1]s drop not null; update getwork.audit set %[1]s = '' where n = 5`, column), 0, after(5, changed), ""})
		}
	}
	cases = append(cases, tampering{"never", `update getwork.audit set at = 'infinity' where n = 5`, 0, after(5, changed), ""})
	d := newDesk(t)
	d.fill(t, 10)
	if err := d.tellHead(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.exec(t, untrigger+`create table kept as select * from getwork.audit; create table kept_head as select * from getwork.audit_head`)
	for _, tt := range cases {
		if strings.HasPrefix(tt.name, "changed to null") && (strings.HasSuffix(tt.name, "address") || strings.HasSuffix(tt.name, "detail")) {
			continue // have no empty text
		}
		d.exec(t, `truncate getwork.audit, getwork.audit_head; insert into getwork.audit select * from kept; insert into getwork.audit_head select * from kept_head`)
		d.exec(t, tt.sql)
		if tt.rewrite > 0 {
			d.rewrite(t, tt.rewrite)
		}
		want := map[string]bool{}
		for line := range strings.Lines(tt.without) {
			want[strings.TrimSpace(line)] = true
		}
		found, _ := d.verify(t, nil)
		wantSet(t, tt.name+", without the log", found, want)
		for line := range strings.Lines(tt.with) {
			want[strings.TrimSpace(line)] = true
		}
		found, _ = d.verify(t, d.logged(t))
		wantSet(t, tt.name+", with the log", found, want)
	}
}

func wantSet(t *testing.T, name string, found []string, want map[string]bool) {
	t.Helper()
	got := map[string]bool{}
	for _, f := range found {
		got[f] = true
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s: (-want +got)\n%s", name, diff)
	}
}

// A chain grows over rows that were cut, and only over those.
func TestCut(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.fill(t, 4)
	before := d.rows(t)[3].At
	d.fill(t, 2)
	d.exec(t, `create table cut_at as select at from getwork.audit where n = 5`)
	d.wantClean(t, 6)

	var lines bytes.Buffer
	encoder := json.NewEncoder(&lines)
	encoder.SetEscapeHTML(false) // the hash is of the unescaped text
	exported, err := Export(t.Context(), d.db, nil, before, func(r Row) error { return encoder.Encode(r) })
	if err != nil || exported.Rows != 3 || exported.From != 1 || exported.To != 3 {
		t.Fatalf("%+v, %v", exported, err)
	}
	d.wantExported(t, &lines, 1, 3)
	n, err := d.Cut(t.Context(), exported, before)
	if err != nil || n != 7 {
		t.Fatalf("row %d, %v", n, err)
	}
	d.wantClean(t, 4) // 4 to 7
	d.exec(t, `begin; set local getwork_audit.cut = 'yes'; create table kept as select * from getwork.audit; delete from getwork.audit where n in (4, 5); commit`)
	found, _ := d.verify(t, nil)
	wantSet(t, "more is gone than was cut", found, map[string]bool{"rows 4 to 5: " + uncut: true})
	d.exec(t, `insert into getwork.audit select * from kept where n in (4, 5); drop table kept`)
	if _, err := d.Cut(t.Context(), exported, before); !errors.Is(err, errMoved) {
		t.Errorf("cut twice: %v", err)
	}
	forged, err := ReadLog(strings.NewReader(strings.Replace(d.log.String(), exported.Hash.String(), Sum{}.String(), 1)))
	if err != nil {
		t.Fatal(err)
	}
	found, _ = d.verify(t, forged)
	wantSet(t, "the last row that was cut was another", found, map[string]bool{"row 3: " + notAsLogged: true})
	d.fill(t, 2)
	d.wantClean(t, 6)

	// All that is there, the row about the first cut too.
	if exported, err = Export(t.Context(), d.db, nil, time.Time{}, func(Row) error { return nil }); err != nil || exported.Rows != 6 {
		t.Fatalf("%+v, %v", exported, err)
	}
	if n, err = d.Cut(t.Context(), exported, time.Now()); err != nil || n != 10 {
		t.Fatalf("row %d, %v", n, err)
	}
	d.wantClean(t, 1)
	d.fill(t, 3)
	d.wantClean(t, 4)

	for _, tt := range []struct{ name, sql, want string }{
		{"one more than the cut's row is gone", `delete from getwork.audit where n <= 11`, "rows 1 to 11: " + uncut},
		{"the cut's row is gone", `delete from getwork.audit where n = 10`, "rows 1 to 10: " + uncut},
		{"cut rows are back", `insert into getwork.audit select 9, at, node, actor, by, credential, address, act, object, outcome, detail, prev, hash from kept where n = 10`,
			"rows 1 to 8: " + uncut + "; row 9: " + changed + "; row 10: " + notCut + "; row 10: " + unchained},
	} {
		d.exec(t, `alter table getwork.audit disable trigger all; create table kept as select * from getwork.audit`)
		d.exec(t, tt.sql)
		found, _ := d.verify(t, nil)
		want := map[string]bool{}
		for line := range strings.SplitSeq(tt.want, "; ") {
			want[line] = true
		}
		wantSet(t, tt.name, found, want)
		d.exec(t, `truncate getwork.audit; insert into getwork.audit select * from kept; drop table kept`)
	}

	// A second cut whose row is there, and rows after it that nobody cut.
	exported, err = Export(t.Context(), d.db, nil, time.Time{}, func(r Row) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Cut(t.Context(), exported, time.Now()); err != nil {
		t.Fatal(err)
	}
	d.fill(t, 3)
	d.exec(t, `delete from getwork.audit where n = 14`)
	found, _ = d.verify(t, nil)
	wantSet(t, "the row of the cut is gone", found, map[string]bool{"rows 1 to 14: " + uncut: true})
}

// wantExported checks that lines have the rows, as another program would read them.
func (d *desk) wantExported(t *testing.T, lines io.Reader, first, last int64) {
	t.Helper()
	var prev Sum
	n := first
	for decoder := json.NewDecoder(lines); ; n++ {
		var r Row
		if err := decoder.Decode(&r); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if r.N != n || r.Sum() != r.Hash || n > first && r.Prev != prev {
			t.Errorf("exported %+v", r)
		}
		prev = r.Hash
	}
	if n-1 != last {
		t.Errorf("exported up to %d, want %d", n-1, last)
	}
}

// The clock was set back: what is cut is still the beginning of the chain, and nothing in it is younger.
func TestExportBeforeAClockChange(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.fill(t, 5)
	d.exec(t, untrigger+`update getwork.audit set at = '2001-01-01'; update getwork.audit set at = '2002-01-01' where n = 3`)
	exported, err := Export(t.Context(), d.db, nil, time.Date(2001, 6, 1, 0, 0, 0, 0, time.UTC), func(Row) error { return nil })
	if err != nil || exported.Rows != 2 || exported.To != 2 {
		t.Errorf("%+v, %v", exported, err)
	}
	stop := errors.New("stop")
	if _, err := Export(t.Context(), d.db, nil, time.Time{}, func(Row) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("error %v", err)
	}
}

// The log is read as text and as JSON, with what others put before a line. Nothing that a stranger sends passes for a line.
func TestReadLog(t *testing.T) {
	t.Parallel()
	hash := func(n int) Sum { return (&Row{N: int64(n)}).Sum() }
	var b bytes.Buffer
	for i, handler := range []slog.Handler{slog.NewTextHandler(&b, nil), slog.NewJSONHandler(&b, nil)} {
		for _, prefix := range []string{"", "Nov 23 10:00:00 host getwork[12]: "} {
			w := &Writer{Log: slog.New(handler).With("node", "n1", "x", `a" msg=y n=77`)}
			n := 10*i + min(len(prefix), 1) + 1
			b.WriteString(prefix)
			evil := fmt.Sprintf("x\" msg=audit n=99 hash=%s {\"msg\":\"audit\",\"n\":99,\"hash\":\"%s\"}\n msg=audit n=99 hash=%s", hash(99), hash(99), hash(99))
			w.tell(Row{N: int64(n), Hash: hash(n), Act: "log-in", Actor: &evil, Object: &evil}, true)
			w.tell(Row{N: 88, Hash: hash(88)}, false)
			w.Log.Info("auth", "user", evil, "n", 99, "hash", hash(99))
			w.Log.Info("audit head", "n", n+5, "hash", hash(n+5).String())
			w.Log.Info("audit head", "n", 0, "hash", hash(0).String())
			w.Log.Info("audit", "n", 1, "hash", "beef")
		}
	}
	fmt.Fprintf(&b, "time=x msg=audit n=98 hash=%s %s\n", hash(98), strings.Repeat("x", longestLine))
	fmt.Fprintf(&b, "msg=audit n=50 hash=%s", hash(50))
	log, err := ReadLog(&b)
	if err != nil {
		t.Fatal(err)
	}
	got := map[int64]bool{}
	for n, sums := range log.rows {
		got[n] = len(sums) == 1 && sums[0] == hash(int(n))
	}
	want := map[int64]bool{1: true, 2: true, 6: true, 7: true, 11: true, 12: true, 16: true, 17: true, 50: true}
	if diff := cmp.Diff(want, got); diff != "" || log.Lines != 9 || log.first != 1 || log.last != 50 {
		t.Errorf("%+v (-want +got)\n%s", log, diff)
	}
}

// A number that was committed twice, with different rows, is found: commits were lost between the two. Rows that are not in the
// log are counted.
func TestLogOfLostCommits(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.fill(t, 5)
	lost := (&Row{N: 3}).Sum()
	log, err := ReadLog(strings.NewReader(d.log.String() + "msg=audit n=3 hash=" + lost.String() + "\n"))
	if err != nil {
		t.Fatal(err)
	}
	found, _ := d.verify(t, log)
	wantSet(t, "lost", found, map[string]bool{"row 3: " + loggedTwice: true})
	var some []string
	for i, line := range strings.Split(d.log.String(), "\n") {
		if i != 1 && i != 3 {
			some = append(some, line)
		}
	}
	if log, err = ReadLog(strings.NewReader(strings.Join(some, "\n"))); err != nil {
		t.Fatal(err)
	}
	if found, c := d.verify(t, log); len(found) > 0 || c.Unlogged != 2 || c.FirstUnlogged != 2 || c.Logged != 3 {
		t.Errorf("found %q, %+v", found, c)
	}
}
