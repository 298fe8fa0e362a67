package engine

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
	"getwork/notify"
	"getwork/schema/schematest"
)

// skilled returns a person in these groups.
func skilled(user string, groups ...string) assign.Click {
	return assign.Click{Holder: assign.Holder{User: user}, Count: 1, Groups: groups}
}

func (n *node) takeAs(t *testing.T, task string, c assign.Click) assign.Request {
	t.Helper()
	r, err := n.GetWork(t.Context(), task, c)
	if err != nil {
		t.Fatalf("%s clicks: %v", c.Holder.User, err)
	}
	return n.endedRequest(t, r.ID)
}

// languages is a query of items in front that need a language, and of some behind that need none, or two.
const languages = `
select 'french-' || i as item, i as rank, array['french'] as needs from generate_series(1, 30) i
union all select 'both-' || i, 1000 + i, array['law', null, 'french', ''] from generate_series(1, 3) i
union all select 'plain-' || i, 2000 + i, null from generate_series(1, 3) i
order by 2`

// Everybody gets the best item that they have all for, by groups or skills, from a run and from the shelf.
func TestNeeds(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	db := pool(t, url)
	if _, err := n.SetSkills(t.Context(), "bob", []string{"law"}, "mia"); err != nil {
		t.Fatal(err)
	}
	for name, fresh := range map[string]time.Duration{"run": 0, "shelf": time.Hour} {
		newTask(t, n, name, languages, func(s *assign.Settings) { s.FreshFor = assign.Duration(fresh) })
		want := func(c assign.Click, all ...string) {
			t.Helper()
			if r := n.takeAs(t, name, c); strings.Join(items(r), " ") != strings.Join(all, " ") {
				t.Errorf("%s: %s gets %v (%s, %s), want %v", name, c.Holder.User, items(r), r.State, why(r), all)
			}
		}
		want(skilled("ann"), "plain-1")
		want(skilled("bob", "french"), "french-1")
		want(skilled("bob"), "plain-2")
		if _, err := n.SetSkills(t.Context(), "cyd", []string{"french"}, "mia"); err != nil {
			t.Fatal(err)
		}
		want(skilled("cyd"), "french-2")
		for i := range 29 {
			want(skilled(fmt.Sprint("fr-", i), "french"), map[bool]string{true: fmt.Sprint("french-", i+3), false: "plain-3"}[i < 28])
			if fresh == 0 && i == 3 {
				break
			}
		}
		want(skilled("bob", "french"), map[bool]string{true: "both-1", false: "french-7"}[fresh > 0])
		if fresh > 0 {
			r := n.takeAs(t, name, skilled("eve"))
			if r.State != assign.None || why(r) != assign.Rules {
				t.Errorf("eve ends %s, %s", r.State, why(r))
			}
			manager := assign.Click{Holder: assign.Holder{User: "max"}, Count: 1, Anything: true}
			want(manager, "both-2")
			froms := query[[]int64](t, db, `select shelf_froms from getwork.task_state where name = 'shelf'`)
			if fmt.Sprint(froms) != "[9223372036854775807 33 9223372036854775807]" {
				t.Errorf("the classes begin at %v", froms)
			}
		}
		if got := query[string](t, db, `select string_agg(distinct coalesce(w.needs::text, '-'), ' ' order by coalesce(w.needs::text, '-')) from getwork.work w join getwork.task_state s using (task_id) where s.name = $1`, name); !strings.Contains(got, "{french}") {
			t.Errorf("work remembers the needs %s", got)
		}
		if _, err := n.SetSkills(t.Context(), "cyd", nil, "mia"); err != nil {
			t.Fatal(err)
		}
	}
	needs := query[string](t, db, `select (needs->0)::text || (needs->1->>'items') from getwork.run order by id limit 1`)
	if needs != `{"items": 30, "needs": ["french"]}3` {
		t.Errorf("the run needs %s", needs)
	}
}

