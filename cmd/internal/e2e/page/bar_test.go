package page

import (
	"testing"

	"github.com/chromedp/chromedp"

	"getwork/cmd/internal/e2e"
)

// During a wait the bar moves, slows down, and never reaches its end; if nobody knows how long the wait is, the page
// says so.
func TestPageBar(t *testing.T) {
	t.Parallel()
	b := newBrowser(t, "")
	s := newSite(t, 1, "")
	open := gated(s)
	b.logIn(s.Nodes[0].URL, "Oliver")
	b.state("live", e2e.Soon)
	b.getWork(1)
	b.await(`document.querySelector('progress').position === -1`, e2e.Soon)
	b.shows(".pending .asked", "Asked for 1 at ")
	b.await(`/^0:(0[4-9]|[1-9])/.test(document.querySelector('.pending .clock').textContent)`, e2e.Soon) // from now on that long is usual
	open()
	b.works(1, e2e.Soon)
	shut, err := s.DB.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(shut.Release)
	if _, err := shut.Exec(t.Context(), `select pg_advisory_lock(7)`); err != nil {
		t.Fatal(err)
	}
	b.eval(`(() => {
		const seen = window.seen = [];
		new MutationObserver(() => {
			const bar = document.querySelector('progress'), left = document.querySelector('.pending .left')?.textContent;
			if (bar?.position >= 0) seen.push([Number(left.match(/\d+/)?.[0] ?? 0), bar.position, left]);
		}).observe(document.querySelector('#coming'), { subtree: true, childList: true, attributes: true, characterData: true });
		return '';
	})()`)
	b.getWork(2)
	b.await(`seen.some(([, , left]) => left.endsWith(' s more.'))`, e2e.Soon) // for some seconds
	b.await(`document.querySelector('.pending .left').textContent === 'This takes longer than usual.'`, e2e.Soon)
	b.await(`seen.filter(([left]) => left === 0).length >= 3`, e2e.Soon)
	b.await(`document.querySelector('progress').getAttribute('aria-valuetext') === 'This takes longer than usual.'`, e2e.Soon)
	const true3 = `(() => {
		const at = seen.map(([, position]) => position), late = seen.filter(([left]) => left === 0).map(([, position]) => position);
		const moved = at[at.length - 1] - at[0] > 0.3;
		return String([at.every((p, i) => i === 0 || p >= at[i - 1]), moved, late.every((p) => p > 0.7 && p < 0.97)]);
	})()`
	if is := b.eval(true3); is != "true,true,true" {
		t.Errorf("never back, moved, not at the end: %s: %s", is, b.eval(`JSON.stringify(seen)`))
	}
	if _, err := shut.Exec(t.Context(), `select pg_advisory_unlock(7)`); err != nil {
		t.Fatal(err)
	}
	b.works(3, e2e.Soon)
	b.await(`!document.querySelector('progress')`, e2e.Soon)
}

// The bar's pace, for waits of any length.
func TestPageBarIsTrue(t *testing.T) {
	t.Parallel()
	b := newBrowser(t, "")
	s := newSite(t, 1, "")
	b.do(chromedp.Navigate(s.Nodes[0].URL))
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
	got, err := chromedp.Run(b.ctx, chromedp.Evaluate[string](steps, chromedp.EvalAwaitPromise))
	if err != nil || got != "[[],0.45,0]" {
		t.Errorf("faults, half of the time, before it: %s %v", got, err)
	}
}
