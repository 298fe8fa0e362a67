package bulk

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"getwork/assign"
	"getwork/schema/schematest"
)

func TestMain(m *testing.M) { os.Exit(schematest.Main(m)) }

// rows reads a text, and returns a line for each row.
func rows(t *testing.T, f Format, text string) (list []string, err error) {
	t.Helper()
	err = Read(iotest.HalfReader(strings.NewReader(text)), f, func(r Row) error {
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
		`8: details must be a JSON object, such as {"amount": 12}: can't be array`,
		`9: bare " in non-quoted-field`,
		`10: not_before: it must be a time with its offset, such as 2030-01-31T08:00:00Z or 2030-01-31 08:00:00+01, not "tomorrow"; PostgreSQL prints such times after ` + "`set datestyle to iso`",
		`11: item is not UTF-8 text`,
		`12 {"item":"h"}`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	for text, says := range map[string]string{"": "the file is empty", "key,amount\n": "no column has the name item", "item,a,a\n": "two columns have the name"} {
		if _, err := rows(t, CSV, text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %q", text, err, says)
		}
	}
}

// The first line end says what ends lines, in every format; what is quoted in CSV keeps its own.
func TestLineEnds(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		f    Format
		text string
		want []string
	}{
		{CSV, "item,a\rMM-1,x\rMM-2,y\r", []string{`2 {"item":"MM-1","details":{"a":"x"}}`, `3 {"item":"MM-2","details":{"a":"y"}}`}},
		{CSV, "item,a\r", nil},
		{CSV, "\"item\",\"a\rb\"\r\"M\r1\",\"x\r\ny\"\rM2,\"a\"\"\rb\"", []string{`2 {"item":"M\r1","details":{"a\rb":"x\r\ny"}}`, `4 {"item":"M2","details":{"a\rb":"a\"\rb"}}`}},
		{CSV, "item,a\nM1,x\ry\nM2,\r\n", []string{`2 {"item":"M1","details":{"a":"x\ry"}}`, `3 {"item":"M2"}`}},
		{CSV, "item,a\r\n\"M\r\n1\",\"\r\"\r\nM\"x,\"y\r\nM2,z\r\n\"M3\"x,\"y\r\nM4,z\r\n", []string{`2 {"item":"M\r\n1","details":{"a":"\r"}}`,
			`4: bare " in non-quoted-field`, `5 {"item":"M2","details":{"a":"z"}}`, `6: extraneous or missing " in quoted-field`, `7 {"item":"M4","details":{"a":"z"}}`}},
		{NDJSON, "{\"item\":\"a\"}\r\"b\"\r\r{\"item\":1}\r", []string{`1 {"item":"a"}`, `2 {"item":"b"}`, `4: item can't be number`}},
		{"", "a\rb\r\rc", []string{`1 {"item":"a"}`, `2 {"item":"b"}`, `4 {"item":"c"}`}},
		{"", "a\nb\rc\n\"\rd\"\n", []string{`1 {"item":"a"}`, `2 {"item":"b\rc"}`, `3 {"item":"\"\rd\""}`}},
		{"", "[\"a\",\r\"b\",\r7]\r", []string{`1 {"item":"a"}`, `2 {"item":"b"}`, `3: a row is an object, such as {"item": "a"}, or a key in quotation marks`}},
	} {
		got, err := rows(t, tt.f, tt.text)
		if diff := cmp.Diff(tt.want, got); err != nil || diff != "" {
			t.Errorf("%s %q: %v (-want +got)\n%s", tt.f, tt.text, err, diff)
		}
	}
}

// Columns without a name, which spreadsheets leave behind, may be empty, and nothing else.
func TestNamelessColumns(t *testing.T) {
	t.Parallel()
	got, err := rows(t, CSV, "item,,note,,\nEX-1,,b,,\nEX-2,,c\nEX-3,,d,, \nEX-4,,e,x,\nEX-5,f,,,\nEX-6,,g,,,,\nEX-7,,h,i,,,j\nEX-8,\n,,,,\n")
	want := []string{`2 {"item":"EX-1","details":{"note":"b"}}`, `3 {"item":"EX-2","details":{"note":"c"}}`, `4 {"item":"EX-3","details":{"note":"d"}}`,
		`5: column 4 has no name, and here it has "x"; name it in the first row, or put quotation marks around the cell whose text was divided`,
		`6: column 2 has no name, and here it has "f"; name it in the first row, or put quotation marks around the cell whose text was divided`,
		`7 {"item":"EX-6","details":{"note":"g"}}`,
		`8: column 4 has no name, and here it has "i"; name it in the first row, or put quotation marks around the cell whose text was divided`,
		`9: the row has 2 cells, and there are 3 columns`, `10: the item has no key`}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got)\n%s", err, diff)
	}
}

