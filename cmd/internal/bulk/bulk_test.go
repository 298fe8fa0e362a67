package bulk

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"getwork/assign"
)

// rows reads a text, and returns a line for each row.
func rows(t *testing.T, f Format, text string) (list []string, err error) {
	t.Helper()
	err = Read(strings.NewReader(text), f, func(s string) (time.Time, error) { return time.Parse(time.RFC3339, s) }, func(r Row) error {
		if r.Err != nil {
			list = append(list, fmt.Sprintf("%d: %v", r.Line, r.Err))
			return nil
		}
		b, err := json.Marshal(r.Item)
		list = append(list, fmt.Sprintf("%d %s", r.Line, b))
		return err
	})
	return list, err
}

func TestReadCSV(t *testing.T) {
	t.Parallel()
	const text = "\ufeffitem;priority;amount;details;not_before;slots;exclusive\r\n" +
		"a;5;12,50;\"{\"\"b\"\": 1}\";2030-01-31T08:00:00Z;2;\n" +
		"\"two\nlines\";;;;;;g\n" +
		";1;;;;;\n" +
		"b;high;;;;;\n" +
		"c;1\n" +
		"d;;;[1];;;\n" +
		"e\"x;;;;;;\n" +
		"f;;;;tomorrow;;\n" +
		"g\xff;;;;;;\n" +
		"h;;;;;;\n"
	got, err := rows(t, CSV, text)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		`2 {"item":"a","priority":5,"not_before":"2030-01-31T08:00:00Z","slots":2,"details":{"amount":"12,50","b":1}}`,
		`3 {"item":"two\nlines","exclusive":"g"}`,
		`5: the item has no key`,
		`6: priority must be a whole number, not "high"`,
		`7: the row has 2 cells, and there are 7 columns`,
		`8: details must be a JSON object, such as {"amount": 12}: cannot unmarshal array into Go value of type map[string]jsontext.Value`,
		`9: bare " in non-quoted-field`,
		`10: not_before must be a time such as 2030-01-31T08:00:00Z, not "tomorrow"`,
		`11: item is not UTF-8 text`,
		`12 {"item":"h"}`,
	}
	want[5], got[5] = want[5][:60], got[5][:min(60, len(got[5]))]
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	for text, says := range map[string]string{"": "the file is empty", "key,amount\n": "no column has the name item", "item,a,a\n": "two columns have the name"} {
		if _, err := rows(t, CSV, text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %q", text, err, says)
		}
	}
}

// A quotation mark that is not closed swallows rows, and the message names them all.
func TestReadOpenQuote(t *testing.T) {
	t.Parallel()
	got, err := rows(t, CSV, "item,size\na,1\nb,\"5 inch\nc,2\nd,3\n")
	if err != nil || len(got) != 2 || !strings.HasPrefix(got[1], "3: ") || !strings.Contains(got[1], "the lines 3 to 5 were read as one row") {
		t.Errorf("%q, %v", got, err)
	}
}