// What a column needs can't say: another type is a detail; names that can't be, and sets beyond the most, are no items.
func TestNeedsOfAnotherKind(t *testing.T) {
	t.Parallel()
	n := startNode(t, schematest.URL(t), nodeOptions{})
	for i, c := range []struct{ needs, details, reason string }{
		{`7`, `{"needs":7}`, ""},
		{`array[1, 2]`, `{"needs":[1,2]}`, ""},
		{`'{"french": 1}'::json`, `{"needs":{"french": 1}}`, ""},
		{`''`, `{}`, ""},
		{`null::text`, `{}`, ""},
		{`array[]::text[]`, `{}`, ""},
		{`array[null, '']`, `{}`, ""},
		{`'french'`, "", "rules"},
		{`'french'::varchar`, "", "rules"},
		{`array['french', 'desk']::varchar[]`, "", "rules"},
		{`array['desk', 'desk']`, `{}`, ""},
		{`repeat('x', 129)`, "", "no_match"},
		{`'french,law'`, "", "no_match"},
		{`array[array['french'], array['law']]`, "", "no_match"},
		{`array(select 's' || i from generate_series(1, 21) i)`, "", "no_match"},
	} {
		task := fmt.Sprint("task-", i)
		newTask(t, n, task, `select 1 as item, `+c.needs+` as needs`, nil)
		r := n.takeAs(t, task, skilled("ann", "desk"))
		if got := string(why(r)); got != c.reason || c.reason == "" && string(r.Work[0].Details) != c.details {
			t.Errorf("%s: %s %s %+v", c.needs, r.State, got, r.Work)
		}
		if c.reason == "" {
			n.let(t, r.Work[0], giveBack(0))
		}
		_, _, err := n.Claim(t.Context(), task, "1", assign.Who{Holder: assign.Holder{User: "bob"}, Groups: []string{"desk"}})
		switch {
		case (err == nil) != (c.reason == ""):
			t.Errorf("%s: a claim says %v", c.needs, err)
		case c.reason == "rules":
			wantKind(t, err, assign.NotAvailable)
		case c.reason != "":
			wantKind(t, err, assign.NotFound)
		}
	}
	newTask(t, n, "many", `select i as item, 's' || i as needs from generate_series(1, 258) i order by i`, nil)
	if r := n.takeAs(t, "many", skilled("ann", "s256")); len(r.Work) != 1 {
		t.Errorf("the last set: %s, %s", r.State, why(r))
	}
	if r := n.takeAs(t, "many", skilled("bob", "s258")); r.State != assign.None || why(r) != assign.Rules {
		t.Errorf("a set beyond the most: %s, %s", r.State, why(r))
	}
	p, err := n.Ranker.Preview(t.Context(), "many", nil, 100)
	if err != nil || fmt.Sprint(p.Rows[0].Needs) != "[s1]" {
		t.Errorf("%+v, %v", p.Rows[0], err)
	}
}

