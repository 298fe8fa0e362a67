package look

import (
	"getwork/cmd/internal/e2e"
	"getwork/cmd/lab/page"
)

// gone has a user be away from now on.
func gone(user, substitute string, then func(*stage)) func(*stage) {
	return func(st *stage) {
		st.T.Helper()
		if away := e2e.Column[bool](st.s, `select exists (select from getwork.absence where user_name = $1 and ended_at is null)`, user); !away[0] {
			absence := map[string]any{"user": user, "until": "2099-11-30T08:00:00Z"}
			if substitute != "" {
				absence["substitute"] = substitute
			}
			page.Manages(st.s, "POST", "/absences", absence)
		}
		then(st)
	}
}

var absentStates = []state{
	{name: "floor away form", user: "Mary,manager", path: "/floor", reach: presses("Substitute", "button Mary", "button Away …")},
	{name: "floor away", user: "Mary,manager", path: "/floor", reach: gone("Viktor", "Uma", gone("Zoé-de-la-Fontaine-Besançon", "", sees("Who is away")))},
	{name: "floor away observed", user: "Olga,observer", path: "/floor", reach: gone("Viktor", "Uma", sees("Who is away"))},
	{name: "task compare", user: "Mary,manager", path: "/tasks/" + verifying, reach: func(st *stage) {
		st.Set("set-query", `select 'L-' || 2041 + 7 * i as item, 'Ada Lovell' as applicant from generate_series(4, 60) i order by i % 7, i`)
		presses("Come in", "button Compare")(st)
	}},
}
