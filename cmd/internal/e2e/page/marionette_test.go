package page

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"getwork/cmd/internal/e2e"
	"getwork/cmd/internal/node"
)

// firefox is a real Firefox with a profile of its own. The test speaks Marionette directly, without a driver: messages
// are LENGTH:JSON, commands [0, id, name, parameters], and answers [1, id, error, result].
type firefox struct {
	t    *testing.T
	conn net.Conn
	in   *bufio.Reader
	id   int // of the last command
}

// newFirefox starts Firefox, or skips the test if it is not installed. preferences are those that differ from its own.
func newFirefox(t *testing.T, preferences map[string]any) *firefox {
	t.Helper()
	path := ""
	for _, name := range []string{"firefox-esr", "firefox"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		t.Skip("no firefox-esr or firefox on the PATH; on Debian: apt-get install firefox-esr")
	}
	f := &firefox{t: t}
	f.start(path, preferences)
	f.do("WebDriver:NewSession", map[string]any{"timeouts": map[string]any{"script": 100_000, "pageLoad": 100_000}}, nil)
	f.inBrowser(console)
	t.Cleanup(func() {
		if said := f.said(); said != "" {
			t.Errorf("the browser's console said:\n%s", said)
		}
	})
	return f
}

// start starts Firefox, and ends it with the test, in order or by force. Its HOME is a folder that it can write to,
// since it refuses another user's; the folder is removed then.
func (f *firefox) start(path string, preferences map[string]any) {
	t := f.t
	t.Helper()
	folder, err := os.MkdirTemp("", "getwork-firefox-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(folder); err != nil {
			t.Log("remove the browser's folder: ", err)
		}
	})
	prefs := "user_pref(\"marionette.port\", 0);\n" // a free port
	for name, value := range preferences {
		v, _ := json.Marshal(value)
		prefs += fmt.Sprintf("user_pref(%q, %s);\n", name, v)
	}
	if err := os.WriteFile(filepath.Join(folder, "user.js"), []byte(prefs), 0o600); err != nil {
		t.Fatal(err)
	}
	printed, err := os.Create(filepath.Join(folder, "printed"))
	if err != nil {
		t.Fatal(err)
	}
	defer printed.Close()
	cmd := exec.Command(path, "--headless", "--marionette", "--remote-allow-system-access", "--no-remote", "--profile", folder)
	cmd.Env = append(os.Environ(), "HOME="+folder, "TMPDIR="+folder, "MOZ_CRASHREPORTER_DISABLE=1")
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = printed, printed, node.Attributes()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	t.Cleanup(func() {
		force := time.AfterFunc(e2e.Soon, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
		if _, err := f.call("Marionette:Quit", map[string]any{"flags": []string{"eForceQuit"}}); err != nil {
			force.Reset(0)
		}
		<-ended
		force.Stop()
	})
	e2e.Await(t, "Firefox listens", 3*e2e.Soon, func() bool {
		select {
		case <-ended:
			text, _ := os.ReadFile(printed.Name())
			t.Fatalf("Firefox ended: %v\n%s", cmd.ProcessState, text)
		default:
		}
		port, err := os.ReadFile(filepath.Join(folder, "MarionetteActivePort"))
		if err == nil && len(port) > 0 {
			f.conn, err = net.Dial("tcp", "127.0.0.1:"+string(port))
		}
		return err == nil && f.conn != nil
	})
	t.Cleanup(func() { _ = f.conn.Close() })
	f.in = bufio.NewReader(f.conn)
	if _, err := f.hear(); err != nil { // the greeting
		t.Fatal(err)
	}
}

