package manage

import (
	"fmt"
	"testing"

	"github.com/chromedp/chromedp"

	"getwork/assign"
	"getwork/cmd/internal/e2e"
	"getwork/cmd/lab/page"
	"getwork/schema/schematest"
)

// charted waits until the charts' table has that sum in a column.
func charted(b *page.Browser, column string, sum int) {
	b.T.Helper()
	b.Await(fmt.Sprintf(`(() => {
		const table = document.querySelector('.history');
		const at = [...table?.tHead.rows[0].cells ?? []].findIndex((c) => c.textContent === %q);
		return [...table?.tBodies[0].rows ?? []].reduce((n, row) => n + Number(row.cells[at].textContent), 0) === %d;
	})()`, column, sum), e2e.Soon)
}

// Charts show what happened, and continue with it; a table has the same data. A chosen task stays chosen when the page
// is reloaded.
func TestPageFloorCharts(t *testing.T) {
	t.Parallel()
	b := page.NewBrowser(t, "")
	s := e2e.NewSite(t, 2, "")
	s.Task("verify", `select i as item from generate_series(1, 20) i order by i`)
	s.Task("empty", `select 1 as item where false`)
	first := s.Takes("Oliver", 3)
	b.Visit(s.Nodes[0].URL, "/floor?as=table", "Mary,manager")
	b.State("live", e2e.Soon)
	charted(b, "Given", 1)
	charted(b, "Handed out", 3)
	b.Shows(`.scrolls`, "scrolls sideways")
	s.Disposed(s.As("Oliver", 1), first[0], "complete", "")
	s.Disposed(s.As("Oliver", 1), first[1], "return", "1h")
	if r, _, err := s.As("Tracy", 1).GetWork(t.Context(), "empty", 1, "Prefer", "wait=20"); err != nil || r.State != assign.None {
		t.Fatalf("%s, %v", r.State, err)
	}
	for name, sum := range map[string]int{"Asked": 2, "Given": 1, "Empty": 1, "Runs": 2, "Completed": 1, "Returned": 1} {
		charted(b, name, sum)
	}
	s.Takes("Tracy", 1)
	charted(b, "Handed out", 4)
	b.Await(`document.querySelector('.history tbody tr td:last-child').textContent === '2'`, e2e.Soon) // held now
	b.Click(`[data-part=charts] .push`)
	b.Await(page.Painted+` === 'true,true,true,true,true'`, e2e.Soon)
	s.Exec(`update getwork.work set assigned_at = assigned_at - interval '20 minutes', closed_at = closed_at - interval '20 minutes' where state <> 'held'`)
	s.Exec(`insert into getwork.task_hour (hour, task_id, free) select date_trunc('hour', now()) - interval '1 hour', id, 3 from getwork.task`)
	b.Do(chromedp.Reload()) // figures are of all that is shown, not of its last minutes
	b.Await(`document.querySelector('[data-chart=work] [role=img]').ariaLabel.endsWith(': completed 1, returned 1, expired 0, handed out 4')`, e2e.Soon)
	b.Await(`document.querySelector('[data-chart=work] .legend').innerText.replaceAll(/\s+/g, ' ').includes('completed 1 returned 1 expired 0 handed out 4')`, e2e.Soon)
	b.Shows(`[data-part=charts] p`, "times those of the slowest of them")
	b.Shows(`[data-chart=waits]`, "median") // by their names, and the usual time beside them
	b.Shows(`[data-chart=waits]`, "90th percentile")
	b.Shows(`[data-chart=day]`, "came in")
	b.Await(`/usual \d/.test(document.querySelector('[data-chart=runs]').innerText.replaceAll(/\s+/g, ' '))`, e2e.Soon)
	b.Await(`(document.querySelector('[data-part=charts]').innerText.match(/since \d/g) ?? []).length === 1`, e2e.Soon) // the period, once
	b.Press(`.folded summary`)                                                                                          // nothing is to do there
	b.Click(`[data-task=empty] th a`)
	floor(b, "charts", "!slowest", e2e.Soon)
	b.Press(`[data-part=charts] .pick button`) // what is above it may still move
	b.Click(`[data-part=charts] .push`)
	charted(b, "Asked", 1)
	charted(b, "Given", 0)
	const address = "/floor?task=empty&hours=1&as=table"
	if is := b.Eval(`location.pathname + location.search`); is != address {
		t.Errorf("the address is %s, want %s", is, address)
	}
	b.Do(chromedp.Reload())
	charted(b, "Asked", 1)
	b.Await(`document.querySelectorAll('.history tbody tr').length === 60`, e2e.Soon)
	floor(b, "held", "Nobody holds anything.", e2e.Soon)
	b.Press(`.show-all`)
	charted(b, "Asked", 3)
	floor(b, "held", "Oliver 1 held", e2e.Soon)
	b.Do(chromedp.Navigate(s.Nodes[0].URL + "/floor?hours=168"))
	b.Shows(`[data-chart=left]`, "Left to do")
}

