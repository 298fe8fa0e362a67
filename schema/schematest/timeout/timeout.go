// Package timeout says how long tests wait for an event before they fail. A slow or busy machine needs longer:
// GETWORK_TEST_SLOW=3 makes every wait three times as long. Times that getwork promises do not use this package, and stay.
package timeout

import (
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"
)

// environment holds the factor, a number of at least 1.
const environment = "GETWORK_TEST_SLOW"

var factor = sync.OnceValue(func() float64 {
	f, err := parse(os.Getenv(environment))
	if err != nil {
		panic(err)
	}
	return f
})

func parse(text string) (float64, error) {
	if text == "" {
		return 1, nil
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || !(f >= 1 && f <= 100) {
		return 0, fmt.Errorf("%s=%q: want a number from 1 to 100", environment, text)
	}
	return f, nil
}

// Scale returns d multiplied by GETWORK_TEST_SLOW: how long to wait for an event that takes less than d on an idle machine.
func Scale(d time.Duration) time.Duration { return time.Duration(float64(d) * factor()) }

// usual is more than enough for one event on a shared machine.
const usual = 30 * time.Second

// Await asks every few milliseconds until the answer is true, and fails the test if it isn't within 30 s, multiplied by
// GETWORK_TEST_SLOW.
func Await(t testing.TB, what string, so func() bool) {
	t.Helper()
	deadline := time.NewTimer(Scale(usual))
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !so() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("waited in vain until %s", what)
		}
	}
}
