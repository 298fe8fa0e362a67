package command

import (
	"bytes"
	"os"
	"testing"
	"time"
)

// The line counts from the second second on, and is gone when the answer is printed.
func TestProgressCounts(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	p := &Progress{w: &out}
	began, ticks := time.Now(), make(chan time.Time)
	stopped := false
	end := p.count("Waiting", began, ticks, func() { stopped = true })
	for s := range 3 {
		ticks <- began.Add(time.Duration(s+1) * time.Second)
	}
	end()
	end()
	if got, want := out.String(), "\r\x1b[KWaiting: 2 s\r\x1b[KWaiting: 3 s\r\x1b[K"; got != want || !stopped {
		t.Errorf("%q, stopped %t, want %q", got, stopped, want)
	}
}

// A file or a pipe gets no progress.
func TestProgressOnTerminalsOnly(t *testing.T) {
	t.Parallel()
	f, err := os.Create(t.TempDir() + "/errors")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p := NewProgress(&Streams{RawErrs: f})
	end := p.Count("Waiting")
	p.Show("%d rows", 3)
	end()
	if is, err := f.Stat(); err != nil || is.Size() > 0 {
		t.Errorf("%d bytes written, %v", is.Size(), err)
	}
}
