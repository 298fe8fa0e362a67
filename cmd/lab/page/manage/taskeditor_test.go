package manage

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/google/go-cmp/cmp"

	"getwork/cmd/internal/e2e"
	"getwork/cmd/lab/page"
	"getwork/schema/schematest"
)

// Keys in the editor: Tab leaves it; lines keep their indentation, and can be shifted; and all of that can be undone.
func TestPageTaskEditorKeys(t *testing.T) {
	schematest.Thorough(t)
	t.Parallel()
	b := page.NewBrowser(t, "")
	s := e2e.NewSite(t, 1, "")
	s.Task("verify", "select 1 as item")
	b.Manager(s.Nodes[0].URL, "Mia", "/tasks/verify")
	b.Set("set-query", "select 1 as item\n  from x")
	b.Do(chromedp.KeyEvent(kb.Enter), chromedp.KeyEvent("where y"))
	value := func(want string) {
		t.Helper()
		b.Await(fmt.Sprintf(`document.querySelector('#set-query').value === %q`, want), e2e.Soon)
	}
	value("select 1 as item\n  from x\n  where y")
	ctrl(b, "]")
	value("select 1 as item\n  from x\n    where y")
	b.Eval(`(document.querySelector('#set-query').select(), '')`)
	ctrl(b, "]")
	value("  select 1 as item\n    from x\n      where y")
	ctrl(b, "[")
	ctrl(b, "[")
	value("select 1 as item\nfrom x\n  where y")
	b.Eval(`(document.execCommand('undo'), document.execCommand('undo'), '')`)
	value("  select 1 as item\n    from x\n      where y")
	b.Do(chromedp.KeyEvent(kb.Tab))
	b.Await(`document.activeElement.id !== 'set-query'`, e2e.Soon)
	b.Do(chromedp.KeyEvent(kb.Tab, chromedp.KeyModifiers(chromedp.ModifierShift)))
	b.Await(`document.activeElement.id === 'set-query'`, e2e.Soon)
	if same := b.Eval(`(({value}, shown) => String(shown.textContent === value + '\n'))(document.querySelector('#set-query'), document.querySelector('.sql-shown'))`); same != "true" {
		t.Error("the drawn text differs from the typed one")
	}
}

// modules evaluates an expression over the task view's modules sql, diff and settings.
func modules(b *page.Browser, expression string, into any) {
	b.T.Helper()
	text, err := page.Run(b, chromedp.Evaluate[string](`(async () => {
		const [sql, diff, settings, plan] = await Promise.all(['sql', 'diff', 'settings', 'plan'].map((m) => import(
			document.querySelector('link[rel=modulepreload][href$="/views/tasks.js"]').href.replace('tasks.js', 'tasks/' + m + '.js'))));
		return JSON.stringify(`+expression+`);
	})()`, chromedp.EvalAwaitPromise))
	if err != nil {
		b.T.Fatal(err)
	}
	if err := json.Unmarshal([]byte(text), into); err != nil {
		b.T.Fatal(err)
	}
}