// A claim, a reassignment, what a manager gives and a substitute go by the same rule, and say what is missing.
func TestNeedsOfWhoIsGiven(t *testing.T) {
	t.Parallel()
	n := startNode(t, schematest.URL(t), nodeOptions{})
	newTask(t, n, "shelf", languages, func(s *assign.Settings) { s.FreshFor, s.OnAway = assign.Duration(time.Hour), assign.PassAway })
	for user, skills := range map[string][]string{"ann": {"french"}, "bob": {"law"}, "cyd": {"french", "law"}} {
		if _, err := n.SetSkills(t.Context(), user, skills, "mia"); err != nil {
			t.Fatal(err)
		}
		n.takeAs(t, "shelf", skilled(user)) // they are seen
	}
	refused := func(what string, err error, lacks string) {
		t.Helper()
		wantKind(t, err, assign.NotAvailable)
		if !strings.Contains(err.Error(), "lacks "+lacks) {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, _, err := n.Claim(t.Context(), "shelf", "both-1", who("bob"))
	refused("a claim", err, "french")
	_, _, err = n.Give(t.Context(), "shelf", "both-1", assign.Reassignment{User: "ann"})
	refused("what a manager gives", err, "law")
	w, _, err := n.Claim(t.Context(), "shelf", "both-1", who("cyd"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = n.Reassign(t.Context(), w.ID, assign.Reassignment{User: "ann"}, "mia")
	refused("a reassignment", err, "law")
	e, err := n.Explain(t.Context(), "shelf", "both-2")
	if err != nil || fmt.Sprint(e.Needs) != "[french law]" || !e.Available || !strings.Contains(e.Text, "needs french, law") {
		t.Errorf("%+v, %v", e, err)
	}
	could := map[string]string{}
	for _, c := range e.Could {
		could[c.User] = c.Because
	}
	if could["cyd"] != "" || !strings.Contains(could["ann"], "ann lacks law") || !strings.Contains(could["bob"], "bob lacks french") {
		t.Errorf("could: %v", could)
	}
	until := time.Now().Add(time.Hour)
	if _, err := Above.EnterAbsence(t.Context(), n.Engine, "cyd", assign.AbsenceWish{Until: &until, Substitute: new("ann")}, "mia"); err != nil {
		t.Fatal(err)
	}
	if w, err := n.Work(t.Context(), w.ID); err != nil || w.State != assign.WorkReturned {
		t.Errorf("what the substitute may not have is %s: %v", w.State, err)
	}
}

// Whoever lingers gets what they have learnt to do, and a change between the click and its round counts.
func TestSkillsChange(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	db := pool(t, url)
	for name, fresh := range map[string]time.Duration{"run": 0, "shelf": time.Hour} {
		newTask(t, n, name, `select i as item, 'french' as needs from generate_series(1, 5) i order by i`, func(s *assign.Settings) {
			s.FreshFor, s.RerunAfter = assign.Duration(fresh), assign.Duration(time.Hour)
		})
		user := "ann of " + name
		r := n.linger(t, name, user, 1)
		await(t, user+" lingers", func() bool {
			return query[bool](t, db, `select coalesce(reason = 'rules', false) from getwork.work_requested where id = $1`, r.ID)
		})
		if _, err := n.SetSkills(t.Context(), user, []string{"french"}, "mia"); err != nil {
			t.Fatal(err)
		}
		if r := n.endedRequest(t, r.ID); len(r.Work) != 1 {
			t.Errorf("%s: %s, %s", name, r.State, why(r))
		}
	}
}

// Groups and skills that are taken away while the query runs, after the click, count: the round goes by what people have when it has the
// lock.
func TestTakenAwayBetweenClickAndRound(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"groups", "skills"} {
		url := schematest.URL(t) // of its own: a node without a gate might run the query
		db := pool(t, url)
		queried := newGate(StepQueried)
		n := startNode(t, url, nodeOptions{Steps: queried.hold})
		newTask(t, n, what, `select i as item, 'french' as needs from generate_series(1, 5) i order by i`, nil)
		session := logIn(t, db, "ann of "+what)
		c := once("ann of "+what, session)
		if what == "groups" {
			c.Groups = []string{"french"}
		} else if _, err := n.SetSkills(t.Context(), "ann of "+what, []string{"french"}, "mia"); err != nil {
			t.Fatal(err)
		}
		r := n.ask(t, what, c)
		<-queried.reached
		if what == "groups" {
			if err := n.TransactAnnouncing(t.Context(), func(tx pgx.Tx) ([]notify.Change, error) {
				return n.ChangeGroups(t.Context(), tx, []string{session}, []string{"desk"})
			}); err != nil {
				t.Fatal(err)
			}
		} else if _, err := n.SetSkills(t.Context(), "ann of "+what, nil, "mia"); err != nil {
			t.Fatal(err)
		}
		close(queried.open)
		if r := n.endedRequest(t, r.ID); r.State != assign.None || why(r) != assign.Rules {
			t.Errorf("%s: %s, %s, %v", what, r.State, why(r), items(r))
		}
	}
}

// An inbox hands out by needs likewise, whatever was pushed before any item needed something, and until they end.
func TestNeedsOfAnInbox(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	db := pool(t, url)
	newInbox(t, n, "inbox", nil)
	n.push(t, "inbox", "plain-1", "plain-2")
	if needs := query[bool](t, db, `select bool_and(needs is null) from getwork.task_state`); !needs {
		t.Error("an inbox without needs has some")
	}
	french := func(item string, priority int32, needs ...string) assign.NewItem {
		return assign.NewItem{Item: item, Priority: priority, Needs: needs}
	}
	n.pushItems(t, "inbox", french("french-1", 5, "french", "french"), french("both-1", 9, "law", "french"), french("french-2", 5, "french"))
	n.push(t, "inbox", "plain-3")
	execute(t, db, `insert into getwork.item (task_id, item, pushed_by) select task_id, 'of an older node', 'x' from getwork.task_state`)
	want := func(c assign.Click, all ...string) {
		t.Helper()
		if r := n.takeAs(t, "inbox", c); strings.Join(items(r), " ") != strings.Join(all, " ") {
			t.Errorf("%s gets %v (%s, %s), want %v", c.Holder.User, items(r), r.State, why(r), all)
		}
	}
	want(skilled("ann"), "plain-1")
	want(skilled("bob", "french"), "french-1")
	want(skilled("cyd", "french", "law"), "both-1")
	want(skilled("ann"), "plain-2")
	want(skilled("ann"), "plain-3")
	want(skilled("ann"), "of an older node")
	if r := n.takeAs(t, "inbox", skilled("ann")); r.State != assign.None || why(r) != assign.Rules {
		t.Errorf("ann ends %s, %s", r.State, why(r))
	}
	r := n.linger(t, "inbox", "ann", 1)
	if _, err := n.SetSkills(t.Context(), "ann", []string{"french"}, "mia"); err != nil {
		t.Fatal(err)
	}
	if r := n.endedRequest(t, r.ID); strings.Join(items(r), " ") != "french-2" {
		t.Errorf("ann, who has learnt it, gets %v", items(r))
	}
	r = n.linger(t, "inbox", "dan", 1)
	soon := time.Now().Add(time.Second)
	n.pushItems(t, "inbox", assign.NewItem{Item: "for a while", Needs: []string{"french"}, NeedsUntil: &soon})
	if e, err := n.Explain(t.Context(), "inbox", "for a while"); err != nil || fmt.Sprint(e.Needs) != "[french]" {
		t.Errorf("%+v, %v", e, err)
	}
	if r := n.endedRequest(t, r.ID); strings.Join(items(r), " ") != "for a while" || time.Now().Before(soon) {
		t.Errorf("dan, who waited until it needs nothing, gets %v", items(r))
	}
}

// An inbox knows as many sets as a run; those that no open item has make room for others.
func TestNeedsOfAnInboxAreBounded(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	db := pool(t, url)
	newInbox(t, n, "inbox", nil)
	batch := make([]assign.NewItem, 255)
	for i := range batch {
		batch[i] = assign.NewItem{Item: fmt.Sprint(i), Needs: []string{fmt.Sprint("s", i)}}
	}
	n.pushItems(t, "inbox", batch...)
	another := []assign.NewItem{{Item: "a"}, {Item: "one more", Needs: []string{"another"}}}
	_, err := n.Push(t.Context(), "inbox", another, boss)
	wantKind(t, err, assign.Invalid)
	if got := query[int](t, db, `select count(*) from getwork.item`); got != 255 {
		t.Errorf("%d items after a push that was refused", got)
	}
	n.let(t, n.takeAs(t, "inbox", skilled("ann", "s7")).Work[0], assign.Disposition{Outcome: "complete"})
	n.pushItems(t, "inbox", another...)
	if r := n.takeAs(t, "inbox", skilled("bob", "another")); len(r.Work) != 1 {
		t.Errorf("bob ends %s, %s", r.State, why(r))
	}
	for _, wrong := range []assign.NewItem{{Item: "x", Needs: []string{""}}, {Item: "x", Needs: []string{strings.Repeat("x", 129)}}, {Item: "x", Needs: make([]string, 0), NeedsUntil: new(time.Now())}} {
		_, err := n.Push(t.Context(), "inbox", []assign.NewItem{wrong}, boss)
		wantKind(t, err, assign.Invalid)
	}
}