// What psql prints is read as it stands: JSON, numbers and arrays are details as they were written.
func TestReadPsql(t *testing.T) {
	t.Parallel()
	got, err := rows(t, CSV, "item,not_before,ok,n,amt,arr,details\nPG-1,2026-11-29 23:56:44.414677+05:30,t,,1.50,\"{a,b}\",\"{\"\"a\"\": 1.50}\"\nPG-2,2026-11-29 23:56:44,f,,,,\nPG-3,infinity,,,,,\n")
	want := []string{`2 {"item":"PG-1","not_before":"2026-11-29T18:26:44.414677Z","details":{"a":1.50,"amt":"1.50","arr":"{a,b}","ok":"t"}}`,
		`3: not_before: "2026-11-29 23:56:44" has no zone; write it with one, such as 2030-01-31 08:00:00+01 (in PostgreSQL: as timestamptz)`,
		"4: not_before: it must be a time with its offset, such as 2030-01-31T08:00:00Z or 2030-01-31 08:00:00+01, not \"infinity\"; PostgreSQL prints such times after `set datestyle to iso`"}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got)\n%s", err, diff)
	}
	got, err = rows(t, CSV, "item,deadline\na,2026-11-29 23:56:44+00\nb,2026-11-29\n")
	want = []string{`2 {"item":"a","deadline":"2026-11-29T23:56:44Z"}`,
		`3: deadline: "2026-11-29" has no zone; write it with one, such as 2030-01-31 08:00:00+01 (in PostgreSQL: as timestamptz)`}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got)\n%s", err, diff)
	}
	got, err = rows(t, CSV, "item,needs,needs_until\na,\"french, senior\",2030-01-31 08:00:00+00\nb,\"{french,\"\"tax law\"\"}\",\n")
	if diff := cmp.Diff([]string{`2 {"item":"a","needs":["french","senior"],"needs_until":"2030-01-31T08:00:00Z"}`, `3 {"item":"b","needs":["french","tax law"]}`}, got); diff != "" || err != nil {
		t.Errorf("(-want +got)\n%s%v", diff, err)
	}
	got, err = rows(t, NDJSON, `{"item":"PG-1","not_before":"2026-11-29 23:56:44.414677+00","deadline":"2026-11-30 01:00+01"}`+"\n"+`{"item":"PG-2","not_before":"2026-11-29T23:56:44"}`)
	want = []string{`1 {"item":"PG-1","not_before":"2026-11-29T23:56:44.414677Z","deadline":"2026-11-30T00:00:00Z"}`, `2: not_before: "2026-11-29T23:56:44" has no zone; write it with one, such as 2030-01-31 08:00:00+01 (in PostgreSQL: as timestamptz)`}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got)\n%s", err, diff)
	}
}

// Moment reads what PostgreSQL prints for the time that it is, or refuses it with a sentence. In the style ISO and as JSON it reads all.
func TestMomentIsPostgres(t *testing.T) {
	t.Parallel()
	conn, err := pgx.Connect(t.Context(), schematest.Empty(t))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	for _, style := range []string{"iso, mdy", "iso, dmy", "postgres, mdy", "postgres, dmy", "german", "sql, mdy", "sql, dmy"} {
		for _, zone := range []string{"UTC", "GMT", "Europe/Berlin", "America/St_Johns", "Asia/Kathmandu", "Europe/Istanbul", "America/Sao_Paulo", "Pacific/Kiritimati", "-3.5"} {
			if _, err := conn.Exec(t.Context(), `select set_config('datestyle', $1, false), set_config('timezone', $2, false)`, style, zone); err != nil {
				t.Fatal(err)
			}
			found, _ := conn.Query(t.Context(), `select (extract(epoch from x) * 1000000)::int8, x::text, to_json(x) #>> '{}'
				from unnest(array['2026-11-29 23:56:44.414677+00', '2026-07-01 00:00:00+00', '1999-12-31 23:59:59.9+00', '2030-01-02 03:04:05+00', '1850-06-01 12:00:00+00']::timestamptz[]) x`)
			type printed struct {
				Micros     int64
				Text, JSON string
			}
			all, err := pgx.CollectRows(found, pgx.RowToStructByPos[printed])
			if err != nil || len(all) != 5 {
				t.Fatalf("%d rows, %v", len(all), err)
			}
			offset := regexp.MustCompile(`([+-]\d\d| UTC| GMT)$`)
			for _, p := range all {
				for i, text := range []string{p.Text, p.JSON} {
					at, err := Moment(text)
					must := i == 1 || strings.HasPrefix(style, "iso") || !strings.HasPrefix(style, "sql") && offset.MatchString(text)
					if err == nil && at.UnixMicro() != p.Micros || must && err != nil || err != nil && !strings.Contains(err.Error(), "set datestyle to iso") {
						t.Errorf("%s in %s: %q is read as %v, %v", style, zone, text, at, err)
					}
				}
			}
		}
	}
}

