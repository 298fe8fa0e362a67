package page

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/dom"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"getwork/cmd/internal/e2e"
	"getwork/schema/schematest/timeout"
)

// find finds an element by role, such as button, and by name, as users of screen readers find things. A name that equals the
// given one comes before one that begins with it, and that before one that contains it; otherwise the first counts.
func (b *Browser) find(ctx context.Context, role, name string) (cdp.BackendNodeID, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second) // a page that is about to be left may never answer
	defer cancel()
	return chromedp.Run(ctx, func(ctx context.Context, tab *chromedp.Target) (found cdp.BackendNodeID, err error) {
		root, err := chromedp.Evaluate[*runtime.RemoteObject](`document`)(ctx, tab) // not DOM.getDocument, which may crash Chromium while a page is loaded
		if err != nil {
			return 0, err
		}
		tree, err := cdp.Call(ctx, tab, accessibility.QueryAXTree, accessibility.QueryAXTreeParams{ObjectID: root.ObjectID, Role: role})
		if err != nil {
			return 0, err
		}
		best := 0
		var names []string
		for _, n := range tree.Nodes {
			its := heard(n)
			if n.Ignored || its == "" {
				continue
			}
			names = append(names, its)
			if fit := likeness(b.inEnglish(its), name); fit > best {
				best, found = fit, n.BackendDOMNodeID
			}
		}
		if best == 0 {
			return 0, fmt.Errorf("no %s is called %q; these exist: %q", role, name, names)
		}
		return found, nil
	})
}

func likeness(name, wanted string) int {
	switch {
	case name == wanted:
		return 3
	case strings.HasPrefix(name, wanted):
		return 2
	case strings.Contains(name, wanted):
		return 1
	}
	return 0
}

// heard returns a node's accessible name.
func heard(n *accessibility.Node) (name string) {
	if n.Name != nil {
		_ = json.Unmarshal(n.Name.Value, &name)
	}
	return strings.Join(strings.Fields(name), " ")
}

// with calls a JavaScript function, with the element of that role and name as this, until its result is true.
func (b *Browser) with(role, name, function string) {
	b.T.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, timeout.Scale(e2e.Soon))
	defer cancel()
	tick := time.NewTicker(30 * time.Millisecond)
	defer tick.Stop()
	for {
		id, err := b.find(ctx, role, name)
		if err == nil {
			var yes bool
			yes, err = chromedp.Run(ctx, func(ctx context.Context, tab *chromedp.Target) (bool, error) {
				node, err := cdp.Call(ctx, tab, dom.ResolveNode, dom.ResolveNodeParams{BackendNodeID: id})
				if err != nil {
					return false, err
				}
				return chromedp.CallFunctionOn[bool](function, func(p *runtime.CallFunctionOnParams) { p.ObjectID = node.Object.ObjectID })(ctx, tab)
			})
			if err == nil && yes {
				return
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			b.T.Fatalf("the %s %q can't be used: %v. The page shows:\n%s", role, name, err, b.Eval("document.body.innerText"))
		}
	}
}

// reachable marks where an element can be clicked: it is enabled, nothing covers it, and it has not moved since it was last seen.
// The next press on the page shows whether it hit the element.
const reachable = `function () {
	if (this.disabled || !this.checkVisibility()) return false;
	this.scrollIntoView({ block: 'center', behavior: 'instant' });
	const { x, y, width, height } = this.getBoundingClientRect();
	const before = window.aim;
	window.aim = [x + width / 2, y + height / 2];
	const there = document.elementFromPoint(...window.aim);
	const mine = (e) => this.contains(e) || [...this.labels ?? []].some((l) => l.contains(e));
	const around = there?.contains(this); // a field that is drawn by what is around it
	if (!there || !mine(there) && !around || String(before) !== String(window.aim)) return false;
	window.hit = null;
	addEventListener('pointerdown', (e) => { window.hit = around || mine(e.target); }, { capture: true, once: true });
	return true;
}`

// Use clicks the element of that role and name with the mouse, and again if it moved away just before.
func (b *Browser) Use(role, name string) {
	b.T.Helper()
	for range 3 {
		b.with(role, name, reachable)
		at, err := Run(b, chromedp.Evaluate[[]float64](`window.aim`))
		if err != nil {
			b.T.Fatal(err)
		}
		b.Do(chromedp.MouseClickXY(at[0], at[1]))
		if missed, err := Run(b, chromedp.Evaluate[bool](`window.hit === false`)); err != nil || !missed {
			return // the click may have led to another page
		}
	}
	b.T.Fatalf("the %s %q moves away from each click", role, name)
}

// Leave clicks an element that reloads the page. It does not use the mouse, whose click would never be confirmed.
func (b *Browser) Leave(role, name string) {
	b.T.Helper()
	b.with(role, name, `function () { return this.checkVisibility() && !this.disabled && setTimeout(() => this.click()) > 0; }`)
}

// Fill types a text into the field of that role and name, replacing its content.
func (b *Browser) Fill(role, name, text string) {
	b.T.Helper()
	b.Use(role, name)
	b.Eval(`(document.activeElement.select?.(), '')`)
	b.Do(chromedp.KeyEvent(text))
}

// Choose selects an option of a list by its text.
func (b *Browser) Choose(name, option string) {
	b.T.Helper()
	b.with("combobox", name, fmt.Sprintf(`function () {
		const found = [...this.options].find((o) => o.label.trim().startsWith(%q));
		if (!found || this.disabled) return false;
		this.focus();
		this.value = found.value;
		this.dispatchEvent(new Event('input', { bubbles: true }));
		this.dispatchEvent(new Event('change', { bubbles: true }));
		return true;
	}`, option))
}
