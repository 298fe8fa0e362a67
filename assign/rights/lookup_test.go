package rights

import (
	"testing"
	"testing/synctest"
	"time"
)

// What was read counts for a second, whenever the generations of the cache end.
func TestCacheKeepsForASecond(t *testing.T) {
	t.Parallel()
	for late := time.Duration(0); late < time.Second; late += 90 * time.Millisecond {
		synctest.Test(t, func(t *testing.T) {
			var c cache
			began := time.Now()
			c.put("x", found{exists: true, at: began})
			time.Sleep(late)
			if _, ok := c.get("x"); !ok {
				t.Errorf("it is read again after %s", late)
			}
			time.Sleep(time.Second - late)
			for range 10 {
				time.Sleep(100 * time.Millisecond)
				if _, ok := c.get("x"); ok {
					t.Errorf("with a look after %s: what was read counts %s later", late, time.Since(began))
				}
			}
		})
	}
}
