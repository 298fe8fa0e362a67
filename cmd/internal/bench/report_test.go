package bench

import (
	"encoding/json"
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"
)

func TestRatio(t *testing.T) {
	t.Parallel()
	limit := &Figure{Values: []float64{10, 100, 1000}}
	for name, c := range map[string]struct {
		figure Figure
		ratio  float64
		known  bool
	}{
		"no limit":                     {figure: Figure{Values: []float64{1}}},
		"rounds, though values differ": {figure: Figure{Values: []float64{20, 200, 3000}, Limit: limit}, ratio: 2, known: true},
		"rounds that are missing":      {figure: Figure{Values: []float64{300}, Limit: limit}, ratio: 3, known: true},
		"a limit that is missing":      {figure: Figure{Values: []float64{300}, Limit: &Figure{}}},
	} {
		if ratio, known := c.figure.Ratio(); ratio != c.ratio || known != c.known {
			t.Errorf("%s: %v (%v), want %v (%v)", name, ratio, known, c.ratio, c.known)
		}
	}
}

// A goal is met or missed only if it would be with the noise, too.
func TestVerdict(t *testing.T) {
	t.Parallel()
	limit := &Figure{Values: []float64{10, 100, 1000}}
	quiet := []*Figure{{Unit: "ms", Values: []float64{100, 101}}, {Unit: "µs", Values: []float64{100, 110}}, {Unit: "clicks/s", Values: []float64{100, 150}}}
	tenth := 0.1
	for name, c := range map[string]struct {
		figure     Figure
		references []*Figure
		want       Verdict
		noise      float64
	}{
		"no goal":          {figure: Figure{Values: []float64{1, 1}}},
		"nothing measured": {figure: Figure{Goal: AtMost(1)}, references: quiet},
		"no noise":         {figure: Figure{Values: []float64{1}, Goal: AtMost(2)}},

		"a value":                     {figure: Figure{Values: []float64{10, 11, 10}, Goal: AtMost(12)}, want: GoalMet, noise: 0.1},
		"a value near the goal":       {figure: Figure{Values: []float64{10, 11, 10}, Goal: AtMost(10.5)}, want: WithinNoise, noise: 0.1},
		"a value near, and beyond":    {figure: Figure{Values: []float64{10, 11, 10}, Goal: AtMost(9.5)}, want: WithinNoise, noise: 0.1},
		"a value that is missed":      {figure: Figure{Values: []float64{10, 11, 10}, Goal: AtMost(8.9)}, want: GoalNotMet, noise: 0.1},
		"at least":                    {figure: Figure{Values: []float64{10, 11, 10}, Goal: AtLeast(8.9)}, want: GoalMet, noise: 0.1},
		"at least, near":              {figure: Figure{Values: []float64{10, 11, 10}, Goal: AtLeast(10.5)}, want: WithinNoise, noise: 0.1},
		"at least, missed":            {figure: Figure{Values: []float64{10, 11, 10}, Goal: AtLeast(12)}, want: GoalNotMet, noise: 0.1},
		"a value around zero":         {figure: Figure{Values: []float64{-2, 1, 2}, Goal: AtMost(1.5)}, want: WithinNoise, noise: 2},
		"one wild round among many":   {figure: Figure{Values: []float64{10, 10, 10, 90, 10, 10, 10}, Goal: AtMost(10)}, want: GoalMet},
		"nothing, and nothing wanted": {figure: Figure{Unit: "clicks", Values: []float64{0, 0}, Goal: AtMost(0)}, references: quiet, want: GoalMet},
		"one, and nothing wanted":     {figure: Figure{Unit: "clicks", Values: []float64{0, 1, 0}, Goal: AtMost(0)}, references: quiet, want: GoalNotMet},
		"a drift of the whole run":    {figure: Figure{Unit: "ms", Values: []float64{10, 10}, Goal: AtMost(10.05)}, references: quiet, want: WithinNoise, noise: 1 / 100.5},
		"one round":                   {figure: Figure{Unit: "µs", Values: []float64{10}, Goal: AtMost(10.4)}, references: quiet, want: WithinNoise, noise: 10 / 105.},
		"CPU by the second":           {figure: Figure{Unit: "ms/s", Values: []float64{10}, Goal: AtMost(12)}, references: quiet, want: GoalMet, noise: 10 / 105.},
		"a unit without reference":    {figure: Figure{Unit: "KiB", Values: []float64{10}, Goal: AtMost(12)}, references: quiet, want: WithinNoise, noise: 0.4},
		"a noise that the figure has": {figure: Figure{Values: []float64{1.5, 1.5}, Goal: AtMost(1.6), Noise: &tenth}, references: quiet, want: WithinNoise, noise: 0.1},
		"rounds that differ more":     {figure: Figure{Values: []float64{1, 2}, Goal: AtMost(2), Noise: &tenth}, references: quiet, want: WithinNoise, noise: 1 / 1.5},

		"a ratio, though the machine drifts": {
			figure: Figure{Unit: "clicks/s", Values: []float64{20, 210, 2000}, Limit: limit, Goal: AtLeast(1.8)}, references: quiet, want: GoalMet, noise: 0.05},
		"a ratio near the goal": {
			figure: Figure{Unit: "clicks/s", Values: []float64{20, 210, 2000}, Limit: limit, Goal: AtLeast(1.95)}, references: quiet, want: WithinNoise, noise: 0.05},
		"a ratio of one round": {
			figure: Figure{Unit: "clicks/s", Values: []float64{200}, Limit: limit, Goal: AtLeast(1.8)}, references: quiet, want: WithinNoise, noise: 0.4},
		"a value beside a limit": {
			figure: Figure{Unit: "ms", Values: []float64{200, 200, 200}, Limit: limit, Goal: Below(250)}, references: quiet, want: GoalMet, noise: 1 / 100.5},
		"a limit that is missing": {figure: Figure{Values: []float64{300, 300}, Limit: &Figure{}, Goal: AtLeast(3)}},
	} {
		verdict, noise, known := (&Report{References: c.references}).Verdict(&c.figure)
		if verdict != c.want || math.Abs(noise-c.noise) > 1e-9 || known != (c.want != "") {
			t.Errorf("%s: %q with a noise of %v (%v), want %q, %v", name, verdict, noise, known, c.want, c.noise)
		}
	}
}

