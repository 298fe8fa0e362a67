package look

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/google/go-cmp/cmp"

	"getwork/cmd/internal/e2e"
	"getwork/cmd/lab/page"
)

// speaks has pages that are opened from now on speak a language, if a page of theirs is open; otherwise they speak English.
func speaks(b *page.Browser, lang string) {
	b.T.Helper()
	b.Lang = ""
	if b.Eval(fmt.Sprintf(`location.protocol.startsWith('http') ? (localStorage.setItem('getwork.lang', %q), 'yes') : ''`, lang)) != "" {
		b.Lang = lang
	}
}

// noting keeps what the server says and what is typed, so that unbracketed can distinguish data from texts that were forgotten.
const noting = `(() => {
	const { fetch, WebSocket } = window, said = window.serverSaid = [], typed = window.typedHere = new Map(); // by field
	addEventListener('input', ({ target: e }) => e.matches('textarea, input:not([type=checkbox], [type=radio])') && typed.set(e, e.value), true);
	window.fetch = async (...args) => {
		const answer = await fetch(...args);
		answer.clone().text().then((text) => said.push(text), () => {});
		return answer;
	};
	window.WebSocket = class extends WebSocket {
		constructor(...args) {
			super(...args);
			this.addEventListener('message', (e) => said.push(e.data));
		}
	};
})();`

// unbracketed returns texts that people see or hear, and that are neither in brackets nor data nor a date. What is marked translate=no
// is the API's: scopes of tokens, acts.
const unbracketed = `(() => {
	const data = new Set(), loose = new Set();
	const words = (text) => String(text).toLowerCase().match(/\p{L}{2,}/gu) ?? [];
	const note = (v, details) => {
		if (typeof v === 'string') for (const w of words(v)) data.add(w);
		else if (v && typeof v === 'object') for (const [k, one] of Object.entries(v)) {
			if (details && !Array.isArray(v)) note(k);
			note(one, details || k === 'details' || k === 'columns');
		}
	};
	for (const text of window.serverSaid) try { note(JSON.parse(text)); } catch {}
	for (let m = 0; m < 12; m++) for (const month of ['short', 'long']) note(new Intl.DateTimeFormat('en-XA', { month, dayPeriod: 'short' }).format(new Date(2026, m)));
	for (let d = 0; d < 7; d++) for (const how of [{ dateStyle: 'full', timeStyle: 'long' }, { weekday: 'short' }]) note(new Intl.DateTimeFormat('en-XA', how).format(Date.now() + d * 86_400_000));
	['am', 'pm', 'chf', 'getwork', 'true', 'false', 'select', 'json', 'csv', ...window.typedHere.values()].forEach((v) => note(v));
	let depth = 0;
	const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	while (walk.nextNode()) {
		const e = walk.currentNode.parentElement;
		if (e.closest('code, pre, kbd, svg, noscript, script, template, .face, .sql, textarea, #skip, body [lang], [translate=no]')) continue;
		let out = '';
		for (const c of walk.currentNode.data) {
			if (c === '[') depth++;
			else if (c === ']') depth--;
			else if (depth === 0) out += c;
		}
		if (e.checkVisibility() && !out.includes('{"')) for (const w of words(out)) if (!data.has(w)) loose.add(w + ' in ' + out.trim().slice(0, 60));
	}
	if (depth) loose.add('brackets that do not match: ' + depth);
	for (const name of ['aria-label', 'title', 'placeholder', 'aria-valuetext', 'data-label']) for (const e of document.querySelectorAll('body [' + name + ']')) {
		let out = e.getAttribute(name);
		for (let before = ''; before !== out;) [before, out] = [out, out.replace(/\[[^[\]]*\]/g, '')];
		if (e.checkVisibility()) for (const w of words(out)) if (!data.has(w)) loose.add(name + ': ' + w + ' in ' + e.getAttribute(name).slice(0, 60));
	}
	return [...loose].slice(0, 20).join('\n');
})()`

