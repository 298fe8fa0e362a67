package look

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"getwork/cmd/internal/e2e"
	"getwork/cmd/lab/page"
)

// allLooks looks at every state in every way, which pictures need; GETWORK_TEST_LOOKS=all does so without them.
var allLooks = page.Shots != "" || os.Getenv("GETWORK_TEST_LOOKS") == "all"

// looksAt returns the ways to look at the i-th state: if not all, one, so that neighbours, which show much the same, are seen in
// different ways. Every third is in the pseudo-language.
func looksAt(i int) []page.Look {
	if allLooks {
		return append(page.Looks, page.Look{Name: "1366-pseudo", Width: 1366, Height: 768, Scheme: "light", Lang: page.Pseudo},
			page.Look{Name: "390-pseudo", Width: 390, Height: 844, Scheme: "dark", Lang: page.Pseudo})
	}
	l := page.Looks[i%len(page.Looks)]
	if i%3 == 1 {
		l.Lang = page.Pseudo
	}
	return []page.Look{l}
}

// tooWide returns elements that reach over the screen's edge, unless they scroll by themselves.
const tooWide = `(() => {
	const { scrollingElement: all } = document;
	if (all.scrollWidth <= innerWidth) return '';
	const scrolls = (e) => e && e !== document.body && e !== all && (getComputedStyle(e).overflowX !== 'visible' || scrolls(e.parentElement));
	const wide = [...document.body.querySelectorAll('*')].filter((e) => e.checkVisibility() && e.getBoundingClientRect().right > innerWidth + 0.5 && !scrolls(e.parentElement));
	return all.scrollWidth + ' > ' + innerWidth + ': ' + wide.map((e) => e.outerHTML.slice(0, 160)).slice(0, 5).join('\n');
})()`

// fits checks that nobody has to scroll sideways.
func fits(b *page.Browser, t *testing.T) {
	t.Helper()
	if wide := b.Eval(tooWide); wide != "" {
		t.Error("the page scrolls sideways: ", wide)
	}
}

// rest removes the focus, and scrolls everything back.
func rest(b *page.Browser) {
	b.T.Helper()
	b.Eval(`(document.activeElement?.blur(), document.querySelectorAll('*').forEach((e) => e.scrollTo(0, 0)), '')`)
}

// stage is a team in the middle of its day, and a browser.
type stage struct {
	*page.Browser
	s       *e2e.Site
	bank    *page.Bank // where people log in at a provider; nil: by name
	noPush  string     // an address that allows no socket
	release func()     // lets the current query go on
}

// state is something that a page shows, and how to reach it.
type state struct {
	name  string
	user  string // such as "Mary,manager"; empty: nobody, only for the first state
	path  string
	reach func(*stage) // from the open view; nil: it shows at once
	each  bool         // it passes by itself, and is reached again each time

	blocked bool // without a socket, at another origin; only for the last state
	left    bool // it ends when the focus leaves it
}

// applications is a ranking query of the kind that banks have.
const applications = `
	select 'L-' || 2041 + 7 * i as item, (array['Ada Lovell', 'Bruno Keller', 'Chloé Martin', 'Dmitri Ivanov', 'Emma Nováková', 'Farid Haddad'])[1 + i % 6] as applicant,
	  12500.50 + 1730.25 * i as amount, date '2026-02-03' + i as submitted, timestamptz '2026-03-01 09:30Z' + i * interval '3 hours' as statement_seen, i % 3 = 0 as returning_customer,
	  'The statement covers January to March. Salary and rent are regular; two transfers abroad were asked about by telephone, and explained.' as remark
	from generate_series(1, 40) i order by i`

// display is how an application is shown.
var display = map[string]any{
	"title": "{applicant}, {item}", "one": "application", "many": "applications", "others": "shown", "url": "https://loans.example/{item}",
	"fields": []map[string]any{
		{"column": "amount", "format": "money", "currency": "CHF", "stands_out": "amount > 30000"},
		{"column": "returning_customer", "label": "Returning customer", "format": "badge", "badges": map[string]string{"true": "good", "false": "plain"}},
		{"column": "statement_seen", "folded": true},
	},
}

// newStage returns a site in the middle of its day, and a browser.
func newStage(t *testing.T) *stage {
	t.Helper()
	st := &stage{Browser: page.NewBrowser(t, page.UndoLasts+";"+noting), s: e2e.NewSite(t, 1, "")}
	st.noPush, _ = page.WithoutSockets(t, st.s.Nodes[0])
	st.release = day(st.s)
	return st
}

