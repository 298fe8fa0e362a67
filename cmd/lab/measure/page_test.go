package measure

import (
	"os"
	"path/filepath"
	"testing"

	"getwork/cmd/internal/bench"
)

func TestPage(t *testing.T) {
	report := &bench.Report{Figures: []*bench.Figure{{Key: "x", Name: "Clicks", Unit: "clicks/s", Values: []float64{12000, 9000, 10000}}}}
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
			err = p.Write(report)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(path)
	if want := "# Page\n\n<!-- table -->\n" + report.Table() + "<!-- /table -->\n\nThe rest.\n"; err != nil || string(text) != want {
		t.Errorf("%v; the page is\n%s", err, text)
	}
}