// The modules below the view: they colour SQL, find places in it, compare texts, parse typed values, and read plans.
func TestPageTaskModules(t *testing.T) {
	schematest.Thorough(t)
	t.Parallel()
	b := page.NewBrowser(t, "")
	s := e2e.NewSite(t, 1, "")
	b.Do(chromedp.Navigate(s.Nodes[0].URL + "/tasks"))
	for text, want := range map[string]string{
		`select 1.5e3, $1 from t`: "keyword:select number:1.5e3 parameter:$1 keyword:from",
		`'it''s' "a""b" 'c`:       `string:'it''s' name:"a""b" string:'c`,
		`e'a\'b' '\' U&'x' x'0f'`: `string:e'a\'b' string:'\' string:U&'x' string:x'0f'`,
		`$$a'b$$ $a$ $$ $a$ a$1`:  `string:$$a'b$$ string:$a$ $$ $a$`,
		`-- 'x` + "\n1":           `comment:-- 'x number:1`,
		`/* a /* b */ c */ d`:     `comment:/* a /* b */ c */`,
		`/* open`:                 `comment:/* open`,
		`'שלום' || مرحبا`:         `string:'שלום'`,
		`SELECT selected, x.5, 1`: `keyword:SELECT number:.5 number:1`,
	} {
		var got string
		modules(b, fmt.Sprintf(`sql.pieces(%q).filter((p) => p.kind).map((p) => p.kind + ':' + p.text).join(' ')`, text), &got)
		if got != want {
			t.Errorf("%s\ngot  %s\nwant %s", text, got, want)
		}
	}
	var whole bool
	modules(b, `['', "a 'b", '$x$', '/*', '𝄞e\'', '"'].every((text) => sql.pieces(text).map((p) => p.text).join('') === text)`, &whole)
	if !whole {
		t.Error("the pieces don't make up the whole text")
	}
	var places []int
	modules(b, `[sql.offsetOf('é𝄞x', 3), sql.offsetOf('ab', 9), sql.placeOf('a\nb𝄞c', 5).line, sql.placeOf('a\nb𝄞c', 5).column]`, &places)
	if diff := cmp.Diff([]int{3, 2, 2, 3}, places); diff != "" {
		t.Errorf("places (-want +got):\n%s", diff)
	}
	for _, c := range []struct{ was, is, want string }{
		{"", "", ""}, {"a b c", "a b c", "=a =b =c"}, {"", "a", "+a"}, {"a b", "", "-a -b"},
		{"a b c a b b a", "c b a b a c", "-a -b =c +b =a =b -b =a +c"}, {"a x b", "a y b", "=a -x +y =b"},
	} {
		var got string
		modules(b, fmt.Sprintf(`diff.diff(%q.split(' ').filter(Boolean), %q.split(' ').filter(Boolean)).map((c) => ({ same: '=', del: '-', ins: '+' })[c.kind] + c.text).join(' ')`, c.was, c.is), &got)
		if got != c.want {
			t.Errorf("from %q to %q: %q, want %q", c.was, c.is, got, c.want)
		}
	}
	var rebuilt bool // every diff has both texts, and there is no shorter one
	modules(b, `[...Array(2000).keys()].every((seed) => {
		let x = seed + 1;
		const next = (n) => (x = (x * 48271) % 2147483647) % n;
		const [was, is] = [0, 0].map(() => Array.from({ length: next(12) }, () => 'abc'[next(3)]));
		const d = diff.diff(was, is);
		const longest = was.reduceRight((row, a) => is.reduceRight((r, b, j) => (r[j] = a === b ? row[j + 1] + 1 : Math.max(row[j], r[j + 1]), r), Array(is.length + 1).fill(0)), Array(is.length + 1).fill(0))[0];
		const of = (kind) => d.filter((c) => c.kind !== kind).map((c) => c.text).join();
		return of('ins') === was.join() && of('del') === is.join() && d.filter((c) => c.kind === 'same').length === longest;
	})`, &rebuilt)
	if !rebuilt {
		t.Error("a diff is not the shortest one between its two texts")
	}
	var microseconds []any
	modules(b, `['90s', '1h30m', '.5s', '1.s', '+2ms', '0', '-1s', '5µs', '', '90', '1 s', 's', '1d', '1h-2m'].map(settings.microseconds)`, &microseconds)
	if diff := cmp.Diff([]any{9e7, 5.4e9, 5e5, 1e6, 2e3, 0.0, -1e6, 5.0, nil, nil, nil, nil, nil, nil}, microseconds); diff != "" {
		t.Errorf("durations (-want +got):\n%s", diff)
	}
	var warnings []string
	modules(b, `plan.warningsIn(plan.planOf([{ Plan: { 'Node Type': 'Nested Loop', 'Total Cost': 1e7, 'Plan Rows': 2e6, Plans: [
		{ 'Node Type': 'Seq Scan', 'Relation Name': 'loan', 'Parent Relationship': 'Outer', 'Total Cost': 2e4, 'Plan Rows': 1e6 },
		{ 'Node Type': 'Seq Scan', 'Relation Name': 'note', 'Parent Relationship': 'Inner', 'Total Cost': 500, 'Plan Rows': 2 }] } }]))`, &warnings)
	want := []string{"Joins to 2,000,000 rows; is a join’s condition missing?", "Reads the whole table loan.", "Reads the whole table note again for each row beside it."}
	if diff := cmp.Diff(want, warnings); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
}
