package page

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os/exec"
	"strings"
	"testing"
	"time"

	"getwork/cmd/internal/e2e"
	"getwork/schema/schematest/timeout"
)

// Firefox is a tab of a real Firefox with a profile of its own. The test speaks Marionette directly, without a driver:
// messages are LENGTH:JSON, commands [0, id, name, parameters], and answers [1, id, error, result].
type Firefox struct {
	T *testing.T
	*foxProcess
}

// NewFirefox opens a tab of Firefox, or skips the test if it is not installed. preferences are those that differ from its
// own.
func NewFirefox(t *testing.T, preferences map[string]any) *Firefox {
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
	f := &Firefox{t, process}
	t.Cleanup(func() { // also if the test has failed in the middle of anything
		f.T = t
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
	f.Said()
	t.Cleanup(func() {
		if said := f.Said(); said != "" {
			t.Errorf("the browser's console said:\n%s", said)
		}
	})
	return f
}

// fresh replaces all tabs by a new one.
func (f *Firefox) fresh() {
	f.T.Helper()
	f.inBrowser(`const all = [...gBrowser.tabs];
		gBrowser.selectedTab = gBrowser.addTab('about:blank', { triggeringPrincipal: Services.scriptSecurityManager.getSystemPrincipal() });
		for (const tab of all) gBrowser.removeTab(tab, { animate: false, skipPermitUnload: true });
		return ''`)
	var handles []string
	if result, err := f.call("WebDriver:GetWindowHandles", map[string]any{}); err != nil || json.Unmarshal(result, &handles) != nil || len(handles) != 1 {
		f.T.Fatalf("windows: %s, %v; want one", result, err)
	}
	f.Do("WebDriver:SwitchToWindow", map[string]any{"handle": handles[0], "focus": true}, nil)
}

// try sends a command, and decodes the value of its result into a variable, unless that is nil.
func (f *Firefox) try(command string, parameters, into any) error {
	result, err := f.call(command, parameters)
	if err != nil || into == nil {
		return err
	}
	return json.Unmarshal(result, &struct{ Value any }{into})
}

// Do is try, and fails the test on an error.
func (f *Firefox) Do(command string, parameters, into any) {
	f.T.Helper()
	if err := f.try(command, parameters, into); err != nil {
		f.T.Fatal(err)
	}
}

// body executes a function's body like a script of the page. If it returns a promise, body waits for it.
func body(js string) map[string]any {
	return map[string]any{"script": js, "args": []any{}, "sandbox": nil}
}

// inBrowser executes a function's body, which returns a text, in the browser's own window, as a part of the browser.
func (f *Firefox) inBrowser(js string) (text string) {
	f.T.Helper()
	f.Do("Marionette:SetContext", map[string]any{"value": "chrome"}, nil)
	f.Do("WebDriver:ExecuteScript", body(js), &text)
	f.Do("Marionette:SetContext", map[string]any{"value": "content"}, nil)
	return text
}

// Said returns what was recorded since the last call.
func (f *Firefox) Said() string {
	f.T.Helper()
	return f.inBrowser(`const said = [...window.said].join('\n'); window.said.clear(); return said`)
}

// Eval evaluates an expression in the page that returns a text, or a promise of one.
func (f *Firefox) Eval(expression string) (text string) {
	f.T.Helper()
	f.Do("WebDriver:ExecuteScript", body("return ("+expression+")"), &text)
	return text
}

// Execute executes a function's body in the page.
func (f *Firefox) Execute(js string) {
	f.T.Helper()
	f.Do("WebDriver:ExecuteScript", body(js), nil)
}

// Await waits until an expression is true in the page, even across a reload.
func (f *Firefox) Await(expression string, within time.Duration) {
	f.T.Helper()
	f.until(expression, within, func() (yes bool, err error) {
		var seen string
		err = f.try("WebDriver:ExecuteScript", body("return "+fmt.Sprintf(Looking, expression)), &seen)
		return seen == "true", err
	})
}

func (f *Firefox) until(what string, within time.Duration, so func() (bool, error)) {
	f.T.Helper()
	deadline := time.Now().Add(timeout.Scale(within))
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for ; ; <-tick.C {
		yes, err := so()
		if yes {
			return
		}
		if time.Now().After(deadline) {
			f.T.Fatalf("not within %v: %s (last error: %v). The page shows:\n%s", within, what, err, f.Eval(`document.body.innerText`))
		}
	}
}

// Open loads an address.
func (f *Firefox) Open(address string) {
	f.T.Helper()
	f.Do("WebDriver:Navigate", map[string]any{"url": address}, nil)
}

// Size sets the page's size. A window is never narrower than 500 pixels, but the element that shows the page may be.
func (f *Firefox) Size(width, height int64) {
	f.T.Helper()
	f.inBrowser(fmt.Sprintf(`for (const most of ['', 'min-', 'max-']) {
		gBrowser.selectedBrowser.style.setProperty(most + 'width', '%dpx');
		gBrowser.selectedBrowser.style.setProperty(most + 'height', '%dpx');
	}
	return ''`, width, height))
	f.Await(fmt.Sprintf(`innerWidth === %d && innerHeight === %d`, width, height), e2e.Soon)
}

// Scheme sets the reader's preferred colours: light or dark.
func (f *Firefox) Scheme(name string) {
	f.T.Helper()
	f.inBrowser(fmt.Sprintf(`gBrowser.selectedBrowser.browsingContext.prefersColorSchemeOverride = %q; return ''`, name))
	f.Await(fmt.Sprintf(`matchMedia('(prefers-color-scheme: %s)').matches`, name), e2e.Soon)
}

// screenshot returns a PNG of the whole page, not only of the screen.
func (f *Firefox) screenshot() (png []byte) {
	f.T.Helper()
	f.Do("WebDriver:TakeScreenshot", map[string]any{"full": true, "hash": false}, &png) // base64, the encoding of bytes in JSON
	return png
}

// element executes a command on the element of an expression, as soon as it exists and the command succeeds.
func (f *Firefox) element(expression, command string, parameters map[string]any) {
	f.T.Helper()
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

// Click clicks the element of an expression with the mouse; nothing may cover it.
func (f *Firefox) Click(expression string) {
	f.T.Helper()
	f.element(expression, "WebDriver:ElementClick", map[string]any{})
}

// Fill types a text into a field, replacing its content.
func (f *Firefox) Fill(expression, text string) {
	f.T.Helper()
	f.element(expression, "WebDriver:ElementClear", map[string]any{})
	f.element(expression, "WebDriver:ElementSendKeys", map[string]any{"text": text})
}

// Keys, as WebDriver names them. Shift and Ctrl are held down until everything is typed.
const (
	KeyTab    = "\ue004"
	KeyEnter  = "\ue007"
	KeyEscape = "\ue00c"
	KeyDelete = "\ue017"
	KeyShift  = "\ue008"
	KeyCtrl   = "\ue009"
	KeyLeft   = "\ue012"
	KeyRight  = "\ue014"
)

// Keys types into the element with the focus.
func (f *Firefox) Keys(text string) {
	f.T.Helper()
	type action struct {
		Type  string `json:"type"`
		Value string `json:"value"`
	}
	var actions, held []action
	for _, r := range text {
		key := string(r)
		actions = append(actions, action{"keyDown", key})
		up := action{"keyUp", key}
		if key == KeyShift || key == KeyCtrl {
			held = append(held, up)
		} else {
			actions = append(actions, up)
		}
	}
	actions = append(actions, held...)
	keyboard := map[string]any{"type": "key", "id": "keyboard", "actions": actions}
	f.Do("WebDriver:PerformActions", map[string]any{"actions": []any{keyboard}}, nil)
}

// CSS returns an expression for the first element of a selector.
func CSS(selector string) string { return fmt.Sprintf(`document.querySelector(%q)`, selector) }

// Called returns an expression for a visible element of a selector with that name: one that begins so comes before one
// that contains it.
func Called(selector, name string) string {
	return fmt.Sprintf(`((its, all) => all.find((e) => its(e).startsWith(%q)) ?? all.find((e) => its(e).includes(%[1]q)))(
		(e) => (e.ariaLabel ?? e.labels?.[0]?.innerText ?? e.innerText).replace(/\s+/g, ' ').trim(),
		[...document.querySelectorAll(%q)].filter((e) => e.checkVisibility()))`, name, selector)
}

// Press clicks the element with that name.
func (f *Firefox) Press(selector, name string) {
	f.T.Helper()
	f.Click(Called(selector, name))
}

// Visit opens a path of a node as a user, such as "Mary,manager", and waits for the view.
func (f *Firefox) Visit(address, path, user string) {
	f.T.Helper()
	name, _, _ := strings.Cut(user, ",")
	f.Eval(leave)
	f.Open(address + path + "#log-in=" + url.PathEscape(user))
	f.Await(fmt.Sprintf(`document.querySelector('#name')?.textContent === %q && document.querySelector('#view > *')`, name), e2e.Soon)
}

// State waits for the page's message about its connection to the server.
func (f *Firefox) State(name string, within time.Duration) {
	f.T.Helper()
	f.Await(fmt.Sprintf(`document.querySelector('#chip')?.dataset.state === %q`, name), within)
}

// Shows waits until a visible element contains the given text, with each run of blanks as one.
func (f *Firefox) Shows(selector, text string) {
	f.T.Helper()
	f.Await(fmt.Sprintf(`[...document.querySelectorAll(%q)].some((e) =>
		e.checkVisibility() && e.innerText.replace(/\s+/g, ' ').includes(%q))`, selector, text), e2e.Soon)
}

// Works waits until the pipeline has that many items.
func (f *Firefox) Works(n int) {
	f.T.Helper()
	f.Await(fmt.Sprintf(`document.querySelectorAll('#work .work').length === %d`, n), e2e.Soon)
}

// TabTo presses the Tab key until the element of an expression has the focus; with Shift, if that lies before the element that has it
// now. The way round leads through Firefox's own bars, after which the page does not have the focus for certain.
func (f *Firefox) TabTo(expression string) {
	f.T.Helper()
	f.Await(expression, e2e.Soon)
	key := KeyTab
	if f.Eval(`String(document.activeElement.compareDocumentPosition(`+expression+`) & Node.DOCUMENT_POSITION_PRECEDING)`) != "0" {
		key = KeyShift + KeyTab
	}
	for range 100 {
		if f.Eval(`String(document.activeElement === `+expression+`)`) == "true" {
			return
		}
		f.Keys(key)
	}
	f.T.Fatalf("the Tab key does not come to %s; it is at %s", expression, f.Eval(`document.activeElement.outerHTML.slice(0, 300)`))
}
