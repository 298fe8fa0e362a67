package page

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"testing"
	"time"

	"getwork/cmd/internal/e2e"
)

// firefox is a tab of a real Firefox with a profile of its own. The test speaks Marionette directly, without a driver:
// messages are LENGTH:JSON, commands [0, id, name, parameters], and answers [1, id, error, result].
type firefox struct {
	t *testing.T
	*foxProcess
}

// newFirefox opens a tab of Firefox, or skips the test if it is not installed. preferences are those that differ from its
// own.
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
	process, err := foxes.take(path)
	if err != nil {
		t.Fatal(err)
	}
	f := &firefox{t, process}
	t.Cleanup(func() { // also if the test has failed in the middle of anything
		f.t = t
		if err := f.tidy(preferences); err != nil {
			t.Log("Firefox is not used again: ", err)
			f.end()
			return
		}
		foxes.give(process)
	})
	set, _ := json.Marshal(preferences)
	f.inBrowser(`for (const [name, value] of Object.entries(` + string(set) + ` ?? {})) {
		Services.prefs[{ boolean: 'setBoolPref', number: 'setIntPref', string: 'setStringPref' }[typeof value]](name, value);
	}
	return ''`)
	f.fresh()
	f.said()
	t.Cleanup(func() {
		if said := f.said(); said != "" {
			t.Errorf("the browser's console said:\n%s", said)
		}
	})
	return f
}

// fresh replaces all tabs by a new one.
func (f *firefox) fresh() {
	f.t.Helper()
	f.inBrowser(`const all = [...gBrowser.tabs];
		gBrowser.selectedTab = gBrowser.addTab('about:blank', { triggeringPrincipal: Services.scriptSecurityManager.getSystemPrincipal() });
		for (const tab of all) gBrowser.removeTab(tab, { animate: false, skipPermitUnload: true });
		return ''`)
	var handles []string
	if result, err := f.call("WebDriver:GetWindowHandles", map[string]any{}); err != nil || json.Unmarshal(result, &handles) != nil || len(handles) != 1 {
		f.t.Fatalf("windows: %s, %v; want one", result, err)
	}
	f.do("WebDriver:SwitchToWindow", map[string]any{"handle": handles[0], "focus": true}, nil)
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
		var wrong string
		err = f.try("WebDriver:ExecuteScript", body("return "+fmt.Sprintf(looking, expression)), &wrong)
		return err == nil && wrong == "", err
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
	var actions, held []action
	for _, r := range text {
		key := string(r)
		actions = append(actions, action{"keyDown", key})
		up := action{"keyUp", key}
		if key == keyShift || key == keyCtrl {
			held = append(held, up)
		} else {
			actions = append(actions, up)
		}
	}
	actions = append(actions, held...)
	keyboard := map[string]any{"type": "key", "id": "keyboard", "actions": actions}
	f.do("WebDriver:PerformActions", map[string]any{"actions": []any{keyboard}}, nil)
}
