package bench

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestChart(t *testing.T) {
	figures := []Figure{
		{Key: "growth_waiting_1_1000", Values: []float64{90, 100, 200}},
		{Key: "growth_waiting_3_100", Values: []float64{30}},
		{Key: "growth_waiting_1_100", Values: []float64{20}},
		{Key: "waiting_1", Values: []float64{7}},
	}
	var found []string
	for _, c := range charts {
		p, some := c.plot(figures)
		if !some {
			continue
		}
		found = append(found, c.file)
		want := []curve{{"one node", []point{{100, 20}, {1000, 100}}}, {"three nodes", []point{{100, 30}}}}
		if diff := cmp.Diff(want, p.Curves); diff != "" {
			t.Error(diff)
		}
	}
	if diff := cmp.Diff([]string{"growth-waiting.svg"}, found); diff != "" {
		t.Error(diff)
	}
	folder := t.TempDir()
	if err := WritePlots(folder, figures); err != nil {
		t.Fatal(err)
	}
	written, err := filepath.Glob(filepath.Join(folder, "*"))
	if err != nil || len(written) != 1 || filepath.Base(written[0]) != "growth-waiting.svg" {
		t.Errorf("%v is written (%v)", written, err)
	}
	if b, err := os.ReadFile(written[0]); err != nil || len(b) == 0 {
		t.Errorf("%q, %v", b, err)
	}
}

// Users are spread over the nodes, and all that they get is checked.
func TestShelfClicks(t *testing.T) {
	t.Parallel()
	s, leave, err := testEnv(t).stage(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	defer leave()
	rate, err := s.shelfClicks(t.Context(), 4, clickSetup{items: 3000, lasts: time.Second})
	if err != nil || rate <= 0 {
		t.Errorf("%v clicks/s, %v", rate, err)
	}
}

func TestShelfCost(t *testing.T) {
	t.Parallel()
	skipElsewhere(t)
	database, node, err := localEnv(t).shelfCost(t.Context(), 2000)
	if err != nil || database <= 0 || node <= 0 {
		t.Errorf("database %v µs, node %v µs, %v", database, node, err)
	}
}

func TestClicksAmong(t *testing.T) {
	t.Parallel()
	rate, err := testEnv(t).clicksAmong(t.Context(), 4, 2)
	if err != nil || rate <= 0 {
		t.Errorf("%v clicks/s, %v", rate, err)
	}
}
