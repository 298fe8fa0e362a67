package bench

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestMet(t *testing.T) {
	limit := &Figure{Values: []float64{10, 100, 1000}}
	for name, c := range map[string]struct {
		figure           Figure
		ratio            float64
		met, known, held bool
	}{
		"nothing to reach":       {figure: Figure{Values: []float64{1}}},
		"nothing measured":       {figure: Figure{Goal: atMost(1)}},
		"a value":                {figure: Figure{Values: []float64{3, 1, 2}, Goal: atMost(2)}, met: true, known: true},
		"a value that is missed": {figure: Figure{Values: []float64{3, 1, 2.1}, Goal: atMost(2)}, known: true},
		"a ratio, though the values differ": {
			figure: Figure{Values: []float64{20, 200, 2000}, Limit: limit, Goal: atLeast(2)}, ratio: 2, held: true, met: true, known: true},
		"a ratio that is missed": {
			figure: Figure{Values: []float64{20, 190, 1000}, Limit: limit, Goal: atLeast(2)}, ratio: 1.9, held: true, known: true},
		"a value beside a limit": {
			figure: Figure{Values: []float64{20, 200, 2000}, Limit: limit, Goal: &Goal{AtMost: new(200.0), Absolute: true}}, ratio: 2, held: true, met: true, known: true},
		"rounds that are missing": {
			figure: Figure{Values: []float64{300}, Limit: limit, Goal: atLeast(3)}, ratio: 3, held: true, met: true, known: true},
		"a limit that is missing": {figure: Figure{Values: []float64{300}, Limit: &Figure{}, Goal: atLeast(3)}},
	} {
		ratio, held := c.figure.Ratio()
		met, known := c.figure.Met()
		if ratio != c.ratio || held != c.held || met != c.met || known != c.known {
			t.Errorf("%s: ratio %v (%v), met %v (%v), want %v (%v), %v (%v)", name, ratio, held, met, known, c.ratio, c.held, c.met, c.known)
		}
	}
}

func TestLegible(t *testing.T) {
	for v, want := range map[float64]string{0: "0.00", 1.234: "1.23", 12.34: "12.3", 123.4: "123", 1234.5: "1 235", 1234567: "1 234 567"} {
		if got := legible(v); got != want {
			t.Errorf("%v is written %q, want %q", v, got, want)
		}
	}
}

func sample() *Report {
	limit := Figure{Key: "limit_x", Name: "pgbench", Unit: "clicks/s", Values: []float64{4000, 5000, 6000}, Note: "the best"}
	return &Report{
		Facts: Facts{Date: "2026-01-02", Command: "getwork bench", Cores: 2, PostgreSQL: "PostgreSQL 15.18", Settings: map[string]string{"fsync": "on"}, Rounds: 3},
		Figures: []*Figure{
			{Key: "x", Name: "Clicks", Unit: "clicks/s", Values: []float64{12000, 9000, 10000}, Limit: &limit, Goal: atLeast(2)},
			{Key: "y", Name: "One click", Unit: "ms", Values: []float64{3.5}, Goal: atMost(2.5), Note: "on a bad day"},
			{Key: "z", Name: "Another", Unit: "clicks/s", Values: []float64{1}},
		},
	}
}

func TestMarkdown(t *testing.T) {
	_, got, _ := strings.Cut(sample().Markdown(), "\n\n")
	const want = `| figure    | unit     | median |          range | limit | ratio | goal     | met |
| ---       | ---      |   ---: |           ---: |  ---: |  ---: | ---      | --- |
| Clicks    | clicks/s | 10 000 | 9 000 – 12 000 | 5 000 |  1.80 | ≥ 2x     | no  |
| One click | ms       |   3.50 |                |       |       | ≤ 2.5 ms | no  |
| Another   | clicks/s |   1.00 |                |       |       |          |     |

- **Clicks**: its limit is pgbench (the best), 4 000 – 6 000 clicks/s.
- **One click**: on a bad day.
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestJSON(t *testing.T) {
	var b strings.Builder
	if err := sample().JSON(&b); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Facts   map[string]any
		Figures []struct {
			Key    string
			Values []float64
			Median float64
			Ratio  *float64
			Met    *bool
			Limit  *Figure
		}
	}
	if err := json.Unmarshal([]byte(b.String()), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Figures) != 3 || got.Facts["cores"] != 2.0 {
		t.Fatalf("the document is %s", b.String())
	}
	x := got.Figures[0]
	if x.Key != "x" || x.Median != 10000 || x.Ratio == nil || *x.Ratio != 1.8 || x.Met == nil || *x.Met || x.Limit == nil || len(x.Values) != 3 {
		t.Errorf("the first figure is %+v", x)
	}
	if p := got.Figures[2]; p.Ratio != nil || p.Met != nil || p.Limit != nil {
		t.Errorf("a figure without goal and limit is %+v", p)
	}
}

func TestPage(t *testing.T) {
	dir := t.TempDir()
	if _, err := ReadPage(dir); err == nil {
		t.Error("a folder without a page is accepted")
	}
	path := filepath.Join(dir, "benchmarks.md")
	put := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	put("# Page\n<!-- table -->\nnever ends\n")
	if _, err := ReadPage(dir); err == nil {
		t.Error("a page without the second line is accepted")
	}
	put("# Page\n\n<!-- table -->\nlast year's\n<!-- /table -->\n\nThe rest.\n")
	for range 2 { // the second Write replaces the first one's report
		p, err := ReadPage(dir)
		if err == nil {
			err = p.Write(sample())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(path)
	if want := "# Page\n\n<!-- table -->\n" + sample().Markdown() + "<!-- /table -->\n\nThe rest.\n"; err != nil || string(text) != want {
		t.Errorf("%v; the page is\n%s", err, text)
	}
}
