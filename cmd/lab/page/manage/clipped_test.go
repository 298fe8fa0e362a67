package manage

import (
	"fmt"
	"testing"

	"getwork/cmd/internal/e2e"
	"getwork/cmd/lab/page"
	"getwork/schema/schematest"
)

// clipped returns text in main that is cut off, by itself or by its box, or that can only be read by scrolling
// sideways, where nothing says so.
const clipped = `(() => {
	const found = [];
	const name = (e) => e.outerHTML.replace(/<!--.*?-->/g, '').replace(/\s+/g, ' ').slice(0, 140);
	for (const e of document.querySelectorAll('main *')) {
		const style = getComputedStyle(e);
		if (!e.checkVisibility() || e.closest('.visually-hidden, .sr, svg') || !e.innerText?.trim()) continue;
		if (style.overflowX !== 'visible' && !(e.querySelector('.history') && document.querySelector('.scrolls').checkVisibility()) && e.scrollWidth > e.clientWidth + 1) found.push('sideways ' + [e.scrollWidth, e.clientWidth] + name(e));
		if (e.matches('.tile[data-kind=failing] .run')) { // PostgreSQL's message may be long: whole lines of it are shown, and a word that there is more
			const lines = e.clientHeight / (parseFloat(style.lineHeight) || 1.5 * parseFloat(style.fontSize));
			if (lines < 1.9 || Math.abs(lines - Math.round(lines)) > 0.1) found.push('half a line ' + lines + name(e));
			continue;
		}
		if (['hidden', 'clip'].includes(style.overflowY) && e.scrollHeight > e.clientHeight + 1) found.push('cut ' + [e.scrollHeight, e.clientHeight] + name(e));
		if (e.matches('.tile, .tiles') && e.scrollHeight > e.clientHeight + 1) found.push('over the edge ' + [e.scrollHeight, e.clientHeight] + name(e));
	}
	return found.join('\n');
})()`

// On the screens of a wall and a floor all text can be read in full.
func TestPageNothingIsClipped(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	b := page.NewBrowser(t, "")
	s := e2e.NewSite(t, 1, "")
	page.Manages(s, "POST", "/tasks", map[string]any{"name": "verify", "title": "Verify user submitted bank account", "lease": "2h",
		"query": `select 'loan ' || 4400 + i as item from generate_series(1, 9) i order by i`})
	page.Manages(s, "POST", "/tasks", map[string]any{"name": "broken", "title": "Check the documents of self-employed applicants",
		"query": `select ('the address of an applicant that is missing, as ' || repeat('it often is, ', 12) || i)::int as item from generate_series(1, 2) i`})
	for i, title := range []string{"Call back", "Review photos", "Approve"} {
		page.Manages(s, "POST", "/tasks", map[string]any{"name": fmt.Sprint("other-", i), "title": title, "paused": i == 1})
	}
	if _, a, err := s.As("Uma", 0).GetWork(t.Context(), "broken", 1, "Prefer", "wait=60"); err != nil || a.Status != 201 {
		t.Fatalf("%d %s %v", a.Status, a.Body, err)
	}
	s.Takes("Bartholomew Fitzgerald-Montgomery", 3)
	s.Disposed(s.As("Uma", 0), s.Takes("Uma", 1)[0], "return", "1h")
	if a, err := s.As("Bartholomew Fitzgerald-Montgomery", 0).Do(t.Context(), "POST", "/api/v1/tasks/other-1/requests", map[string]any{"count": 2, "linger": "1h"}); err != nil || a.Status != 202 {
		t.Fatalf("%d %s %v", a.Status, a.Body, err)
	}
	whole := func(where string, sizes ...[2]int64) {
		t.Helper()
		for _, size := range sizes {
			b.As(page.Look{Width: size[0], Height: size[1], Scheme: "light"})
			b.Await(`[...document.querySelectorAll('.history')].every(({ parentElement: e }) => document.querySelector('.scrolls').hidden === (e.scrollWidth <= e.clientWidth))`, e2e.Soon)
			if found := b.Eval(clipped); found != "" {
				t.Errorf("%s, %d x %d:\n%s", where, size[0], size[1], found)
			}
			if found := b.Eval(page.Ragged); where != "wall" && found != "" {
				t.Errorf("%s, %d x %d, the bar: %s", where, size[0], size[1], found)
			}
			b.Shoot(fmt.Sprintf("whole-%s-%d", where, size[0]))
		}
	}
	b.Visit(s.Nodes[0].URL, "/wall", "Mary,manager")
	wall(b, "broken", "invalid input syntax", e2e.Soon)
	figure(b, "verify", "given", 4, e2e.Soon)
	if got := b.Eval(`[...document.querySelectorAll('.tile h2')].map((e) => e.textContent.split(' ')[0]).join()`); got != "Check,Review,Verify,Approve,Call" {
		t.Errorf("the tasks are not in the order of their trouble: %s", got)
	}
	whole("wall", [2]int64{1280, 720}, [2]int64{1920, 1080}, [2]int64{1024, 768}, [2]int64{390, 844})
	b.Visit(s.Nodes[0].URL, "/floor?as=table", "Mary,manager")
	floor(b, "waiting", "Review photos", e2e.Soon)
	unfold(b, "Bartholomew Fitzgerald-Montgomery")
	floor(b, "held", "Reassign", e2e.Soon)
	b.Visit(s.Nodes[0].URL, "/floor?task=broken", "Mary,manager")
	b.Shows(".facts", "The last run failed: invalid input syntax") // not only in a tag's title
	b.Visit(s.Nodes[0].URL, "/floor?as=table", "Mary,manager")
	floor(b, "waiting", "Review photos", e2e.Soon)
	unfold(b, "Bartholomew Fitzgerald-Montgomery")
	b.As(page.Look{Width: 1280, Height: 800, Scheme: "light"})
	if got := b.Eval(`String(new Set([...document.querySelectorAll('.floor-tasks [data-count=held]')].filter((e) => e.checkVisibility()).map((e) => Math.round(e.getBoundingClientRect().x))).size)`); got != "1" {
		t.Error("the figures of a paused task do not stand below the others'")
	}
	whole("floor", [2]int64{1280, 800}, [2]int64{1440, 900}, [2]int64{1920, 1080}, [2]int64{1100, 800}, [2]int64{390, 844})
	b.Visit(s.Nodes[0].URL, "/people?lang=de", "Mary,manager")
	b.Sees("Wer was getan hat")
	whole("people", [2]int64{1366, 768})
}
