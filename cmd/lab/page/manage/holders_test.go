package manage

import (
	"fmt"
	"slices"
	"testing"

	"github.com/chromedp/chromedp/kb"

	"getwork/assign"
	"getwork/cmd/internal/e2e"
	"getwork/cmd/lab/page"
	"getwork/schema/schematest"
)

// crowded has that many people hold three items each: user-1 for longest, and each next one for a minute less.
func crowded(s *e2e.Site, people int) {
	s.T.Helper()
	s.Task("verify", `select i as item from generate_series(1, 20) i order by i`)
	s.Exec(`insert into getwork.work (task_id, item, user_name, assigned_at)
		select task_id, u || '/' || i, 'user-' || u, clock_timestamp() - ($1 - u + 1) * interval '1 minute'
		from getwork.task_state, generate_series(1, $1::integer) u, generate_series(1, 3) i`, people)
}

// lines waits until the floor names that many holders.
func lines(b *page.Browser, n int) {
	b.T.Helper()
	b.Await(fmt.Sprintf(`document.querySelectorAll('[data-part=held] [data-user]').length === %d`, n), e2e.Soon)
}

// line waits until a user's line contains a text or, if it begins with "!", until there is no line.
func line(b *page.Browser, user, text string) {
	b.T.Helper()
	of := fmt.Sprintf(`document.querySelector('[data-user=%q]')`, user)
	if text == "!" {
		b.Await("!"+of, e2e.Soon)
		return
	}
	b.Await(fmt.Sprintf(`%s?.innerText.replaceAll(/\s+/g, ' ').includes(%q)`, of, text), e2e.Soon)
}

// 450 people hold work. The floor says so, shows them page by page to a user without a mouse, with what each holds, and
// follows what they do at another node.
func TestPageHolders(t *testing.T) {
	t.Parallel()
	b := page.NewBrowser(t, page.NoMouse)
	s := e2e.NewSite(t, 2, "")
	crowded(s, 450)
	b.Visit(s.Nodes[0].URL, "/floor", "Mary,manager")
	b.State("live", e2e.Soon)
	floor(b, "held", "Who holds what 1,350 450 people", e2e.Soon)
	lines(b, 200)
	b.TabTo("button", "Show more")
	b.Keys(kb.Enter)
	lines(b, 400)
	if at := b.Eval(`document.activeElement.textContent`); at != "Show more" {
		t.Errorf("after more were shown the focus is at %q", at)
	}
	b.Keys(kb.Enter)
	lines(b, 450)
	b.Await(`document.activeElement.id === 'held-title'`, e2e.Soon) // its button is gone
	b.Await(`new Set([...document.querySelectorAll('[data-part=held] [data-user]')].map((e) => e.dataset.user)).size === 450`, e2e.Soon)
	if limits := b.Eval(`performance.getEntriesByType('resource').map((e) => new URL(e.name)).filter((url) => url.pathname.endsWith('/holders'))
		.some((url) => Number(url.searchParams.get('limit')) > 200) ? 'more' : 'few'`); limits != "few" {
		t.Error("a page has more than 200")
	}

	for range 20 {
		if b.Keys(kb.Tab); b.Eval(`document.activeElement.tagName`) == "SUMMARY" {
			break
		}
	}
	b.Keys(kb.Enter)
	b.Await(`[...document.querySelectorAll('[data-user=user-1] .holds a')].map((e) => e.textContent).join() === '1/1,1/2,1/3'`, e2e.Soon)
	held := e2e.Column[int64](s, `select id from getwork.work where user_name = 'user-2' order by id`)
	for i, left := range []string{"2 held, the oldest for 7 h", "1 held, for 7 h", "!"} {
		s.Disposed(s.As("user-2", 1), assign.Work{ID: held[i]}, "complete", "")
		line(b, "user-2", left)
	}
	floor(b, "held", "Who holds what 1,347 449 people", e2e.Soon)
	lines(b, 449)
	if at := b.Eval(`document.activeElement.tagName + document.activeElement.closest('details')?.open`); at != "SUMMARYtrue" {
		t.Errorf("after somebody has left the focus is at %s", at)
	}
}

// All people are sorted by name, or by how much they hold, not only those who are shown; of a user who holds hundreds
// the newest are shown first.
func TestPageHoldersSorted(t *testing.T) {
	schematest.Thorough(t)
	t.Parallel()
	b := page.NewBrowser(t, "")
	s := e2e.NewSite(t, 1, "")
	crowded(s, 250)
	s.Exec(`insert into getwork.work (task_id, item, user_name) select task_id, 'more-' || i, 'user-250' from getwork.task_state, generate_series(1, 247) i`)
	b.Visit(s.Nodes[0].URL, "/floor", "Otto,observer")
	lines(b, 200)
	sorted := func(order, first string) {
		t.Helper()
		b.Eval(fmt.Sprintf(`(() => {
			const select = document.querySelector('[data-part=held] select');
			select.selectedIndex = [...select.options].findIndex((o) => o.text === %q);
			select.dispatchEvent(new Event('change', { bubbles: true }));
			return '';
		})()`, order))
		b.Await(fmt.Sprintf(`document.querySelector('[data-part=held] [data-user]').dataset.user === %q`, first), e2e.Soon)
	}
	sorted("most held first", "user-250")
	lines(b, 250)
	b.Await(`/user-250 250 held, the oldest for ([6-9]\d s|[1-9] min)\b/.test(
		document.querySelector('[data-user=user-250]')?.innerText.replaceAll(/\s+/g, ' '))`, e2e.Soon) // a minute and what it took
	unfold(b, "user-250")
	rows := `[...document.querySelectorAll('[data-user=user-250] .holds :is(a, span)')].map((e) => e.textContent.trim())`
	b.Await(rows+`.length === 200 && `+rows+`.at(-1) === 'more-247'`, e2e.Soon)
	b.Press(`[data-user=user-250] .older`)
	b.Await(rows+`.length === 250 && `+rows+`[0] === '250/1' && !document.querySelector('[data-user=user-250] .older')`, e2e.Soon)
	sorted("by name", "user-1")
	sorted("longest held first", "user-1")
	lines(b, 200)
}

