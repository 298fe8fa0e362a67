package page

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"getwork/cmd/internal/e2e"
	"getwork/cmd/internal/node"
	"getwork/schema/schematest/timeout"
)

// foxPool keeps processes of Firefox whose tests have ended, for later tests: a start costs seconds. Marionette allows one
// session per process, so tests beside each other need one each.
type foxPool struct {
	mu   sync.Mutex
	idle []*foxProcess
}

var foxes foxPool

// take returns an idle process, or starts one.
func (p *foxPool) take(path string) (*foxProcess, error) {
	p.mu.Lock()
	if last := len(p.idle) - 1; last >= 0 {
		f := p.idle[last]
		p.idle = p.idle[:last]
		p.mu.Unlock()
		return f, nil
	}
	p.mu.Unlock()
	return startFox(path)
}

func (p *foxPool) give(f *foxProcess) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle = append(p.idle, f)
}

// stop ends all idle processes.
func (p *foxPool) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range p.idle {
		f.end()
	}
	p.idle = nil
}

// foxProcess is a process of Firefox with a profile of its own, and a session with it.
type foxProcess struct {
	folder string
	cmd    *exec.Cmd
	ended  chan struct{}
	conn   net.Conn
	in     *bufio.Reader
	id     int // of the last command
}

// startFox starts Firefox and a session. Its HOME is a folder that it can write to, since it refuses another user's; the
// folder is removed then.
func startFox(path string) (*foxProcess, error) {
	folder, err := os.MkdirTemp("", "getwork-firefox-")
	if err != nil {
		return nil, err
	}
	f := &foxProcess{folder: folder, ended: make(chan struct{})}
	if err := f.launch(path); err != nil {
		_ = os.RemoveAll(folder)
		return nil, err
	}
	if err := f.greet(); err != nil {
		f.end()
		return nil, err
	}
	return f, nil
}

func (f *foxProcess) launch(path string) error {
	prefs := "user_pref(\"marionette.port\", 0);\n" // a free port
	if err := os.WriteFile(filepath.Join(f.folder, "user.js"), []byte(prefs), 0o600); err != nil {
		return err
	}
	printed, err := os.Create(f.printed())
	if err != nil {
		return err
	}
	defer printed.Close()
	f.cmd = exec.Command(path, "--headless", "--marionette", "--remote-allow-system-access", "--no-remote", "--profile", f.folder)
	f.cmd.Env = append(os.Environ(), "HOME="+f.folder, "TMPDIR="+f.folder, "TZ="+evening(time.Now()), "MOZ_CRASHREPORTER_DISABLE=1")
	f.cmd.Stdout, f.cmd.Stderr = printed, printed
	return node.Tie(f.cmd, func(error) { close(f.ended) })
}

func (f *foxProcess) printed() string { return filepath.Join(f.folder, "printed") }

// greet waits until Firefox listens, and begins the session.
func (f *foxProcess) greet() error {
	late := time.After(timeout.Scale(3 * e2e.Soon))
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for f.conn == nil {
		select {
		case <-tick.C:
		case <-f.ended:
			text, _ := os.ReadFile(f.printed())
			return fmt.Errorf("Firefox ended: %v\n%s", f.cmd.ProcessState, text)
		case <-late:
			return errors.New("Firefox does not listen")
		}
		port, err := os.ReadFile(filepath.Join(f.folder, "MarionetteActivePort"))
		if err != nil || len(port) == 0 {
			continue
		}
		if conn, err := net.Dial("tcp", "127.0.0.1:"+string(port)); err == nil {
			f.conn, f.in = conn, bufio.NewReader(conn)
		}
	}
	if _, err := f.hear(); err != nil { // the greeting
		return err
	}
	// A script that looks whether something is so yet never ends if the page is replaced in a bad moment. Await then looks again.
	script := timeout.Scale(15 * time.Second).Milliseconds()
	if _, err := f.call("WebDriver:NewSession", map[string]any{"timeouts": map[string]any{"script": script, "pageLoad": 100_000}}); err != nil {
		return err
	}
	return f.asBrowser(console)
}

// end ends the process, in order or by force.
func (f *foxProcess) end() {
	force := time.AfterFunc(e2e.Soon, func() { _ = syscall.Kill(-f.cmd.Process.Pid, syscall.SIGKILL) })
	if _, err := f.call("Marionette:Quit", map[string]any{"flags": []string{"eForceQuit"}}); err != nil {
		force.Reset(0)
	}
	<-f.ended
	force.Stop()
	if f.conn != nil {
		_ = f.conn.Close()
	}
	_ = os.RemoveAll(f.folder)
}

// tidy removes what a test has left: its preferences, cookies, and stored data.
func (f *foxProcess) tidy(preferences map[string]any) error {
	names, _ := json.Marshal(slices.Collect(maps.Keys(preferences)))
	return f.asBrowser(`for (const name of ` + string(names) + ` ?? []) Services.prefs.clearUserPref(name);
		return new Promise((done) => Services.clearData.deleteData(Ci.nsIClearDataService.CLEAR_ALL, { onDataDeleted() { done(''); } }))`)
}

// asBrowser executes a function's body in the browser's own window.
func (f *foxProcess) asBrowser(js string) error {
	for _, step := range []struct {
		command    string
		parameters map[string]any
	}{
		{"Marionette:SetContext", map[string]any{"value": "chrome"}},
		{"WebDriver:ExecuteScript", body(js)},
		{"Marionette:SetContext", map[string]any{"value": "content"}},
	} {
		if _, err := f.call(step.command, step.parameters); err != nil {
			return err
		}
	}
	return nil
}

// console records messages that must not appear: uncaught exceptions, and violations of the page's policy. Failed loads
// may appear: tests take nodes away.
const console = `
	window.said = new Set();
	Services.console.registerListener({
		observe(m) {
			if (!(m instanceof Ci.nsIScriptError) || m.flags & (Ci.nsIScriptError.warningFlag | Ci.nsIScriptError.infoFlag)) return;
			if (m.category !== 'content javascript' && !m.category.startsWith('CSP')) return;
			window.said.add(m.errorMessage + ' ' + m.sourceName + ':' + m.lineNumber);
		},
	});
	return ''`

// call sends a command, and waits for its result.
func (f *foxProcess) call(command string, parameters any) (json.RawMessage, error) {
	if f.conn == nil {
		return nil, errors.New("Firefox does not listen")
	}
	f.id++
	message, err := json.Marshal([]any{0, f.id, command, parameters})
	if err != nil {
		return nil, err
	}
	_ = f.conn.SetDeadline(time.Now().Add(6 * e2e.Soon))
	if _, err := fmt.Fprintf(f.conn, "%d:%s", len(message), message); err != nil {
		return nil, err
	}
	text, err := f.hear()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", command, err)
	}
	var answer [4]json.RawMessage
	var failure *struct{ Error, Message string }
	if err = json.Unmarshal(text, &answer); err == nil {
		err = json.Unmarshal(answer[2], &failure)
	}
	if err == nil && failure != nil {
		err = fmt.Errorf("%s: %s: %s", command, failure.Error, failure.Message)
	}
	return answer[3], err
}

func (f *foxProcess) hear() ([]byte, error) {
	length, err := f.in.ReadString(':')
	if err != nil {
		return nil, err
	}
	n, err := strconv.Atoi(strings.TrimSuffix(length, ":"))
	if err != nil {
		return nil, err
	}
	text := make([]byte, n)
	_, err = io.ReadFull(f.in, text)
	return text, err
}
