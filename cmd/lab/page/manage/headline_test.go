package manage

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"getwork/cmd/internal/e2e"
	"getwork/cmd/lab/page"
)

// headlines are figures, by what differs from a usual day, and what the floor's headline then is, in English and German.
var headlines = []struct{ figures, en, de string }{
	{`{}`, "330 done today, 1,957 to go.", "330 heute erledigt, 1.957 übrig."},
	{`{ through: 'today, 18:50' }`, "330 done today, 1,957 to go. All is through by today, 18:50.", "330 heute erledigt, 1.957 übrig. Alles ist erledigt bis today, 18:50."},
	{`{ failing: ['Collateral'], late: 3, lateIn: ['Fraud'] }`, "Collateral fails. 330 done today, 1,957 to go.", "Collateral schlägt fehl. 330 heute erledigt, 1.957 übrig."},
	{`{ failing: ['Collateral', 'Fraud'] }`, "2 tasks fail. 330 done today, 1,957 to go.", "2 Aufgaben schlagen fehl. 330 heute erledigt, 1.957 übrig."},
	{`{ waiting: 1, longest: 400_000 }`, "1 person waits for work, and has for 6 min.", "1 Person wartet seit 6 min auf Arbeit."},
	{`{ waiting: 3, longest: 20_000 }`, "330 done today, 1,957 to go.", "330 heute erledigt, 1.957 übrig."},
	{`{ late: 1, lateIn: ['Fraud'] }`, "1 item is late, in Fraud. 330 done today, 1,957 to go.", "1 Vorgang ist überfällig, in Fraud. 330 heute erledigt, 1.957 übrig."},
	{`{ late: 11, lateIn: ['Fraud', 'Arrears'] }`, "11 items are late. 330 done today, 1,957 to go.", "11 Vorgänge sind überfällig. 330 heute erledigt, 1.957 übrig."},
	{`{ paused: true }`, "Everything is paused. 330 done today, 1,957 to go.", "Alles ist angehalten. 330 heute erledigt, 1.957 übrig."},
	{`{ behind: [{ title: 'Letters', came: 61, done: 44, through: '21 Dec' }] }`, "330 done today, 1,957 to go. Only Letters falls behind.", "330 heute erledigt, 1.957 übrig. Nur Letters kommt nicht nach."},
	{`{ left: 0 }`, "All is done: 330 items today, and none is left.", "Alles ist erledigt: heute 330 Vorgänge, und keiner ist übrig."},
	{`{ done: 0 }`, "Nothing is done yet today, and 1,957 items wait.", "Heute ist noch nichts erledigt, und 1.957 Vorgänge warten."},
	{`{ left: 0, done: 0 }`, "A quiet day: there is nothing to do.", "Ein ruhiger Tag: Es gibt nichts zu tun."},
	{`{ left: null, done: null }`, "Nothing is known yet.", "Noch ist nichts bekannt."},
}

// The floor's headline is the first of its rules that applies, in either language; a dull day and no data have one, too.
func TestPageFloorHeadline(t *testing.T) {
	t.Parallel()
	b := page.NewBrowser(t, "")
	s := e2e.NewSite(t, 1, "")
	var all, en, de []string
	for _, h := range headlines {
		all, en, de = append(all, h.figures), append(en, h.en), append(de, h.de)
	}
	for lang, want := range map[string][]string{"en": en, "de": de} {
		b.Do(chromedp.Navigate(s.Nodes[0].URL + "/?lang=" + lang))
		got, err := page.Run(b, chromedp.Evaluate[string](fmt.Sprintf(`(async () => {
			const { speak } = await import('/static/lang.js');
			await speak('floor');
			const { headline } = await import('/static/views/floor/headline.js');
			const usual = { left: 1957, done: 330, waiting: 0, longest: 0, late: 0, paused: false, failing: [], lateIn: [], behind: [], through: '' };
			return [%s].map((figures) => headline({ ...usual, ...figures }).title).join('\n');
		})()`, strings.Join(all, ", ")), chromedp.EvalAwaitPromise))
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(got, "\n") {
			if line != want[i] {
				t.Errorf("%s, %s:\ngot  %s\nwant %s", lang, all[i], line, want[i])
			}
		}
	}
}