// A user whose lease ends disappears from the floor; others stay.
func TestPageHoldersLease(t *testing.T) {
	schematest.Thorough(t)
	t.Parallel()
	b := page.NewBrowser(t, "")
	s := e2e.NewSite(t, 2, "")
	page.Leased(s, "1h", "a", "b")
	s.Takes("Oliver", 1)
	tracy := s.Takes("Tracy", 1)[0]
	b.Visit(s.Nodes[0].URL, "/floor", "Mary,manager")
	b.State("live", e2e.Soon)
	line(b, "Oliver", "Oliver 1 held, for ")
	line(b, "Tracy", " min left")
	unfold(b, "Tracy")
	s.Exec(`update getwork.work set lease_expires_at = clock_timestamp() + interval '1 s' where id = $1`, tracy.ID)
	line(b, "Tracy", "!")
	floor(b, "held", "Who holds what 1 1 person", e2e.Soon)
	line(b, "Oliver", "Oliver 1 held, for ")
}

// No event says to an observer that somebody else's lease was extended. When the first lease that is shown would end, the
// page reads it again, once.
func TestPageHoldersReadAgainWhenALeaseEnds(t *testing.T) {
	schematest.Thorough(t)
	t.Parallel()
	b := raced(t)
	got := page.InPage[struct {
		Times  int
		Waited float64
	}](b, fakes+`
		const { open } = await view('floor.js');
		const c = Object.assign(client(), { left: (held) => held.left });
		const p = place();
		const none = async () => ({ requests: [], tasks: [], absences: [], items: [] });
		const asked = [];
		open(app({ tasks: async () => [task('jobs', { held: 2 })], waiting: none, history: none, absences: none, returns: none, holders: async () => {
			asked.push(performance.now());
			const holder = (user, left) => ({ user, task: 'jobs', held: 1, oldest_at: new Date().toISOString(), lease_expires_at: '', left });
			return { holders: [holder('Oliver', 7_200_000), holder('Tracy', asked.length > 1 ? 3_600_000 : 500), holder('Uma', 0)], total: { users: 3, held: 3 } };
		} }, c), p);
		const shown = () => p.element.querySelector('[data-user=Tracy]')?.innerText ?? '';
		await until(() => shown().includes('1 h left'));
		return { times: asked.length, waited: asked[1] - asked[0] };
	`)
	if got.Times != 2 || got.Waited < 1500 {
		t.Errorf("it was read %d times, the second time after %v ms", got.Times, got.Waited)
	}
}

// The dialog that releases work is loaded on demand: once, however often it is asked for until then. The one that gives work to
// somebody else opens before its suggestions are read, so that a second click has nothing to open either.
func TestPageFloorLoadsReleaseOnce(t *testing.T) {
	schematest.Thorough(t)
	t.Parallel()
	b := raced(t)
	got := page.InPage[[]int](b, fakes+`
		const { open } = await view('floor.js');
		const p = place();
		const none = async () => ({ requests: [], tasks: [], holders: [], absences: [], items: [] });
		const api = { tasks: async () => [task('jobs', { held: 1 })], waiting: none, history: none, absences: none, returns: none, holders: none, work: async () => ({ work: [] }) };
		open(app({ ...api, release: async () => ({ count: 0, token: 'x' }) }), p);
		const button = () => p.element.querySelector('[data-task=jobs] .let-go');
		await until(() => button()?.ariaDisabled === 'false');
		const clicked = [1, 2, 3].map(() => { button().click(); return import(base + 'release.js'); });
		await Promise.all(clicked);
		await until(() => document.querySelector('dialog[open]'));
		await frame();
		const release = document.querySelectorAll('dialog').length;
		document.querySelector('dialog').close();
		const { reassignDialog } = await view('reassign.js');
		const never = () => new Promise(() => {});
		reassignDialog(app({ holders: never, tasks: never }), { id: 1, item: 'a', user: 'Tracy' }, p.signal);
		return [release, document.querySelectorAll('dialog[open] #reassign-to').length];
	`)
	if !slices.Equal(got, []int{1, 1}) {
		t.Errorf("%d dialogs are open that release, and %d that ask for a user; want one each", got[0], got[1])
	}
}
