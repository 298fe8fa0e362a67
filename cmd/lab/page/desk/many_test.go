package desk

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/performance"
	"github.com/chromedp/chromedp"

	"getwork/assign"
	"getwork/cmd/internal/e2e"
	"getwork/cmd/lab/page"
	"getwork/schema/schematest"
)

// spent is how much CPU the page has used so far: for scripts, and for styles and layout.
func spent(b *page.Browser) (script, layout time.Duration) {
	b.T.Helper()
	metrics, err := page.Run(b, func(ctx context.Context, tab *chromedp.Target) ([]*performance.Metric, error) {
		if _, err := cdp.Call(ctx, tab, performance.Enable, performance.EnableParams{}); err != nil {
			return nil, err
		}
		m, err := cdp.Call(ctx, tab, performance.GetMetrics, cdp.Empty{})
		return m.Metrics, err
	})
	if err != nil {
		b.T.Fatal(err)
	}
	for _, m := range metrics {
		seconds := time.Duration(m.Value * float64(time.Second))
		switch m.Name {
		case "ScriptDuration":
			script = seconds
		case "LayoutDuration", "RecalcStyleDuration":
			layout += seconds
		}
	}
	return script, layout
}

// costing runs something several times, and reports the medians of its cost.
func costing(b *page.Browser, what string, times int, step func(i int)) {
	b.T.Helper()
	var scripts, layouts []time.Duration
	for i := range times {
		script, layout := spent(b)
		step(i)
		s, l := spent(b)
		scripts, layouts = append(scripts, s-script), append(layouts, l-layout)
	}
	slices.Sort(scripts)
	slices.Sort(layouts)
	b.T.Logf("%s: medians %v of scripts, %v of styles and layout (worst %v and %v)", what, scripts[times/2], layouts[times/2], scripts[times-1], layouts[times-1])
}

// scrolling scrolls from the top to the bottom in 120 steps, one per frame, and returns the frames' times, in ms.
const scrolling = `new Promise((done) => {
	const all = document.scrollingElement, frames = [];
	let n = 0, last = performance.now();
	all.scrollTop = 0;
	requestAnimationFrame(function step(now) {
		frames.push(now - last);
		last = now;
		all.scrollTop = all.scrollHeight * ++n / 120;
		if (n < 120) return requestAnimationFrame(step);
		frames.sort((a, b) => a - b);
		done([frames[60], frames[114], frames[119]]);
	});
})`

// A user holds five hundred items. The desk opens, scrolls and follows; a change touches only what has changed, and the
// user's place stays. The times are printed, not judged: they depend more on the machine than on the page.
func TestPageHoldsFiveHundred(t *testing.T) {
	schematest.Thorough(t)
	t.Parallel()
	const many = 500
	b := page.NewBrowser(t, "")
	s := e2e.NewSite(t, 1, "")
	page.Manages(s, "POST", "/tasks", map[string]any{"name": "verify", "lease": "24h", "max_request": 1000, "query": `
		select 'L-' || 1000 + i as item, 'Applicant ' || i as applicant, i * 100.50 as amount, date '2026-01-01' + i % 300 as submitted,
		  i % 2 = 0 as returning_customer, 'A remark of some length about loan ' || i as remark from generate_series(1, 600) i order by i`})
	held := s.Takes("Oliver", many)
	script, layout := spent(b)
	began := time.Now()
	b.Visit(s.Nodes[0].URL, "/", "Oliver")
	b.Works(many, 3*e2e.Soon)
	b.Settle()
	took := time.Since(began).Round(time.Millisecond)
	s1, l1 := spent(b)
	t.Logf("opened in %v; %v of scripts, %v of styles and layout", took, s1-script, l1-layout)
	nodes, err := page.Run(b, chromedp.Evaluate[int](`document.querySelectorAll('*').length`))
	if t.Logf("%d elements", nodes); err != nil || nodes > 20_000 {
		t.Errorf("%d elements for %d items (%v)", nodes, many, err)
	}
	frames, err := page.Run(b, chromedp.Evaluate[[]float64](scrolling, chromedp.EvalAwaitPromise))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("scrolling, ms a frame: median %.1f, 95 %% %.1f, worst %.1f", frames[0], frames[1], frames[2])
	costing(b, "a second in which nothing happens", 5, func(int) {
		if _, err := page.Run(b, chromedp.Evaluate[bool](`new Promise((done) => setTimeout(done, 1000, true))`, chromedp.EvalAwaitPromise)); err != nil {
			t.Fatal(err)
		}
	})

	b.Eval(`(() => {
		window.touched = [];
		const at = document.querySelectorAll('#work .work')[250].querySelector('button:not([hidden])');
		at.focus();
		at.scrollIntoView({ block: 'center', behavior: 'instant' });
		window.at = at;
		new MutationObserver((all) => window.touched.push(all.length)).observe(document.body, { subtree: true, childList: true, attributes: true, characterData: true });
		return '';
	})()`)
	b.Settle()
	top, err := page.Run(b, chromedp.Evaluate[float64](`at.getBoundingClientRect().top`))
	if err != nil {
		t.Fatal(err)
	}
	var touched []int
	costing(b, "one of them is completed elsewhere", 10, func(i int) {
		b.Eval(`(window.touched = [], '')`)
		completes(s, "Oliver", held[300-20*i]) // first below, then above the visible part
		b.Works(many-1-i, e2e.Soon)
		b.Settle()
		n, err := page.Run(b, chromedp.Evaluate[int](`touched.reduce((a, b) => a + b, 0)`))
		if err != nil {
			t.Fatal(err)
		}
		touched = append(touched, n)
	})
	slices.Sort(touched)
	t.Logf("mutations for one completed: %v", touched)
	if median := touched[len(touched)/2]; median >= 200 {
		t.Errorf("a change of one item touches the page %d times", median)
	}
	if is := b.Eval(fmt.Sprintf(`String([document.activeElement === at, at.isConnected, Math.abs(at.getBoundingClientRect().top - %g) < 8])`, top)); is != "true,true,true" {
		t.Errorf("has the focus, is there, is where it was: %s; it was at %g, and is at %s", is, top, b.Eval(`String(at.getBoundingClientRect().top)`))
	}
}

// completes has a user complete work from elsewhere.
func completes(s *e2e.Site, user string, w assign.Work) {
	s.T.Helper()
	if _, a, err := s.As(user, 0).Dispose(s.T.Context(), w.ID, "complete", ""); err != nil || a.Status != 200 {
		s.T.Fatalf("complete %s: %d %s %v", w.Item, a.Status, a.Body, err)
	}
}
