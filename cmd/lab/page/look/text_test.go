package look

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"getwork/cmd/internal/e2e"
	"getwork/cmd/lab/page"
)

// Texts that people write. Each has the mark by which it is found again on the page.
const (
	mark     = "¤"
	markup   = mark + `<img src=x onerror="window.broken=1"><script>window.broken=2</script></script></textarea></style>{{7*7}}${7*7}<a href="javascript:window.broken=3">go</a><!--`
	link     = mark + `javascript:window.broken=4`
	arabic   = mark + `مرحبا بالعالم (123)`
	hebrew   = mark + `שלום עולם, 45-67`
	controls = mark + "\u202eabc\u2066def\u200b\u200d\u2067ghi\ufeff\u200fjkl"
	emoji    = mark + "👩🏽‍🚀🇺🇦 é z͑ͫ̓ͪ̂ͫ̽͏̴̙̤"
)

// long is a word that does not fit on any screen.
var long = mark + strings.Repeat("Donaudampfschifffahrt", 9)

// nasty returns all of them, each cut to that many bytes.
func nasty(most int) (all []string) {
	for _, text := range []string{markup, link, arabic, hebrew, controls, emoji, long} {
		all = append(all, strings.ToValidUTF8(text[:min(most, len(text))], ""))
	}
	return all
}

// harmless checks that the page shows these texts only as text, that they can't change the direction of the text around
// them, and that they fit on a telephone.
func harmless(b *page.Browser, t *testing.T, where string, shows ...string) {
	t.Helper()
	for _, text := range shows {
		b.Await(fmt.Sprintf(`(document.body.innerText + [...document.querySelectorAll('textarea, input')].map((e) => e.value).join()).includes(%q)`, text), e2e.Soon)
	}
	b.Settle()
	const made = `JSON.stringify([
		window.broken ?? null, document.querySelectorAll('body img, body script, body style, [onerror], [onclick], a[href^="javascript:" i]').length, document.title.includes('49'),
		(document.querySelector('main#view') ?? document.body).innerText.includes('49$'),
	])`
	if is := b.Eval(made); is != "[null,0,false,false]" {
		t.Errorf("%s: made of text: %s", where, is)
	}
	const loose = `(() => {
		const found = [], walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
		while (walk.nextNode()) {
			const { parentElement: e, data } = walk.currentNode;
			if (data.includes('` + mark + `') && e.checkVisibility() && !e.closest('[dir], bdi, option, pre code')) found.push(e.outerHTML.slice(0, 200));
		}
		return [...new Set(found.map((h) => h.slice(0, 60)))].join('\n');
	})()`
	if found := b.Eval(loose); found != "" {
		t.Errorf("%s: text with its own direction turns the text around it: give it dir=auto:\n%s", where, found)
	}
	for _, l := range page.Looks {
		if l.Scheme == "light" {
			b.As(l)
			fits(b, t)
			b.Shoot(fmt.Sprintf("text-%s-%s", where, l.Name))
		}
	}
}

