package look

import (
	"github.com/chromedp/chromedp"

	"getwork/cmd/internal/e2e"
)

// limited makes a version of the limits. Nobody who has other states is named.
func limited(s *e2e.Site, groups, people string) {
	s.T.Helper()
	s.Exec(`
insert into getwork.limits (version, created_by, groups, people)
select coalesce(max(version), 0) + 1, 'Morris', $1::jsonb, $2::jsonb from getwork.limits`, groups, people)
}

// withLimits is for states with limits, of which the page hears only if it is opened anew.
func withLimits(groups, people string, then func(*stage)) func(*stage) {
	return func(st *stage) {
		st.T.Helper()
		limited(st.s, groups, people)
		st.Do(chromedp.Reload())
		st.State("live", e2e.Soon)
		then(st)
	}
}

var limitStates = []state{
	{name: "limits none", user: "Mary,manager", path: "/limits", reach: sees("Add a limit")},
	{name: "limits", user: "Mary,manager", path: "/limits", reach: withLimits(`{"trainees": 3}`, `{"fay": 20, "nightly-import-of-scanned-documents": null}`, presses("trainees", "button Add a limit"))},
	{name: "limits observed", user: "Olga,observer", path: "/limits", reach: withLimits(`{"trainees": 3}`, `{"fay": 20}`, sees("trainees"))},
	{name: "limits conflict", user: "Max,manager", path: "/limits", reach: withLimits(`{"trainees": 3}`, `{"fay": 20}`, func(st *stage) {
		st.Fill("spinbutton", "Limit: trainees", "7")
		limited(st.s, `{"trainees": 5}`, `{"fay": 21}`)
		presses("Changed while you typed", "button Save")(st)
	})},
}

// full is the desk of somebody who holds as much as they may.
func full(st *stage) {
	st.T.Helper()
	const user = "Fay"
	if held := e2e.Column[int](st.s, `select count(*)::integer from getwork.work where user_name = $1 and state = 'held'`, user); held[0] == 0 {
		if r, a, err := st.s.As(user, 0).GetWork(st.T.Context(), verifying, 1, "Prefer", "wait=20"); err != nil || len(r.Work) != 1 {
			st.T.Fatalf("%d %s %v", a.Status, a.Body, err)
		}
	}
	withLimits(`{"trainees": 3}`, `{"Fay": 1}`, presses("You hold 1 of 1, over all tasks. Finish or return something first.", "button Get Work: verify"))(st)
}
