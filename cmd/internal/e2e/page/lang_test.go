package page

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/google/go-cmp/cmp"

	"getwork/cmd/internal/e2e"
)

// pseudo is the page's language for tests: accents, 40 % longer, and brackets around each text.
const pseudo = "en-XA"

// accents turns the pseudo-language's letters into English ones.
var accents = func() *strings.Replacer {
	const accented, plain = "ÀÇĎÉĜĤÎĶĻÑÖŔŠŤÛŴÝŽàçďéĝĥîķļñöŕšťûŵýž", "ACDEGHIKLNORSTUWYZacdeghiklnorstuwyz"
	pairs := []string{"[", "", "]", "", " ~", "", "~", ""}
	i := 0
	for _, c := range accented {
		pairs = append(pairs, string(c), plain[i:i+1])
		i++
	}
	return strings.NewReplacer(pairs...)
}()

// inEnglish is what a text of the pseudo-language says.
func (b *browser) inEnglish(text string) string {
	if b.lang != pseudo {
		return text
	}
	return strings.Join(strings.Fields(accents.Replace(text)), " ")
}

// reads is an expression for the text that an element shows, in English.
func (b *browser) reads(element string) string {
	if b.lang != pseudo {
		return element + `.innerText`
	}
	return element + `.innerText.normalize('NFD').replace(/[\p{M}\[\]]| ?~/gu, '')`
}

// speaks has pages that are opened from now on speak a language, if a page of theirs is open; otherwise they speak English.
func (b *browser) speaks(lang string) {
	b.t.Helper()
	b.lang = ""
	if b.eval(fmt.Sprintf(`location.protocol.startsWith('http') ? (localStorage.setItem('getwork.lang', %q), 'yes') : ''`, lang)) != "" {
		b.lang = lang
	}
}

// noting keeps what the server says, so that unbracketed can tell data from texts that were forgotten.
const noting = `(() => {
	const { fetch, WebSocket } = window, said = window.serverSaid = [];
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

// unbracketed returns texts that people see or hear, and that are neither in brackets nor data of the server's nor a date.
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
	for (let d = 0; d < 7; d++) note(new Intl.DateTimeFormat('en-XA', { dateStyle: 'full', timeStyle: 'long' }).format(Date.now() + d * 86_400_000));
	['am', 'pm', 'chf', 'getwork', 'true', 'false', 'select', 'json', 'csv', ...(window.typedHere ?? [])].forEach((w) => data.add(w));
	let depth = 0;
	const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	while (walk.nextNode()) {
		const e = walk.currentNode.parentElement;
		if (e.closest('code, pre, kbd, svg, noscript, script, template, .u-wrap, .sql, textarea, #skip, body [lang]')) continue;
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
	b := newBrowser(t, "")
	s := newSite(t, 1, "")
	s.Task("verify", `select 'loan ' || i as item, 1234.5 * i as amount, date '2026-02-03' as submitted from generate_series(1, 5) i order by i`)
	b.do(chromedp.Func(func(ctx context.Context, tab *chromedp.Target) error {
		_, err := cdp.Call(ctx, tab, emulation.SetUserAgentOverride, emulation.SetUserAgentOverrideParams{UserAgent: "Chrome", AcceptLanguage: "fr-FR,de-DE,en"})
		return err
	}))
	b.visit(s.Nodes[0].URL, "/", "Heidi")
	b.state("live", e2e.Soon)
	b.sees("Sie haben nichts in Arbeit.")
	if got := b.eval(`document.documentElement.lang`); got != "de" {
		t.Errorf("the document's language is %q", got)
	}
	b.use("DisclosureTriangle", "verify")
	b.use("radio", "2")
	b.use("button", "Arbeit holen: verify")
	b.works(2, e2e.Soon)
	b.sees("2 Vorgänge jetzt unter Ihren Vorgängen.")
	b.sees("1.234,5")
	b.sees("03.02.2026")
	b.as(look{width: 1366, height: 768, scheme: "light"})
	b.shoot("german-1366")
	b.as(look{width: 390, height: 844, scheme: "light"})
	b.fits(t)
	b.shoot("german-390")
	b.as(look{width: 1366, height: 768, scheme: "light"})
	b.use("button", "Zurückgeben")
	b.use("button", "für 4 h zurückgeben")
	b.sees("zurückgegeben, frühestens")
	b.use("button", "Abschließen")
	b.sees("loan 2: abgeschlossen.")
	e2e.Await(t, "both are let go of", e2e.Soon, func() bool {
		return strings.Join(column[string](s, `select state from getwork.work order by id`), " ") == "returned completed"
	})
	b.sees("Heute abgegeben")

	// What the server refuses is said in German, too, apart from what PostgreSQL says.
	b.manager(s.Nodes[0].URL, "Mia", "/tasks?new=1")
	b.set("set-name", "verify")
	b.set("set-query", "select 1 as item, nothing")
	b.press("#save")
	b.shows("#set-query-error", `PostgreSQL meldet: column "nothing" does not exist (SQLSTATE 42703)`)
	b.await(`document.querySelector('.sql-wrong').textContent === 'nothing'`, e2e.Soon)
	b.set("set-query", "select 1 as item")
	b.press("#save")
	b.shows("#view .error[role=alert]", "Es gibt schon eine Aufgabe „verify“")

	// A manager's bar has one row of views on a phone, and the others behind a button.
	b.visit(s.Nodes[0].URL, "/webhooks", "Mia,manager")
	for _, l := range []look{{width: 390, height: 844, scheme: "dark"}, {width: 1024, height: 768, scheme: "light"}, {width: 1366, height: 768, scheme: "light"}} {
		b.as(l)
		b.await(fmt.Sprintf(`document.querySelector('#views a[href="/webhooks"]').hidden === %v`, l.width < 1366), e2e.Soon)
		if found := b.eval(ragged); found != "" {
			t.Errorf("the bar at %d: %s", l.width, found)
		}
		b.shoot(fmt.Sprintf("german-bar-%d", l.width))
	}
	b.as(look{width: 390, height: 844, scheme: "light"})
	b.await(`!document.querySelector('#more').hidden`, e2e.Soon)
	b.eval(`(document.querySelector('#more').focus(), '')`)
	b.do(chromedp.KeyEvent(kb.Enter))
	b.await(`document.querySelector('#rest:popover-open')`, e2e.Soon)
	b.fits(t)
	b.audit(t)
	b.shoot("german-more-390")
	b.do(chromedp.KeyEvent(kb.Tab), chromedp.KeyEvent(kb.Enter))
	b.await(`location.pathname === '/items' && !document.querySelector('#rest:popover-open') && document.querySelector('#view h1')`, e2e.Soon)
	got := inPage[string](b, `
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
