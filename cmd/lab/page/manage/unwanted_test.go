package manage

import (
	"fmt"
	"testing"

	"getwork/assign"
	"getwork/cmd/internal/cluster"
	"getwork/cmd/internal/e2e"
	"getwork/cmd/lab/page"
)

// What three people gave back stands on the floor, in either language and on a phone. A manager reads who could have it and who not,
// gives it to one of them, and that one's desk has it.
func TestPageFloorUnwanted(t *testing.T) {
	t.Parallel()
	b := page.NewBrowser(t, "")
	s := e2e.NewSite(t, 2, "")
	page.Leased(s, "10m", "a", "b")
	for _, user := range []string{"Oliver", "Tracy", "Uma"} {
		w := s.Takes(user, 1)[0]
		body := map[string]any{"outcome": "return", "after": "0s"}
		if user == "Uma" {
			body["to"] = "others"
		}
		if a, err := s.As(user, 1).Do(t.Context(), "POST", fmt.Sprintf("/api/v1/work/%d/disposition", w.ID), body); err != nil || a.Status != 200 {
			t.Fatalf("%s returns %s: %d %s %v", user, w.Item, a.Status, a.Body, err)
		}
	}
	tracy := s.Dial("Tracy", 1)
	b.Visit(s.Nodes[0].URL, "/floor", "Otto,observer")
	floor(b, "unwanted", "Given back by three or more 1", 2*e2e.Soon)
	watchesOnly(b)

	b.As(page.Look{Width: 390, Height: 844, Scheme: "light"})
	b.Visit(s.Nodes[0].URL, "/floor?lang=de", "Mary,manager")
	floor(b, "unwanted", "Von drei oder mehr zurückgegeben 1", 2*e2e.Soon)
	b.Press(`[data-item=a] button`)
	b.Shows("dialog[open]", "Nicht an 1 Person")
	b.Press("dialog[open] summary")
	b.Shows("dialog[open] .could-not li", "Uma hat den Vorgang „a“ an andere zurückgegeben oder zurückgestellt")
	for _, where := range []string{"document.scrollingElement", "document.querySelector('dialog[open]')"} {
		if got := b.Eval(`String(` + where + `.scrollWidth - ` + where + `.clientWidth)`); got != "0" {
			t.Errorf("on a phone %s is %s wider than there is room", where, got)
		}
	}
	if may := b.Eval(`[...document.querySelectorAll('dialog[open] .could button')].map((e) => e.textContent).sort().join()`); may != "Mary,Oliver,Tracy" {
		t.Errorf("it could go to %s", may)
	}
	b.Press("dialog[open] [type=button]:not(.could *)") // and not to anybody
	b.Await(`!document.querySelector('dialog[open]')`, e2e.Soon)

	b.As(page.Look{Width: 1366, Height: 768, Scheme: "light"})
	b.Visit(s.Nodes[0].URL, "/floor?lang=en", "Mary,manager")
	floor(b, "unwanted", "By 3 people, last ", 2*e2e.Soon)
	b.Press(`[data-item=a] button`)
	b.Await(`document.querySelector('dialog[open] .could button')`, e2e.Soon)
	b.Eval(`([...document.querySelectorAll('dialog[open] .could button')].find((e) => e.textContent === 'Tracy').click(), '')`)
	b.Press("dialog[open] [type=submit]")
	b.Await(`!document.querySelector('dialog[open]')`, e2e.Soon)
	s.Hear(tracy, "her work", e2e.Soon, func(e cluster.Event) bool {
		return e.Work != nil && e.Work.Item == "a" && e.Work.User == "Tracy" && e.Work.State == assign.WorkHeld
	})
	b.Await(`document.querySelector('[data-item=a]').textContent.includes('held') && !document.querySelector('[data-item=a] button')`, 3*e2e.Soon)

	b.Visit(s.Nodes[0].URL, itemsAt("b", "verify"), "Mary,manager")
	b.Shows(".facts .could", "Tracy")
	b.Press(".give")
	dialog(b, map[string]string{"user": "Viktor"}) // who has not been here
	verdict(b, "verify", "Viktor has had it since ")
	b.Await(`!document.querySelector('.facts .could')`, e2e.Soon)

	b.Opens(s.Nodes[0].URL + itemsAt("a", "verify"))
	verdict(b, "verify", "Tracy has had it since ")
	hers := e2e.Column[int64](s, `select id from getwork.work where user_name = 'Tracy' and state = 'held'`)[0]
	s.Disposed(s.As("Tracy", 1), assign.Work{ID: hers}, "return", "0s")
	b.Press(".explain")
	b.Shows(".facts .could-not", "Not to 1 person")
}