func TestReadNDJSON(t *testing.T) {
	t.Parallel()
	text := "{\"item\": \"a\", \"details\": {\"x\": 1}}\n\n\"b\"\n{\"item\": \"c\", \"prio\": 1}\n{\"item\": \"d\"} x\n{\n" + `{"item": "e", "details": "` + strings.Repeat("x", longest) + "\"}\n{\"item\": \"" + strings.Repeat("f", 201) + "\"}\n{\"item\": \"g\"}"
	got, err := rows(t, NDJSON, text)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		`1 {"item":"a","details":{"x":1}}`, `3 {"item":"b"}`, `4: unknown field "prio"`, `5: there is something after the object`, `6: unexpected EOF`,
		`7: the row has more than 1 MiB; store large details elsewhere, and push their address`, `8: the key has 201 bytes; 200 are the most`, `9 {"item":"g"}`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// A server refuses a batch because of one item after the other. All others are pushed, once, and in order.
func TestBadRowsCostNoGoodOnes(t *testing.T) {
	t.Parallel()
	bad := func(key string) bool { return strings.HasSuffix(key, "7") }
	var pushed, told []string
	calls := 0
	p := &Pusher{
		Push: func(_ context.Context, items []Item) (assign.Pushed, error) {
			calls++
			for i, item := range items {
				if bad(item.Item) {
					return assign.Pushed{}, fmt.Errorf("push: %w", &Refusal{Index: i, Why: "no sevens"})
				}
			}
			for _, item := range items {
				pushed = append(pushed, item.Item)
			}
			return assign.Pushed{Accepted: len(items)}, nil
		},
		Bad:    func(line int, why string) { told = append(told, fmt.Sprintf("%d %s", line, why)) },
		Pushed: func(Totals) {},
	}
	for n := range 2500 {
		row := Row{Line: n + 1, Item: Item{Item: fmt.Sprint(n)}}
		if n == 1234 {
			row.Err = errors.New("not read")
		}
		if err := p.Add(t.Context(), row); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if p.From() != 0 || len(pushed) != 2249 || len(told) != 251 || p.Totals != (Totals{Rows: 2500, Accepted: 2249, Bad: 251}) {
		t.Errorf("%d pushed, %d told, %+v", len(pushed), len(told), p.Totals)
	}
	if told[0] != "8 no sevens" || pushed[7] != "8" || pushed[2248] != "2499" {
		t.Errorf("the first that was told is %q; pushed are %q and %q", told[0], pushed[7], pushed[2248])
	}
	if calls > 350 {
		t.Errorf("%d calls for 250 bad rows of 2500", calls)
	}

	away := errors.New("the server is away")
	p.Push = func(context.Context, []Item) (assign.Pushed, error) { return assign.Pushed{}, away }
	if err := p.Add(t.Context(), Row{Line: 4711, Item: Item{Item: "x"}}); err != nil {
		t.Fatal(err)
	}
	if err := p.Flush(t.Context()); !errors.Is(err, away) || p.From() != 4711 {
		t.Errorf("a server that is away: %v, from line %d", err, p.From())
	}
}

// What a spreadsheet would execute begins with an apostrophe; NDJSON has every byte as it was.
func TestFormulasAreEscaped(t *testing.T) {
	t.Parallel()
	raw := []json.RawMessage{json.RawMessage(`{"id":"1","task":"t","item":"=cmd|' /C calc'!A0","slot":1,"user":"+tracy","state":"returned","attempt":1,"assigned_at":"2026-01-02T03:04:05Z","note":"@sum(a1), \"b\"","details":{"a":"=1"}}`),
		json.RawMessage(`{"id":"2","task":"t","item":"a=b","slot":1,"user":"-1","state":"held","attempt":1,"assigned_at":"2026-01-02T03:04:05Z","note":"\t=1","details":null}`)}
	var out bytes.Buffer
	w, err := NewWriter(&out, CSV, false)
	if err == nil {
		err = w.Write(raw)
	}
	if err != nil {
		t.Fatal(err)
	}
	table, err := csv.NewReader(&out).ReadAll()
	if err != nil || len(table) != 3 || len(table[0]) != len(heads) {
		t.Fatalf("%v: %q", err, table)
	}
	for at, want := range map[[2]int]string{{1, 2}: "'=cmd|' /C calc'!A0", {1, 4}: "'+tracy", {1, 13}: `'@sum(a1), "b"`, {1, 14}: `{"a":"=1"}`, {2, 2}: "a=b", {2, 4}: "'-1", {2, 13}: "'\t=1"} {
		if got := table[at[0]][at[1]]; got != want {
			t.Errorf("%s of row %d is %q, want %q", heads[at[1]], at[0], got, want)
		}
	}
	out.Reset()
	if w, err = NewWriter(&out, NDJSON, false); err == nil {
		err = w.Write(raw)
	}
	if want := string(raw[0]) + "\n" + string(raw[1]) + "\n"; err != nil || out.String() != want {
		t.Errorf("%v: %s", err, out.String())
	}
}

// A file that a failed export leaves ends with a whole page; without one there is no file.
func TestFileIsWhole(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "work.csv")
	for _, kept := range []string{"", "a page\n"} {
		f, err := NewFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{kept, "a part of ano"} {
			if _, err := f.WriteString(text); err != nil {
				t.Fatal(err)
			}
			if text == kept {
				f.Keep()
			}
		}
		if err := f.End(true); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(name)
		if string(b) != kept || errors.Is(err, fs.ErrNotExist) != (kept == "") {
			t.Errorf("left is %q, %v; want %q", b, err, kept)
		}
	}
}
