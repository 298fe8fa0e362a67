package page

import (
	"cmp"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/chromedp/chromedp"
)

// chromium is one process of Chromium. Its start costs more than most tests, so that all share it: each test gets a
// browser context, which is a profile in memory. It is a global variable because tests have no common caller.
type chromium struct {
	programs []string // the first that is installed

	mu  sync.Mutex
	ctx context.Context // chromedp's, of the process; nil: not started
	end func() error
}

// The shell is the same engine without the windows of a desktop browser, at half the CPU. It has no screen to keep on.
var (
	shared  = chromium{programs: append([]string{"chromium-headless-shell"}, desktop.programs...)}
	desktop = chromium{programs: []string{"chromium", "chromium-browser", "google-chrome"}}
)

// start starts the process, unless it runs. If it has crashed, start starts another: only the tests that were under way
// fail.
func (c *chromium) start() (context.Context, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx != nil {
		select {
		case <-chromedp.FromContext(c.ctx).Browser.LostConnection:
			_ = c.stopLocked()
		default:
			return c.ctx, nil
		}
	}
	path := ""
	for _, name := range c.programs {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		return nil, exec.ErrNotFound
	}
	var err error
	for range 3 { // on a loaded machine a browser may fail to start
		if err = c.launch(path); err == nil {
			return c.ctx, nil
		}
	}
	return nil, err
}

// launch starts the process. It writes to a folder that is then removed; the folder's name is short because it contains
// sockets.
func (c *chromium) launch(path string) error {
	folder, err := os.MkdirTemp("", "getwork-browser-")
	if err != nil {
		return err
	}
	allocator, end := chromedp.NewExecAllocator(context.Background(), append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path), chromedp.UserDataDir(filepath.Join(folder, "profile")), chromedp.Env("TMPDIR="+folder, "TZ="+evening(time.Now())), chromedp.NoSandbox,
		chromedp.DisableGPU, chromedp.WindowSize(1280, 800), chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true), chromedp.Flag("lang", "en-US"),
		chromedp.Flag("force-prefers-reduced-motion", true))...) // drawing what moves takes a tenth of the tests' CPU
	ctx, cancel := chromedp.NewContext(allocator)
	c.end = func() error {
		err := chromedp.Cancel(ctx)
		if err != nil {
			cancel()
		}
		end()
		return cmp.Or(err, os.RemoveAll(folder))
	}
	if err := chromedp.Do(ctx); err != nil {
		cancel()
		end()
		_ = os.RemoveAll(folder)
		return err
	}
	c.ctx = ctx
	return nil
}

// stop ends the process, if there is one.
func (c *chromium) stop() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stopLocked()
}

func (c *chromium) stopLocked() error {
	if c.ctx == nil {
		return nil
	}
	c.ctx = nil
	return c.end()
}