// What is exported can be pushed again: keys and notes come back as they were, and no cell is a formula.
func TestExportIsPushedAgain(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	alphabet := []string{"'", "=", "+", "-", "@", "\t", "\r", "\n", "\r\n", `"`, ",", ";", " ", "a", "ü", "＝", "\u200b", "{", "[", "\ufeff"}
	text := func() string {
		var b strings.Builder
		for range 1 + random.IntN(6) {
			b.WriteString(alphabet[random.IntN(len(alphabet))])
		}
		return b.String()
	}
	for range 3000 {
		want := []assign.Work{}
		var raw []json.RawMessage
		for range 1 + random.IntN(4) {
			note := text()
			w := assign.Work{Task: "t", Item: text(), Note: &note, Details: json.RawMessage(`{"d":1.50}`)}
			b, err := json.Marshal(w)
			if err != nil {
				t.Fatal(err)
			}
			want, raw = append(want, w), append(raw, b)
		}
		var file bytes.Buffer
		w, err := NewWriter(&file, CSV, false)
		if err == nil {
			err = w.Write(raw)
		}
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		err = Read(iotest.OneByteReader(bytes.NewReader(file.Bytes())), CSV, func(r Row) error {
			var details struct {
				Note string
				D    json.Number
			}
			if r.Err == nil {
				r.Err = json.Unmarshal(r.Item.Details, &details)
			}
			if r.Err != nil || r.Item.Item != want[n].Item || details.Note != *want[n].Note || details.D != "1.50" {
				t.Errorf("%v: %q with %q came back as %q with %q; the file:\n%q", r.Err, want[n].Item, *want[n].Note, r.Item.Item, details.Note, file.String())
			}
			n++
			return nil
		})
		if err != nil || n != len(want) {
			t.Fatalf("%d of %d rows, %v:\n%q", n, len(want), err, file.String())
		}
		if t.Failed() {
			return
		}
	}
}

// In JSON each item has its line, and its number where a line may have several. A fault in an item costs that item; one in the JSON
// costs what follows.
func TestReadJSON(t *testing.T) {
	t.Parallel()
	text := "[\"a\", {\"item\":\"b\",\"item\":\"B\"},\n\n  {\n\"item\": \"c\",\n \"details\": {\"x\": [1]}},{\"item\":\"d\\ud800\"},\n{\"Item\":\"e\"}, {\"item\":\"f\xff\"},\n null, {\"item\":\"g\",\"slots\":\"x\"}, {\"item\":\"h\"}]"
	for _, form := range []string{text, strings.NewReplacer("},", "}", "null,", "null").Replace(text[1 : len(text)-1])} {
		if form[0] != '[' {
			form = `{"item":"a"}` + strings.TrimPrefix(form, `"a",`)
		}
		var got []string
		err := Read(iotest.OneByteReader(strings.NewReader(form)), "", func(r Row) error {
			if got = append(got, fmt.Sprintf("%d/%d %s", r.Line, r.Nth, r.Item.Item)); r.Err != nil {
				got[len(got)-1] = fmt.Sprintf("%d/%d: %v", r.Line, r.Nth, r.Err)
			}
			return nil
		})
		want := []string{`1/1 a`, `1/2: the field item occurs twice; write it once`, `3/3 c`, `5/4: the row has half of a character: \ud800 to \udfff without the other half`,
			`6/5: unknown field "Item"`, `6/6: the row is not UTF-8 text`, `7/7: a row is an object, such as {"item": "a"}, or a key in quotation marks`, `7/8: slots can't be string`, `7/9 h`}
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%v (-want +got)\n%s", err, diff)
		}
	}
	for text, says := range map[string]string{
		"[\"a\",\n\"b\" \"c\"]":            "2: expected comma after array element; from here on nothing was read",
		"[\"a\",\n\"b\"":                   "2: the array does not end; from here on nothing was read",
		"[\"a\",\n\"b\"]\n\"c\"":           "3: there is something after the last item; from here on nothing was read",
		"[\"a\",\"b\",\n{\"c\": }, \"d\"]": "2: invalid character '}' looking for beginning of value; from here on nothing was read",
		"{\"item\":\"a\"}\n\"b\"\n}":       "3: there is something after the last item; from here on nothing was read",
		"{\"item\":\"a\"}\n\"b\"\n\nc":     "4: invalid character 'c' looking for beginning of value; from here on nothing was read",
	} {
		got, err := rows(t, "", text)
		if err != nil || len(got) != 3 || !strings.HasSuffix(got[1], `{"item":"b"}`) || got[2] != says {
			t.Errorf("%q: %q, %v; want %q", text, got, err, says)
		}
	}
	for _, none := range []string{"", "\n \n", "[]", " [ ] \n", "\ufeff"} {
		if got, err := rows(t, "", none); err != nil || len(got) > 0 {
			t.Errorf("%q: %q, %v", none, got, err)
		}
	}
	away := errors.New("away")
	if err := Read(io.MultiReader(strings.NewReader(`["a",`), iotest.ErrReader(away)), "", func(Row) error { return nil }); !errors.Is(err, away) {
		t.Errorf("a file that can't be read on: %v", err)
	}
}