// day fills a site with a day's work. A query is under way; release lets it go on.
func day(s *e2e.Site) (release func()) {
	t := s.T
	t.Helper()
	release = page.Gated(s)
	for _, task := range []map[string]any{
		{"name": "verify-bank-account", "title": "Verify user submitted bank account", "description": "Compare the statements with what was declared. Oldest submission first.", "query": applications, "lease": "30m", "display": display},
		{"name": "call-back", "title": "Call back", "description": "Customers who asked for a call.", "lease": "8s", "query": `select 'call-' || i as item, '+49 30 5550 ' || 100 + i as telephone from generate_series(1, 9) i`},
		{"name": "many", "title": "Reminders", "max_request": 50, "query": `select 'many-' || i as item, i * 10.5 as amount, date '2026-01-01' + i as due from generate_series(1, 60) i order by i`},
		{"name": "documents", "title": "Sort documents", "max_attempts": 1},
		{"name": "none-left", "title": "Nothing left to do", "query": `select 1 as item where false`},
		{"name": "broken", "title": "Broken query", "query": `select 1 / (random() * 0)::int as item`},
		{"name": "resting", "title": "Paused for the audit", "query": `select 1 as item`, "paused": true},
	} {
		page.Manages(s, "POST", "/tasks", task)
	}
	page.Manages(s, "POST", "/tasks/documents/items", []map[string]any{{"item": "scan-1", "details": map[string]any{"pages": 12}}, {"item": "scan-2"}})
	for _, user := range []string{"Tracy", "Uma", "Viktor"} {
		r, a, err := s.As(user, 0).GetWork(t.Context(), "verify-bank-account", 5, "Prefer", "wait=20")
		if err != nil || len(r.Work) != 5 {
			t.Fatalf("%s: %d %s %v", user, a.Status, a.Body, err)
		}
		for i, d := range []map[string]any{{"outcome": "complete"}, {"outcome": "return", "after": "4h", "note": "The customer sends the March statement later."}, {"outcome": "never", "note": "Fraud team has it."}} {
			if a, err := s.As(user, 0).Do(t.Context(), "POST", fmt.Sprintf("/api/v1/work/%d/disposition", r.Work[i].ID), d); err != nil || a.Status != 200 {
				t.Fatalf("disposition: %d %s %v", a.Status, a.Body, err)
			}
		}
	}
	if _, _, err := s.As("Uma", 0).GetWork(t.Context(), "broken", 1, "Prefer", "wait=20"); err != nil {
		t.Fatal(err)
	}
	page.Changes(s, "verify", map[string]any{"query_timeout": "10m", "alert_waiting": "24h"}, 0) // an alert that comes meanwhile would move what is looked at
	for _, user := range []string{"Tracy", "Uma"} {                                              // they wait for the current query
		s.Click(user, 0, 3)
	}
	past(s)
	return release
}

// past moves closed work back in time, by an hour more for each, so that the last hours have something to show.
func past(s *e2e.Site) {
	s.T.Helper()
	for _, sql := range []string{
		`update getwork.work set assigned_at = assigned_at - (1 + id % 5) * interval '1 hour', closed_at = closed_at - (1 + id % 5) * interval '50 minutes' where state <> 'held'`,
		`update getwork.work_requested set created_at = created_at - (1 + id % 5) * interval '1 hour', completed_at = completed_at - (1 + id % 5) * interval '1 hour' + interval '12 seconds' where state <> 'pending'`,
		`update getwork.run set started_at = started_at - (1 + id % 5) * interval '1 hour', finished_at = finished_at - (1 + id % 5) * interval '1 hour' + interval '11 seconds' where state <> 'running'`,
	} {
		if _, err := s.DB.Exec(s.T.Context(), sql); err != nil {
			s.T.Fatal(err)
		}
	}
}

// open brings the browser to a state.
func (st *stage) open(what state) {
	st.T.Helper()
	switch {
	case st.bank != nil:
		st.bank.T = st.T
		opensAt(st.Browser, st.bank, what.path, what.user)
	case what.user == "":
		st.Do(chromedp.Navigate(st.s.Nodes[0].URL + "/"))
		st.Await(`document.querySelector('form')?.checkVisibility()`, e2e.Soon)
	default:
		address, path, line := st.s.Nodes[0].URL, what.path, "live"
		if what.blocked { // another origin, which does not know the language yet
			address, path, line = st.noPush, what.path+"?lang="+cmp.Or(st.Lang, "en"), "polling"
		}
		st.Visit(address, path, what.user)
		st.State(line, e2e.Soon)
	}
	if what.reach != nil {
		what.reach(st)
	}
	st.Await(explained, e2e.Soon)
}

// explained is true where no answer about an item is awaited: until then its buttons change.
const explained = `!document.querySelector('.give-up')`

// A worker's views, in each state that matters, on a screen and on a telephone, in light and dark: axe finds nothing serious,
// nobody scrolls sideways, everything can be reached by keyboard, and pictures are taken for people to look at.
func TestPageStates(t *testing.T) {
	t.Parallel()
	newStage(t).shows(t, deskStates)
}

