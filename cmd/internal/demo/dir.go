package demo

import (
	"context"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
)

// defaultDemoDir is where the demo's data is when nobody says. It is the same at each start.
func defaultDemoDir() string {
	cache, err := os.UserCacheDir()
	if os.Geteuid() == 0 {
		// PostgreSQL will not run as root, and who it runs as may not enter root's home.
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

// onSecondSignal returns a context that ends when the process is asked to end for the second time. The first time
// is the business of the context that main makes.
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