// written has every text that people can write, written so that it does harm if it is not treated as text.
func written(s *e2e.Site) {
	s.T.Helper()
	quoted := func(all []string) string {
		for i := range all {
			all[i] = "$evil$" + all[i] + "$evil$"
		}
		return "array[" + strings.Join(all, ",") + "]"
	}
	page.Manages(s, "POST", "/tasks", map[string]any{"name": "verify", "title": markup, "description": strings.Join(nasty(400), "\n"), "query": `
		select left(item, 60) as item, $$` + markup + `$$ as "` + strings.ReplaceAll(markup[:60], `"`, `""`) + `", $$` + arabic + `$$ as "` + hebrew + `", $$` + controls + `$$ as "` + controls + `",
		  $$` + long + `$$ as "` + long[:60] + `", $$` + emoji + `$$ as "__proto__", $$` + link + `$$ as "constructor"
		from unnest(` + quoted(nasty(190)) + `) with ordinality as u (item, n) order by n`})
	page.Manages(s, "POST", "/tasks", map[string]any{"name": "fails", "title": arabic, "description": hebrew, "query": `select x::int as item from unnest(array[$$` + markup + `$$]) x`})
	page.Manages(s, "POST", "/tasks", map[string]any{"name": "inbox", "title": long, "description": controls, "groups": []string{}})
	s.Exec(`insert into getwork.hook (task_id, url, events, secret, created_by) select task_id, 'https://receiver.example/' || $1, '{work.closed}', 'secret', $2 from getwork.task_state where name = 'verify'`, long, evilUser)
	s.Exec(`insert into getwork.hook_event (hook_id, task_id, item, type, body, state, ended_at, error) select 1, 1, left(e, 60), 'work.closed', '{}', 'dead', now(), e from unnest($1::text[]) e`, nasty(190))
	if _, _, err := s.As(evilUser, 0).GetWork(s.T.Context(), "fails", 1, "Prefer", "wait=60"); err != nil {
		s.T.Fatal(err)
	}
	for _, user := range []string{evilUser, "Tracy"} {
		work := s.Takes(user, 3)
		for i, w := range work[:2] {
			d := map[string]any{"outcome": []string{"return", "never"}[i], "note": strings.Join(nasty(400), " ")}
			if i == 0 {
				d["after"] = "1h"
			}
			if a, err := s.As(user, 0).Do(s.T.Context(), "POST", fmt.Sprintf("/api/v1/work/%d/disposition", w.ID), d); err != nil || a.Status != 200 {
				s.T.Fatalf("disposition: %d %s %v", a.Status, a.Body, err)
			}
		}
	}
}

// evilUser is a name. It has the mark but no markup, so that it can be searched for as a whole.
const evilUser = mark + `<b onclick=alert(1)>Олівер ع</b>`

// Every view shows as text what people write: titles, descriptions, keys, details, notes, names and queries.
func TestPageShowsTextAsText(t *testing.T) {
	t.Parallel()
	b := page.NewBrowser(t, "")
	s := e2e.NewSite(t, 1, "")
	written(s)
	node := s.Nodes[0].URL
	open := func(path, user string) {
		t.Helper()
		b.Visit(node, path, user)
		b.State("live", e2e.Soon)
	}
	open("/", evilUser)
	b.Works(1, e2e.Soon)
	b.Use("button", "Get Work: "+arabic)
	b.Sees("your managers can see this")
	harmless(b, t, "desk", markup, evilUser, emoji)
	b.Use("button", "Complete")
	b.Sees("completed")
	harmless(b, t, "undo")

	open("/floor", evilUser+",manager")
	b.Use("DisclosureTriangle", "1 task with nothing to do")
	b.Use("DisclosureTriangle", "Tracy")
	harmless(b, t, "floor", markup, arabic, long)
	b.Use("button", "Actions for "+mark+"<img")
	b.Use("button", "Release what is held of "+mark+"<img")
	b.Sees("Count")
	harmless(b, t, "release")

	open("/tasks", evilUser+",manager")
	harmless(b, t, "tasks", markup, arabic, long)
	open("/tasks/verify", evilUser+",manager")
	harmless(b, t, "task", markup, evilUser)
	b.Use("button", "Preview")
	b.Sees("__proto__")
	harmless(b, t, "preview", link)
	page.Changes(s, "inbox", map[string]any{"title": markup}, 0)
	open("/tasks/inbox", evilUser+",manager")
	b.Use("link", "Versions")
	b.Use("button", "What version 2 changed")
	harmless(b, t, "versions", markup, long)
	open("/tasks/fails", evilUser+",manager")
	b.Use("link", "Runs")
	b.Sees("invalid input syntax")
	harmless(b, t, "runs", arabic)

	item := e2e.Column[string](s, `select item from getwork.work where state = 'never' order by id limit 1`)[0]
	open("/items?"+url.Values{"task": {"verify"}, "item": {item}}.Encode(), evilUser+",manager")
	b.Sees("Never handed out again")
	harmless(b, t, "items", item, emoji)

	open("/people", "Olga,observer")
	b.Sees(evilUser)
	b.Use("button", evilUser[:8])
	harmless(b, t, "people", evilUser)
	open("/webhooks?hook=1", evilUser+",manager")
	harmless(b, t, "webhook", markup, arabic, long, evilUser)
	open("/wall?task=verify,fails,inbox", "Olga,observer")
	harmless(b, t, "wall", markup, arabic)
}
