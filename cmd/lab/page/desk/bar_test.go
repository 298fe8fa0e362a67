package desk

import (
	"testing"

	"github.com/chromedp/chromedp"

	"getwork/cmd/internal/e2e"
	"getwork/cmd/lab/page"
	"getwork/schema/schematest"
)

// During a wait the bar moves, slows down, and never reaches its end; if nobody knows how long the wait is, the page
// says so.
func TestPageBar(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	b := page.NewBrowser(t, "")
	s := e2e.NewSite(t, 1, "")
	open := page.Gated(s)
	b.LogIn(s.Nodes[0].URL, "Oliver")
	b.State("live", e2e.Soon)
	b.GetWork(1)
	b.Await(`document.querySelector('progress').position === -1`, e2e.Soon)
	b.Shows(".pending .asked", "Asked for 1 at ")
	b.Await(`/^([4-9]|\d\d) s$/.test(document.querySelector('.pending .tag').textContent)`, e2e.Soon) // from now on that long is usual
	open()
	b.Works(1, e2e.Soon)
	shut, err := s.DB.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(shut.Release)
	if _, err := shut.Exec(t.Context(), `select pg_advisory_lock(7)`); err != nil {
		t.Fatal(err)
	}
	b.Eval(`(() => {
		const seen = window.seen = [];
		new MutationObserver(() => {
			const bar = document.querySelector('progress'), left = document.querySelector('.pending .left')?.textContent;
			if (bar?.position >= 0) seen.push([Number(left.match(/\d+/)?.[0] ?? 0), bar.position, left]);
		}).observe(document.querySelector('#coming'), { subtree: true, childList: true, attributes: true, characterData: true });
		return '';
	})()`)
	b.GetWork(2)
	b.Await(`seen.some(([, , left]) => left.endsWith(' s more.'))`, e2e.Soon)                          // for some seconds
	b.Await(`/^\s*\d+ s of \d+$/.test(document.querySelector('.pending .tag').textContent)`, e2e.Soon) // on the sheet
	b.Await(`/^\s*\d+ s of \d+$/.test(document.querySelector('.task .run').textContent)`, e2e.Soon)    // and on the task's line
	b.Await(`document.querySelector('.pending .left').textContent === 'This takes longer than usual.'`, e2e.Soon)
	b.Await(`seen.filter(([left]) => left === 0).length >= 3`, e2e.Soon)
	b.Await(`document.querySelector('progress').getAttribute('aria-valuetext') === 'This takes longer than usual.'`, e2e.Soon)
	const true3 = `(() => {
		const at = seen.map(([, position]) => position), late = seen.filter(([left]) => left === 0).map(([, position]) => position);
		const moved = at[at.length - 1] - at[0] > 0.3;
		return String([at.every((p, i) => i === 0 || p >= at[i - 1]), moved, late.every((p) => p > 0.7 && p < 0.97)]);
	})()`
	if is := b.Eval(true3); is != "true,true,true" {
		t.Errorf("never back, moved, not at the end: %s: %s", is, b.Eval(`JSON.stringify(seen)`))
	}
	if _, err := shut.Exec(t.Context(), `select pg_advisory_unlock(7)`); err != nil {
		t.Fatal(err)
	}
	b.Works(3, e2e.Soon)
	b.Await(`!document.querySelector('progress')`, e2e.Soon)
}

// The bar's pace, for waits of any length.
func TestPageBarIsTrue(t *testing.T) {
	schematest.Thorough(t)
	t.Parallel()
	b := page.NewBrowser(t, "")
	s := e2e.NewSite(t, 1, "")
	b.Do(chromedp.Navigate(s.Nodes[0].URL))
	const steps = `(async () => {
		const { progress } = await import('/static/views/desk/progress.js');
		const faults = [];
		for (const total of [0, 1, 900, 30e3, 3600e3]) {
			let before = -1, pace = Infinity;
			for (let x = 0; x <= 20; x += 0.01) {
				const done = progress(x * total, total);
				const step = done - before;
				if (done < before || done > 0.97 || !Number.isFinite(done)) faults.push([total, x, done]);
				if (total > 1 && before >= 0 && step > pace + 1e-9) faults.push([total, x, 'faster']);
				[before, pace] = [done, before < 0 ? Infinity : step];
			}
		}
		return JSON.stringify([faults.slice(0, 5), progress(15e3, 30e3), progress(-5, 1000)]);
	})()`
	got, err := page.Run(b, chromedp.Evaluate[string](steps, chromedp.EvalAwaitPromise))
	if err != nil || got != "[[],0.45,0]" {
		t.Errorf("faults, half of the time, before it: %s %v", got, err)
	}
}