// The same for managers and observers.
func TestPageManagerStates(t *testing.T) {
	t.Parallel()
	newStage(t).shows(t, slices.Concat(managerStates, webhookStates, limitStates, absentStates))
}

// shows goes through states, and looks at each.
func (st *stage) shows(t *testing.T, states []state) {
	t.Helper()
	for n, what := range states {
		t.Run(what.name, func(t *testing.T) {
			before := st.T
			st.T, st.s.T = t, t
			defer func() { st.T, st.s.T = before, before }()
			for i, l := range looksAt(n) {
				if i == 0 || what.each || l.Lang != st.Lang {
					st.As(l)
					speaks(st.Browser, l.Lang)
					st.open(what)
				}
				st.As(l)
				t.Run(l.Name, func(t *testing.T) {
					defer rest(st.Browser)
					st.Shoot(strings.ReplaceAll(what.name, " ", "-") + "-" + l.Name)
					st.Audit(t)
					fits(st.Browser, t)
					if st.Lang == page.Pseudo {
						if found := st.Eval(unbracketed); found != "" {
							t.Errorf("not translated:\n%s", found)
						}
					}
					if !what.left && (l.Scheme == "light" || !allLooks) {
						walk(st.Browser, t)
					}
				})
			}
		})
	}
}

// presses leads to a state: it clicks elements one after the other, given as "role name", until a text is visible.
func presses(text string, what ...string) func(*stage) {
	return func(st *stage) {
		st.T.Helper()
		for _, w := range what {
			role, name, _ := strings.Cut(w, " ")
			st.Use(role, name)
		}
		st.Sees(text)
	}
}

// sees waits for a state that shows by itself.
func sees(text string) func(*stage) { return presses(text) }

// withWork has the state's user take that many items of a task, before or while the page is open.
func withWork(task string, count int, then func(*stage)) func(*stage) {
	return func(st *stage) {
		st.T.Helper()
		user := st.Eval(`document.querySelector('#name').textContent`)
		r, a, err := st.s.As(user, 0).GetWork(st.T.Context(), task, count, "Prefer", "wait=20")
		if err != nil || len(r.Work) != count {
			st.T.Fatalf("%s asked for %d: %d %s %v", user, count, a.Status, a.Body, err)
		}
		st.Works(count, e2e.Soon)
		st.Eval(`(document.querySelector('.notice button')?.click(), '')`) // on a telephone
		then(st)
	}
}

// typedOver has another user change a task with unsaved changes, until a text is visible. The task is made once: if the state was
// reached before, in another language, the task gets back what was changed then.
func typedOver(name string, changes map[string]any, text string) func(*stage) {
	return func(st *stage) {
		st.T.Helper()
		before := map[string]any{"name": name, "title": "Of " + name, "query": "select 1 as item"}
		if made := e2e.Column[string](st.s, `select name from getwork.task_state where name in ($1, $2)`, name, changes["name"]); len(made) > 0 {
			page.Changes(st.s, made[0], before, 0)
		} else {
			page.Manages(st.s, "POST", "/tasks", before)
		}
		st.Visit(st.s.Nodes[0].URL, "/tasks/"+name, "Mary,manager")
		st.State("live", e2e.Soon)
		st.Set("set-title", "Mine")
		st.Set("set-query", "select 3 as item")
		page.Changes(st.s, name, changes, 0)
		st.Sees(text)
	}
}

const verifying = "verify-bank-account"