// call sends a command, and waits for its result.
func (f *firefox) call(command string, parameters any) (json.RawMessage, error) {
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

func (f *firefox) hear() ([]byte, error) {
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

// try sends a command, and decodes the value of its result into a variable, unless that is nil.
func (f *firefox) try(command string, parameters, into any) error {
	result, err := f.call(command, parameters)
	if err != nil || into == nil {
		return err
	}
	return json.Unmarshal(result, &struct{ Value any }{into})
}

// do is try, and fails the test on an error.
func (f *firefox) do(command string, parameters, into any) {
	f.t.Helper()
	if err := f.try(command, parameters, into); err != nil {
		f.t.Fatal(err)
	}
}

// body executes a function's body like a script of the page. If it returns a promise, body waits for it.
func body(js string) map[string]any {
	return map[string]any{"script": js, "args": []any{}, "sandbox": nil}
}

// inBrowser executes a function's body, which returns a text, in the browser's own window, as a part of the browser.
func (f *firefox) inBrowser(js string) (text string) {
	f.t.Helper()
	f.do("Marionette:SetContext", map[string]any{"value": "chrome"}, nil)
	f.do("WebDriver:ExecuteScript", body(js), &text)
	f.do("Marionette:SetContext", map[string]any{"value": "content"}, nil)
	return text
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

// said returns what was recorded since the last call.
func (f *firefox) said() string {
	f.t.Helper()
	return f.inBrowser(`const said = [...window.said].join('\n'); window.said.clear(); return said`)
}

// eval evaluates an expression in the page that returns a text, or a promise of one.
func (f *firefox) eval(expression string) (text string) {
	f.t.Helper()
	f.do("WebDriver:ExecuteScript", body("return ("+expression+")"), &text)
	return text
}

// await waits until an expression is true in the page, even across a reload.
func (f *firefox) await(expression string, within time.Duration) {
	f.t.Helper()
	f.until(expression, within, func() (yes bool, err error) {
		err = f.try("WebDriver:ExecuteScript", body("return !!("+expression+")"), &yes)
		return yes, err
	})
}

func (f *firefox) until(what string, within time.Duration, so func() (bool, error)) {
	f.t.Helper()
	deadline := time.Now().Add(within)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for ; ; <-tick.C {
		yes, err := so()
		if yes {
			return
		}
		if time.Now().After(deadline) {
			f.t.Fatalf("not within %v: %s (last error: %v). The page shows:\n%s", within, what, err, f.eval(`document.body.innerText`))
		}
	}
}

// open loads an address.
func (f *firefox) open(address string) {
	f.t.Helper()
	f.do("WebDriver:Navigate", map[string]any{"url": address}, nil)
}

// size sets the page's size. A window is never narrower than 500 pixels, but the element that shows the page may be.
func (f *firefox) size(width, height int64) {
	f.t.Helper()
	f.inBrowser(fmt.Sprintf(`for (const most of ['', 'min-', 'max-']) {
		gBrowser.selectedBrowser.style.setProperty(most + 'width', '%dpx');
		gBrowser.selectedBrowser.style.setProperty(most + 'height', '%dpx');
	}
	return ''`, width, height))
	f.await(fmt.Sprintf(`innerWidth === %d && innerHeight === %d`, width, height), e2e.Soon)
}

// scheme sets the reader's preferred colours: light or dark.
func (f *firefox) scheme(name string) {
	f.t.Helper()
	f.inBrowser(fmt.Sprintf(`gBrowser.selectedBrowser.browsingContext.prefersColorSchemeOverride = %q; return ''`, name))
	f.await(fmt.Sprintf(`matchMedia('(prefers-color-scheme: %s)').matches`, name), e2e.Soon)
}

// screenshot returns a PNG of the whole page, not only of the screen.
func (f *firefox) screenshot() (png []byte) {
	f.t.Helper()
	f.do("WebDriver:TakeScreenshot", map[string]any{"full": true, "hash": false}, &png) // base64, the encoding of bytes in JSON
	return png
}

// element executes a command on the element of an expression, as soon as it exists and the command succeeds.
func (f *firefox) element(expression, command string, parameters map[string]any) {
	f.t.Helper()
	f.until(command+" with "+expression, e2e.Soon, func() (bool, error) {
		var found map[string]string // its reference, by Marionette's key
		err := f.try("WebDriver:ExecuteScript", body("return ("+expression+") ?? null"), &found)
		for _, id := range found {
			parameters["id"] = id
			err = f.try(command, parameters, nil)
		}
		return len(found) > 0 && err == nil, err
	})
}

// click clicks the element of an expression with the mouse; nothing may cover it.
func (f *firefox) click(expression string) {
	f.t.Helper()
	f.element(expression, "WebDriver:ElementClick", map[string]any{})
}

// fill types a text into a field, replacing its content.
func (f *firefox) fill(expression, text string) {
	f.t.Helper()
	f.element(expression, "WebDriver:ElementClear", map[string]any{})
	f.element(expression, "WebDriver:ElementSendKeys", map[string]any{"text": text})
}

// Keys, as WebDriver names them. Shift and Ctrl are held down until everything is typed.
const (
	keyTab, keyEnter, keyEscape, keyDelete = "\ue004", "\ue007", "\ue00c", "\ue017"
	keyShift, keyCtrl, keyLeft             = "\ue008", "\ue009", "\ue012"
)

// keys types into the element with the focus.
func (f *firefox) keys(text string) {
	f.t.Helper()
	type action struct {
		Type  string `json:"type"`
		Value string `json:"value"`
	}
	var actions []action
	for _, r := range text {
		key := string(r)
		actions = append(actions, action{"keyDown", key})
		if key != keyShift && key != keyCtrl {
			actions = append(actions, action{"keyUp", key})
		}
	}
	keyboard := map[string]any{"type": "key", "id": "keyboard", "actions": actions}
	f.do("WebDriver:PerformActions", map[string]any{"actions": []any{keyboard}}, nil)
	f.do("WebDriver:ReleaseActions", map[string]any{}, nil)
}
