package bench

import (
	"os"
	"strings"
	"testing"
)

// A program that costs a tenth more is told from noise by the ratio of both pairs.
func TestABBA(t *testing.T) {
	t.Parallel()
	var ratio, noise Figure
	addABBA(&ratio, &noise, [4]float64{110, 100, 100, 110})
	addABBA(&ratio, &noise, [4]float64{0, 100, 100, 110}) // not known
	if len(ratio.Values) != 1 || legible(ratio.Median()) != "1.10" {
		t.Errorf("the ratios are %v, want one of 1.10", ratio.Values)
	}
	if len(noise.Values) != 2 || noise.Median() != 1 {
		t.Errorf("the noise is %v, want 1 twice", noise.Values)
	}
}

// A comparison names the program that failed.
func TestAgainstNoProgram(t *testing.T) {
	t.Parallel()
	e := &Env{Binary: os.Args[0], Against: "/nowhere/getwork", Rounds: 1, Quick: true, DatabaseURL: "postgres://127.0.0.1:1/none"}
	if _, err := against(t.Context(), e); err == nil || !strings.Contains(err.Error(), os.Args[0]) {
		t.Errorf("the error is %v, want one that names the program", err)
	}
}