// German is spoken where the browser wants it: getting work, returning and completing it, and making a task that is refused.
func TestPageInGerman(t *testing.T) {
	t.Parallel()
	b := page.NewBrowser(t, "")
	s := e2e.NewSite(t, 1, "")
	s.Task("verify", `select 'loan ' || i as item, 1234.5 * i as amount, date '2026-02-03' as submitted from generate_series(1, 5) i order by i`)
	b.Do(chromedp.Func(func(ctx context.Context, tab *chromedp.Target) error {
		_, err := cdp.Call(ctx, tab, emulation.SetUserAgentOverride, emulation.SetUserAgentOverrideParams{UserAgent: "Chrome", AcceptLanguage: "fr-FR,de-DE,en"})
		return err
	}))
	b.Visit(s.Nodes[0].URL, "/", "Heidi")
	b.State("live", e2e.Soon)
	b.Sees("Ihr Tisch ist leer.")
	if got := b.Eval(`document.documentElement.lang`); got != "de" {
		t.Errorf("the document's language is %q", got)
	}
	b.Use("button", "verify")
	b.Use("radio", "2")
	b.Use("button", "Arbeit holen: verify")
	b.Works(2, e2e.Soon)
	b.Sees("Sie haben 2 Vorgänge bekommen.")
	b.Sees("1.234,5")
	b.Sees("03.02.2026")
	b.As(page.Look{Width: 1366, Height: 768, Scheme: "light"})
	b.Shoot("german-1366")
	b.As(page.Look{Width: 390, Height: 844, Scheme: "light"})
	fits(b, t)
	b.Shoot("german-390")
	b.As(page.Look{Width: 1366, Height: 768, Scheme: "light"})
	b.Use("button", "Zurückgeben")
	b.Use("button", "für 4 h zurückgeben")
	b.Sees("zurückgegeben, frühestens")
	b.Use("button", "Abschließen")
	b.Sees("loan 2: abgeschlossen.")
	e2e.Await(t, "both are let go of", e2e.Soon, func() bool {
		return strings.Join(e2e.Column[string](s, `select state from getwork.work order by id`), " ") == "returned completed"
	})
	b.Sees("Erledigt")

	// What the server refuses is said in German, too, apart from what PostgreSQL says.
	b.Manager(s.Nodes[0].URL, "Mia", "/tasks?new=1")
	b.Set("set-name", "verify")
	b.Set("set-query", "select 1 as item, nothing")
	b.Press("#save")
	b.Shows("#set-query-error", `PostgreSQL meldet: column "nothing" does not exist (SQLSTATE 42703)`)
	b.Await(`document.querySelector('.sql-wrong').textContent === 'nothing'`, e2e.Soon)
	b.Set("set-query", "select 1 as item")
	b.Press("#save")
	b.Shows("#view .error[role=alert]", "Es gibt schon eine Aufgabe „verify“")

	// A manager's bar has one row of views on a phone, and the others behind a button.
	b.Visit(s.Nodes[0].URL, "/webhooks", "Mia,manager")
	wrong := "" // with the bar
	defer func() { t.Log(wrong) }()
	for _, l := range []page.Look{{Width: 390, Height: 844, Scheme: "dark"}, {Width: 1024, Height: 768, Scheme: "light"}, {Width: 1366, Height: 768, Scheme: "light"}} {
		b.As(l)
		b.Await(fmt.Sprintf(`document.querySelector('#views a[href="/webhooks"]').hidden === %v`, l.Width < 1366), e2e.Soon)
		// While the page connects, or when the line is lost, the chip is wider.
		for _, state := range []string{"Connecting …", "Polling", "Stopped", "Late", "Live"} { // the last is true
			state = page.InPage[string](b, `return document.querySelector('#chip').textContent = (await import('/static/lang/de/page.js')).default[`+strconv.Quote(state)+`];`)
			if state == "" {
				t.Fatal("the chip has a state without a German word")
			}
			e2e.Await(t, fmt.Sprintf("the bar at %d, %s, is whole", l.Width, state), e2e.Soon, func() bool { wrong = b.Eval(page.Ragged); return wrong == "" })
		}
		b.Shoot(fmt.Sprintf("german-bar-%d", l.Width))
	}
	b.As(page.Look{Width: 390, Height: 844, Scheme: "light"})
	b.Await(`!document.querySelector('#more').hidden`, e2e.Soon)
	b.Eval(`(document.querySelector('#more').focus(), '')`)
	b.Do(chromedp.KeyEvent(kb.Enter))
	b.Await(`document.querySelector('#rest:popover-open')`, e2e.Soon)
	fits(b, t)
	b.Audit(t)
	b.Shoot("german-more-390")
	b.Do(chromedp.KeyEvent(kb.Tab), chromedp.KeyEvent(kb.Enter))
	b.Await(`location.pathname === '/items' && !document.querySelector('#rest:popover-open') && document.querySelector('#view #item')`, e2e.Soon)
	got := page.InPage[string](b, `
		const { translate } = await import('/static/lang.js');
		const said = await Promise.all([
			{ status: 403, title: 'Not allowed', detail: 'this call comes from another site\'s page' },
			{ status: 400, title: 'The request is not valid', detail: 'slots: from 1 to 10000', errors: [{ field: 'slots', detail: 'from 1 to 10000' }] },
			{ status: 409, title: 'The work is closed', detail: 'work 7 was closed as returned; it can\'t be changed any more' },
			{ status: 502, title: '', detail: 'the server answered with status 502' },
			{ status: 0, title: 'No answer', detail: 'the server has not answered within 30 s' },
			{ status: 418, title: 'Of a newer server', detail: 'and not known here' },
			new TypeError('a mistake'),
		].map(translate));
		return said.map(({ message, errors = [] }) => [message, ...errors.map((e) => e.detail)].join(' | ')).join('\n');`)
	const want = `Das dürfen Sie nicht: this call comes from another site's page
slots: von 1 bis 10.000 | von 1 bis 10.000
Die Arbeit 7 ist schon abgegeben (zurückgegeben) und kann nicht mehr geändert werden
der Server hat mit dem Status 502 geantwortet
der Server ist nicht erreichbar
and not known here
a mistake`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what is said (-want +got):\n%s", diff)
	}
}