// historyScript feeds the charts' history, in steps of a minute, and returns its state.
const historyScript = `(async () => {
	const { History, spans } = await import('/static/views/floor/history.js');
	const minute = 60_000, start = Date.UTC(2026, 1, 3, 9), now = start + 59.5 * minute;
	const bucket = (m, what) => ({ at: new Date(start + m * minute).toISOString(), requests: 0, given: 0, empty: 0, failed: 0, cancelled: 0, held: 0, ...what });
	const history = new History(spans[0]);
	const since = () => (history.from(now) - start) / minute, said = [since()];
	history.take({ tasks: [
		{ task: 'a', buckets: [bucket(3, { requests: 2, given: 1, held: 1 }), bucket(59, { requests: 3, given: 3, held: 4, wait_ms: { p50: 5, p90: 70 } })] },
		{ task: 'b', buckets: [bucket(3), bucket(59, { requests: 1, empty: 1, held: 2, wait_ms: { p50: 30, p90: 40 } })] },
	] }, []);
	said.push(since()); // a request from that time still waits
	history.take({ tasks: [{ task: 'a', buckets: [bucket(3, { requests: 2, given: 2, held: 1 })] }, { task: 'b', buckets: [] }] }, [start + 20.7 * minute]);
	said.push(since()); // now it is a run
	history.take({ tasks: [{ task: 'a', buckets: [] }, { task: 'b', buckets: [] }] }, []);
	said.push(since());
	const row = ({ at, requests, held, wait }) => [(at - start) / minute, requests, held, wait?.p50 ?? null, wait?.p90 ?? null].join();
	const both = history.rows([], now), one = history.rows(['a'], now), later = history.rows([], now + 2 * minute);
	said.push(both.length, row(both[3]), row(both[4]), row(both[59]), row(one[59]), later.length, row(later[59]));
	history.forget();
	said.push(since());
	return said.join(' ');
})()`

// A new read reaches back to what had not ended; counts are summed, times are those of the slowest task, and held work
// stays held while no event comes.
func TestPageFloorHistory(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	b := page.NewBrowser(t, "")
	s := e2e.NewSite(t, 1, "")
	b.Do(chromedp.Navigate(s.Nodes[0].URL))
	got, err := page.Run(b, chromedp.Evaluate[string](historyScript, chromedp.EvalAwaitPromise))
	if want := "0 3 20 58 60 3,2,1,, 4,0,1,, 59,4,6,30,70 59,3,4,5,70 60 61,0,6,, 0"; err != nil || got != want {
		t.Errorf("%v\ngot  %s\nwant %s", err, got, want)
	}
}

// With many tasks the charts have longer steps, so that the server counts them.
func TestPageFloorHistoryOfManyTasks(t *testing.T) {
	schematest.Thorough(t)
	t.Parallel()
	b := page.NewBrowser(t, "")
	s := e2e.NewSite(t, 1, "")
	s.Exec(`
with made as (insert into getwork.task select from generate_series(1, 300) returning id),
  version as (insert into getwork.task_version (task_id, version, name, query, created_by) select id, 1, 'task-' || id, 'select 1', 'x' from made)
insert into getwork.task_state (task_id, name, version) select id, 'task-' || id, 1 from made`)
	b.Visit(s.Nodes[0].URL, "/floor?hours=24&as=table", "Mary,manager")
	b.Await(`document.querySelectorAll('.history tbody tr').length === 48`, e2e.Soon)
	got, err := page.Run(b, chromedp.Evaluate[string](`import('/static/views/floor/history.js')
		.then(({ History, spans }) => [1, 300, 1000].map((tasks) => spans.map((span) => new History(span, tasks).step.step).join()).join(' '))`, chromedp.EvalAwaitPromise))
	if want := "1m,5m,15m,1h,24h 1m,15m,30m,24h,24h 5m,30m,2h,24h,24h"; err != nil || got != want {
		t.Errorf("the steps are %s, %v, want %s", got, err, want)
	}
}
