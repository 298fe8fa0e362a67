package desk

import (
	"fmt"
	"strings"
	"testing"

	"getwork/cmd/internal/e2e"
	"getwork/cmd/lab/page"
	"getwork/schema/schematest"
)

// Texts of tasks and items are shown as text, whatever they look like.
func TestPageShowsMarkupAsText(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	b := page.NewBrowser(t, "")
	s := e2e.NewSite(t, 1, "")
	const evil = `<img src=x onerror="document.title='broken'"><script>document.title='broken'</script>`
	err := s.As("mary", 0).CreateTask(t.Context(), map[string]any{"name": "verify", "title": evil, "description": evil, "query": `
		select $$` + evil + `$$ as item, $$` + evil + `$$ as "<b>column</b>", 'مرحبا' as "שם", 1234567.50 as amount, 12345678901234567890 as large, 2026 as year, date '2026-02-03' as day,
		  timestamptz '2026-02-03 11:05:06Z' as moment, null as nothing, true as yes, array['<i>', 'x'] as list`})
	if err != nil {
		t.Fatal(err)
	}
	b.LogInByForm(s.Nodes[0].URL, "<b>Oliver</b>")
	b.State("live", e2e.Soon)
	b.Click(".task .get")
	b.Works(1, e2e.Soon)
	b.Press(".task .name")
	b.Await(`document.querySelector('#tasks .description')`, e2e.Soon)
	const made = `document.querySelectorAll('main img, main script, main i').length + [...document.querySelectorAll('b')].filter((e) => /^(column|Oliver)$/.test(e.textContent)).length`
	if n := b.Eval(`String(` + made + `) + document.title`); n != "0<b>Oliver</b> · getwork" {
		t.Errorf("elements made from text, and the title: %q", n)
	}
	for selector, want := range map[string]string{"#work .key": evil, "#tasks .name": evil, "#tasks .description": evil, "#work .of": evil, ".sheet .about": evil, ".sheet .headline": evil, "#name": "<b>Oliver</b>"} {
		if got := b.Eval(fmt.Sprintf(`document.querySelector(%q).textContent`, selector)); got != want {
			t.Errorf("%s shows %q, want %q", selector, got, want)
		}
	}
	shown := b.Eval(`[...document.querySelectorAll('#work dl div')].map((e) => e.children[0].textContent + '=' + e.children[1].textContent).join('\n')`)
	for _, want := range []string{"<b>column</b>=" + evil, "שם=مرحبا", "Amount=1,234,567.50", "Large=12345678901234567890", "Year=2026", "Day=Feb 3, 2026", "Moment=Feb 3, 2026, ", "Nothing=–", "Yes=yes"} {
		if !strings.Contains(shown, want) {
			t.Errorf("the details lack %q:\n%s", want, shown)
		}
	}
}

// The page says in words why nothing was handed out.
func TestPageSaysWhyNot(t *testing.T) {
	t.Parallel()
	b := page.NewBrowser(t, "")
	s := e2e.NewSite(t, 1, "")
	s.Task("verify", `select 1 as item where false`)
	b.LogIn(s.Nodes[0].URL, "Oliver")
	says := func(text string) {
		t.Helper()
		b.Click(".task .get")
		b.Await(fmt.Sprintf(`document.querySelector('.task').innerText.includes(%q)`, text), e2e.Soon)
	}
	says("Nothing matches this task now.")
	mary := s.As("mary", 0)
	mary.Role = "manager"
	change := func(version string, settings map[string]any) {
		t.Helper()
		if a, err := mary.Do(t.Context(), "PATCH", "/api/v1/tasks/verify", settings, "If-Match", version); err != nil || a.Status != 200 {
			t.Fatalf("change the task: %d %s %v", a.Status, a.Body, err)
		}
	}
	change(`"1"`, map[string]any{"query": `select 1 / (random() * 0)::int as item`})
	says("This task is broken; your managers can see this on the floor.")
	if b.Yes(`document.body.textContent.includes('division by zero')`) {
		t.Error("a worker reads why")
	}
	b.Visit(s.Nodes[0].URL, "/", "Mia,manager")
	says("This task is broken")
	b.Press(".why-failed summary")
	b.Shows(".task .cause", "division by zero")
	b.Visit(s.Nodes[0].URL, "/floor", "Mia,manager")
	b.Shows(".floor-tasks .tag.loud", "failing")
	b.Visit(s.Nodes[0].URL, "/", "Oliver")
	change(`"2"`, map[string]any{"query": `select 1 as item`})
	if _, a, err := mary.GetWork(t.Context(), "verify", 1, "Prefer", "wait=60"); err != nil || a.Status != 201 {
		t.Fatalf("mary's click: %d %v", a.Status, err)
	}
	says("Everything that matches is held by others or put off.")
	change(`"3"`, map[string]any{"paused": true})
	says("A manager has paused this task.")
}

// The cookie belongs to the browser: when another tab logs in as somebody else, or logs out, this tab follows at once,
// so that nobody gets work under a name that the screen does not show.
func TestPageFollowsTheLogInOfOtherTabs(t *testing.T) {
	schematest.Thorough(t)
	t.Parallel()
	b := page.NewBrowser(t, "")
	s := e2e.NewSite(t, 1, "")
	s.Task("verify", `select 1 as item`)
	b.LogIn(s.Nodes[0].URL, "Olga")
	b.Await(`document.querySelector('#name').textContent === 'Olga'`, e2e.Soon)
	otherTab := func(path, body, says string) {
		t.Helper()
		b.Eval(fmt.Sprintf(`(async () => {
			await fetch(%q, {method: 'POST', body: %q});
			new BroadcastChannel('getwork').postMessage(%q);
		})(), ''`, path, body, says))
	}
	otherTab("/login", `{"user":"Otto"}`, "log-in")
	b.Await(`document.querySelector('#name').textContent === 'Otto'`, e2e.Soon)
	otherTab("/logout", "", "log-out")
	b.Await(`document.querySelector('#log-in').checkVisibility()`, e2e.Soon)
}
