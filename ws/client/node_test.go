package client

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// node is a real node, a process with a PostgreSQL of its own, for all tests and examples of this package; their tasks have
// different names. The first test that needs it builds and starts it. It ends when its standard input is closed, so it does
// not outlive this process.
var node struct {
	sync.Once
	dir, binary string
	url         string
	err         error
	stop        func()
}

// NodeURL is the node's address.
func NodeURL() (string, error) {
	node.Do(func() { node.url, node.err = startNode() })
	return node.url, node.err
}

func startNode() (string, error) {
	dir, err := os.MkdirTemp("", "getwork-client-test-")
	if err != nil {
		return "", err
	}
	node.dir, node.binary, node.stop = dir, filepath.Join(dir, "getwork"), func() { _ = os.RemoveAll(dir) }
	if err := os.Chmod(dir, 0o755); err != nil { // PostgreSQL's user must be able to enter
		return "", err
	}
	if out, err := exec.Command("go", "build", "-o", node.binary, "getwork/cmd/getwork").CombinedOutput(); err != nil {
		return "", fmt.Errorf("build getwork: %w\n%s", err, out)
	}
	at, stop, err := launch("data")
	if err != nil {
		return "", err
	}
	node.stop = func() {
		stop()
		_ = os.RemoveAll(dir)
	}
	return at, awaitReady(at)
}

// launch starts a node whose PostgreSQL has its data in that folder.
func launch(data string, args ...string) (address string, stop func(), err error) {
	command := exec.Command(node.binary, append([]string{"serve", "--private-postgres", "--data-dir", filepath.Join(node.dir, data), "--listen", "127.0.0.1:0", "--until-stdin-closes"}, args...)...)
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "GETWORK_") && !strings.HasPrefix(e, "DATABASE_URL=") {
			command.Env = append(command.Env, e)
		}
	}
	stdin, err := command.StdinPipe()
	if err != nil {
		return "", nil, err
	}
	said, w := io.Pipe()
	command.Stderr = w
	if err := command.Start(); err != nil {
		return "", nil, err
	}
	var ended sync.WaitGroup
	ended.Go(func() { _ = command.Wait(); _ = w.Close() })
	url := make(chan string, 1)
	ended.Go(func() {
		defer close(url)
		for lines := bufio.NewScanner(said); lines.Scan(); {
			if at, ok := strings.CutPrefix(lines.Text(), "listening on "); ok {
				url <- at
			}
		}
	})
	stop = func() {
		_ = stdin.Close()
		ended.Wait()
	}
	address, ok := <-url
	if !ok {
		return "", nil, errors.New("the node ended at its start")
	}
	return address, stop, nil
}

func awaitReady(url string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c := &Client{URL: url, Retry: Retry{Tries: -1, MaxPause: 50 * time.Millisecond}}
	return c.Do(ctx, "GET", "/readyz", nil, nil)
}

func TestMain(m *testing.M) {
	code := m.Run()
	if node.stop != nil {
		node.stop()
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	usualTransport().(*http.Transport).CloseIdleConnections()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, "goroutines left over:", err)
		code = 1
	}
	os.Exit(code)
}

// as returns a client of the node.
func as(t testing.TB, user, role string) *Client {
	t.Helper()
	url, err := NodeURL()
	if err != nil {
		t.Fatal(err)
	}
	return &Client{URL: url, User: user, Role: role}
}

var names atomic.Int64

// unused returns a name that no other test has, and not this one either when it runs again.
func unused(name string) string { return fmt.Sprintf("%s-%d", name, names.Add(1)) }

// must ends the test with an error.
func must[T any](t testing.TB) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}