// Every row with a NUL is a faulty one.
func TestNULIsFaulty(t *testing.T) {
	t.Parallel()
	got, err := rows(t, CSV, "item,a\nF-1,x\nF-2,b\x00d\nF-3,z\n\x00,z\n")
	if err != nil || len(got) != 4 || !strings.HasPrefix(got[1], "3: a has the character NUL") || !strings.HasPrefix(got[3], "5: item has the character NUL") {
		t.Errorf("%q, %v", got, err)
	}
	got, err = rows(t, NDJSON, `{"item":"a\u0000"}`+"\n\"b\x00\"\n\"c\"")
	if err != nil || len(got) != 3 || !strings.HasPrefix(got[0], "1: the key is not") || !strings.HasPrefix(got[1], "2: invalid character") || got[2] != `3 {"item":"c"}` {
		t.Errorf("%q, %v", got, err)
	}
}

func TestOddKeys(t *testing.T) {
	t.Parallel()
	for key, looks := range map[string]string{
		" S-2 ": "S-2", "S-2\t": "S-2", "S\u00a02": "S 2", "S\u200b2": "S2", "S\ufe0f2": "S2", "a\tb": "a b", "a\u3000b": "a b", "\u3164": "", "a\r": "a", "\ufeffa": "a", "a\u00ad": "a",
	} {
		if got := (&Item{Item: key}).Odd(); !strings.HasSuffix(got, fmt.Sprintf("another key than %q", looks)) {
			t.Errorf("%+q: %s", key, got)
		}
	}
	for _, plain := range []string{"a", "a b", "a  b", "ü", "日本", "a/b.jpg", "'=x", "👍"} {
		if got := (&Item{Item: plain}).Odd(); got != "" {
			t.Errorf("%q: %s", plain, got)
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
		Bad:    func(row Row, why string) { told = append(told, fmt.Sprintf("%d %s", row.Line, why)) },
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
	raw := []json.RawMessage{json.RawMessage(`{"id":"1","task":"t","item":"=cmd|' /C calc'!A0","slot":1,"user":"+tracy","state":"returned","attempt":1,"assigned_at":"2026-01-02T03:04:05Z","note":"@sum(a1), \"b\"","deadline":"2026-03-01T12:00:00.5Z","code":"no-answer","result":{"score":1.50,"said":"=1"},"details":{"a":"=1"}}`),
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
	for at, want := range map[[2]int]string{{1, 2}: "'=cmd|' /C calc'!A0", {1, 4}: "'+tracy", {1, 13}: `'@sum(a1), "b"`, {1, 14}: `{"a":"=1"}`, {1, 15}: "2026-03-01T12:00:00.5Z", {1, 16}: "no-answer",
		{1, 17}: `{"score":1.50,"said":"=1"}`, {2, 16}: "", {2, 17}: "", {2, 2}: "a=b", {2, 4}: "'-1", {2, 13}: "'\t=1"} {
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