func TestConclusion(t *testing.T) {
	t.Parallel()
	r := sample()
	if r.Conclude(); r.Conclusion != "" {
		t.Errorf("without --quick it says %q", r.Conclusion)
	}
	r.Figures = append(r.Figures, &Figure{Key: "quick_clicks", Values: []float64{5290, 5000, 5290}})
	for same, where := range map[bool]string{
		true:  fmt.Sprintf("it shared these %d cores with the node and the load.", runtime.NumCPU()),
		false: fmt.Sprintf("the node and the load ran on these %d cores, and PostgreSQL elsewhere.", runtime.NumCPU()),
	} {
		r.Facts.SameMachine = same
		r.Conclude()
		if want := "About 310 000 people can each click once a minute on this PostgreSQL: it served 5 200 clicks a second (±6 % from round to round), of three items each, while " + where; r.Conclusion != want {
			t.Errorf("it says\n%s\nwant\n%s", r.Conclusion, want)
		}
	}
	if text := r.Markdown(); !strings.HasSuffix(text, "\n\n"+r.Conclusion+"\n") {
		t.Errorf("it does not end with the conclusion:\n%s", text)
	}
	for v, want := range map[float64]int{0: 0, 7.9: 7, 99.9: 99, 317_400: 310_000, 1000: 1000} {
		if got := roughly(v); got != want {
			t.Errorf("%v is roughly %d, want %d", v, got, want)
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
		Facts:      Facts{Date: "2026-01-02", Command: "getwork bench", Cores: 2, PostgreSQL: "PostgreSQL 15.18", Settings: map[string]string{"fsync": "on"}, Rounds: 3},
		References: []*Figure{{Key: "noise_rate", Name: "clicks", Unit: "clicks/s", Values: []float64{1000, 1100}}, {Key: "noise_time", Name: "a click", Unit: "ms", Values: []float64{2, 2.5}}},
		Figures: []*Figure{
			{Key: "x", Name: "Clicks", Unit: "clicks/s", Values: []float64{12000, 9000, 10000}, Limit: &limit, Goal: AtLeast(2)},
			{Key: "y", Name: "One click", Unit: "ms", Values: []float64{3.5}, Goal: AtMost(2.5), Note: "on a bad day"},
			{Key: "z", Name: "Another", Unit: "clicks/s", Values: []float64{1}},
		},
	}
}

func TestMarkdown(t *testing.T) {
	t.Parallel()
	facts, got, _ := strings.Cut(sample().Markdown(), "\n\n")
	if want := "\n- the machine's noise, by the same figures at the start and at the end: clicks: 1 000 and 1 100 clicks/s (±10 %); a click: 2.00 and 2.50 ms (±23 %)"; !strings.HasSuffix(facts, want) {
		t.Errorf("the facts are\n%s", facts)
	}
	const want = `| figure    | unit     | median |          range | limit | ratio | goal     | verdict                  |
| ---       | ---      |   ---: |           ---: |  ---: |  ---: | ---      | ---                      |
| Clicks    | clicks/s | 10 000 | 9 000 – 12 000 | 5 000 |  1.80 | ≥ 2x     | within the noise (±38 %) |
| One click | ms       |   3.50 |                |       |       | ≤ 2.5 ms | not met (±23 %)          |
| Another   | clicks/s |   1.00 |                |       |       |          |                          |

- **Clicks**: its limit is pgbench (the best), 4 000 – 6 000 clicks/s.
- **One click**: on a bad day.
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestJSON(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	r := sample()
	r.Conclusion = "Enough for everybody."
	if err := r.JSON(&b); err != nil {
		t.Fatal(err)
	}
	type figure struct {
		Key     string
		Values  []float64
		Median  float64
		Ratio   *float64
		Noise   float64
		Verdict string
		Met     *bool
		Limit   *Figure
	}
	var got struct {
		Facts          map[string]any
		Noise, Figures []figure
		Conclusion     string
	}
	if err := json.Unmarshal([]byte(b.String()), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Figures) != 3 || got.Facts["cores"] != 2.0 || got.Conclusion != "Enough for everybody." {
		t.Fatalf("the document is %s", b.String())
	}
	x, y := got.Figures[0], got.Figures[1]
	if x.Key != "x" || x.Median != 10000 || x.Ratio == nil || *x.Ratio != 1.8 || x.Limit == nil || len(x.Values) != 3 {
		t.Errorf("the first figure is %+v", x)
	}
	if x.Verdict != "within the noise" || x.Met != nil || x.Noise < 0.37 {
		t.Errorf("the verdict on the first figure is %+v", x)
	}
	if y.Verdict != "not met" || y.Met == nil || *y.Met || y.Noise < 0.2 {
		t.Errorf("the verdict on the second figure is %+v", y)
	}
	if p := got.Figures[2]; p.Ratio != nil || p.Met != nil || p.Verdict != "" || p.Limit != nil {
		t.Errorf("a figure without goal and limit is %+v", p)
	}
	if n := got.Noise; len(n) != 2 || n[0].Key != "noise_rate" || n[0].Noise < 0.09 || n[0].Noise > 0.1 {
		t.Errorf("the noise is %+v", n)
	}
}
