package demo

import (
	"context"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
)

// defaultDemoDir returns where the demo's data is kept without --data-dir. It is the same at each start.
func defaultDemoDir() string {
	cache, err := os.UserCacheDir()
	if os.Geteuid() == 0 {
		// PostgreSQL refuses to run as root, and the account that it runs as may not enter root's home.
		cache, err = os.TempDir(), nil
		if runtime.GOOS == "linux" {
			cache = "/var/cache"
		}
	}
	if err != nil {
		cache = os.TempDir()
	}
	return filepath.Join(cache, "getwork", "demo")
}

// onSecondSignal returns a context that ends when the process is asked to end for the second time. The context that
// main makes handles the first time.
func onSecondSignal() (hurry context.Context, stop func()) {
	hurry, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		for range 2 {
			select {
			case <-signals:
			case <-hurry.Done():
				return
			}
		}
		cancel()
	}()
	return hurry, func() {
		signal.Stop(signals)
		cancel()
	}
}
