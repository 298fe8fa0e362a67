package timeout

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]float64{"": 1, "1": 1, "3": 3, "1.5": 1.5} {
		if f, err := parse(text); err != nil || f != want {
			t.Errorf("%q is %v (%v), want %v", text, f, err, want)
		}
	}
	for _, text := range []string{"0", "0.5", "-3", "NaN", "Inf", "1000", "3x", " "} {
		if f, err := parse(text); err == nil {
			t.Errorf("%q is %v, want an error", text, f)
		}
	}
}

// failing is a test that may fail.
type failing struct {
	testing.TB
	failed bool
}

func (f *failing) Helper()               {}
func (f *failing) Fatalf(string, ...any) { f.failed = true; panic(f) }

// Await returns when the answer becomes true, and fails the test after its time if it never does.
func TestAwait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		Await(t, "ten seconds are over", func() bool { return time.Since(begin) >= 10*time.Second })
		f := &failing{TB: t}
		begin = time.Now()
		func() {
			defer func() {
				if r := recover(); r != any(f) {
					panic(r)
				}
			}()
			Await(f, "never", func() bool { return false })
		}()
		if took := time.Since(begin); !f.failed || took != Scale(usual) {
			t.Errorf("failed: %v, after %v, want %v", f.failed, took, Scale(usual))
		}
	})
}