var deskStates = []state{
	{name: "log-in"},
	{name: "desk", user: "Oliver", path: "/", reach: sees("Your desk is clear.")},
	{name: "desk help", user: "Oliver", path: "/", reach: presses("And then the next one", "button Oliver", "button Keyboard shortcuts")},
	{name: "desk pending", user: "Pia", path: "/", reach: presses("coming", "button Get Work: verify")},
	{name: "desk with work", user: "Wanda", path: "/", reach: withWork(verifying, 2, sees("Applicant"))},
	{name: "desk full", user: "Fay", path: "/", reach: full},
	{name: "desk return", user: "Rita", path: "/", reach: withWork(verifying, 3, presses("to others only", "button Give back", "button other …")), left: true},
	{name: "desk more", user: "Moira", path: "/", reach: withWork(verifying, 3, presses("Really remove it?", "button Remove from queue")), left: true},
	{name: "desk task", user: "Tessa", path: "/", reach: presses("How many", "button Verify user submitted bank account")},
	{name: "desk dense", user: "Dora", path: "/", reach: withWork("many", 20, sees("many-20"))},
	{name: "desk lost lease", user: "Lotte", path: "/", reach: withWork("call-back", 1, sees("Claim it again"))},
	{name: "desk undo", user: "Ugo", path: "/", each: true, reach: withWork("many", 1, presses("completed", "button Complete"))},
	{name: "desk answers", user: "Nora", path: "/", reach: func(st *stage) {
		presses("A manager has paused this task.", "button Get Work: Paused")(st)
		presses("your managers can see this", "button Get Work: Broken")(st)
		presses("Nothing matches this task now.", "button Get Work: Nothing")(st)
	}},
	{name: "desk menu", user: "Ava", path: "/", reach: presses("Away …", "button Ava")},
	{name: "desk away form", user: "Ava", path: "/", reach: presses("Substitute", "button Ava", "button Away …")},
	{name: "desk away", user: "Arno", path: "/", reach: gone("Arno", "", presses("Press “I’m back” first.", "button Get Work: verify"))},
	{name: "desk next", user: "Nelly", path: "/", reach: func(st *stage) {
		st.Eval(`(document.querySelector('#tab-tasks')?.click(), '')`)
		st.Use("button", "Get next work")
		st.Await(`document.querySelector('.get-next .ended').textContent`, e2e.Soon)
	}},
	{name: "desk none next", user: "Nico", path: "/", reach: gone("Nico", "", presses("You are away, and get no work.", "button Get next work"))},
	{name: "desk without push", user: "Bela", path: "/", blocked: true, reach: func(st *stage) { st.Banner("The live connection is lost", e2e.Soon) }},
}

var managerStates = []state{
	{name: "floor", user: "Mary,manager", path: "/floor", reach: sees("Uma")},
	{name: "floor table", user: "Olga,observer", path: "/floor", reach: presses("Uma", "button 1 hour", "button As a table")},
	{name: "floor of one", user: "Mary,manager", path: "/floor?task=" + verifying, reach: sees("Uma")},
	{name: "floor release", user: "Mary,manager", path: "/floor", reach: presses("L-20", "button Actions for Verify", "button Release what is held of Verify")},
	{name: "tasks", user: "Mary,manager", path: "/tasks", reach: sees("Paused for the audit")},
	{name: "task new", user: "Mary,manager", path: "/tasks?new=1", reach: sees("New task")},
	{name: "task", user: "Mary,manager", path: "/tasks/" + verifying, reach: presses("from generate_series")},
	{name: "task error", user: "Mary,manager", path: "/tasks/none-left", reach: func(st *stage) {
		st.Fill("textbox", "Query", "select 1 as item from nowhere")
		presses("does not exist", "button Save")(st)
	}},
	{name: "task preview", user: "Mary,manager", path: "/tasks/" + verifying, reach: presses("Applicant", "button Preview")},
	{name: "task versions", user: "Mary,manager", path: "/tasks/verify", reach: presses("10m", "link Versions", "button What version 2 changed")},
	{name: "task runs", user: "Mary,manager", path: "/tasks/" + verifying, reach: presses("finished", "link Runs")},
	{name: "task display", user: "Mary,manager", path: "/tasks/" + verifying, reach: presses("Applicant", "button Preview", "link Display")},
	{name: "task limits", user: "Mary,manager", path: "/tasks/" + verifying + "?show=limits", reach: sees("Items per person")},
	{name: "task items", user: "Mary,manager", path: "/tasks/documents", reach: func(st *stage) {
		st.Set("push-text", "item,pages\nscan-3,12\n,4")
		st.Sees("It has no item.")
	}},
	{name: "task changed", user: "Mary,manager", path: "/tasks", reach: typedOver("passing", map[string]any{"title": "Theirs", "query": "select 2 as item"}, "Changed while you typed")},
	{name: "task renamed", user: "Mary,manager", path: "/tasks", reach: typedOver("leaving", map[string]any{"name": "left"}, "This task is called left now.")},
	{name: "items", user: "Mary,manager", path: "/items", reach: sees("Find")},
	{name: "item held", user: "Mary,manager", path: "/items?task=" + verifying + "&item=L-2069", reach: sees("Tracy")},
	{name: "item put off", user: "Mary,manager", path: "/items?item=L-2055", reach: sees("March statement")},
	{name: "item never", user: "Mary,manager", path: "/items?task=" + verifying + "&item=L-2062", reach: sees("Fraud team")},
	{name: "item let go", user: "Mary,manager", path: "/items?task=" + verifying + "&item=L-2069", reach: presses("Never again", "button Let go")},
	{name: "people", user: "Olga,observer", path: "/people", reach: sees("Viktor")},
	{name: "person", user: "Mary,manager", path: "/people", reach: presses("L-20", "button Viktor")},
	{name: "wall", user: "Olga,observer", path: "/wall?task=" + verifying + ",verify,documents,resting", reach: sees("Paused for the audit")},
}
