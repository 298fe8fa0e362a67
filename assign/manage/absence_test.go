package manage_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"getwork/assign"
	"getwork/assign/engine"
	"getwork/assign/enginetest"
	"getwork/assign/manage"
	"getwork/schema/schematest"
)

const seen = `insert into getwork.work_requested (task_id, user_name, wanted, requested, state, reason, completed_at, groups)
select min(task_id), $1, 1, 0, 'none', 'no_match', clock_timestamp(), $2 from getwork.task_state`

func onAway(to string) func(*assign.Settings) { return func(s *assign.Settings) { s.OnAway = to } }

func enter(t *testing.T, n *enginetest.Node, user, by string, w assign.AbsenceWish) assign.Absence {
	t.Helper()
	a, err := manage.EnterAbsence(t.Context(), n.Engine, user, w, by)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// wantWork compares a work row's state, and who closed it.
func wantWork(t *testing.T, n *enginetest.Node, w assign.Work, state assign.WorkState, by string) {
	t.Helper()
	now, err := n.Work(t.Context(), w.ID)
	if err != nil {
		t.Fatal(err)
	}
	if closed := now.ClosedBy; now.State != state || (closed == nil) != (by == "") || closed != nil && *closed != by {
		t.Errorf("%s of %s is %s, closed by %v; want %s, %q", w.Item, w.Task, now.State, closed, state, by)
	}
}

func wantHolder(t *testing.T, n *enginetest.Node, task, item, user string) {
	t.Helper()
	p, err := n.UserPipeline(t.Context(), user)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range p.Work {
		if w.Task == task && w.Item == item {
			return
		}
	}
	t.Errorf("%s does not hold %s of %s, but %+v", user, item, task, p.Work)
}

// An absence ends what its user waits for and takes what their tasks say, and they get nothing until it ends. What they keep they may
// still finish.
func TestAbsence(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := enginetest.Start(t, url, enginetest.Options{})
	db := enginetest.Pool(t, url)
	held := map[string]assign.Work{}
	for _, task := range []string{"keep", "release", "to"} {
		enginetest.NewInbox(t, n, task, onAway(task))
		n.PushKeys(t, task, "a")
		held[task] = n.Take(t, task, "ann")
	}
	enginetest.NewInbox(t, n, "empty", nil)
	enginetest.NewTask(t, n, "query", enginetest.Numbers, nil)
	waits := n.Linger(t, "empty", "ann", 1)
	other := n.Linger(t, "empty", "cid", 1)
	enginetest.Execute(t, db, seen, "bob", []string{})
	until := time.Now().Add(time.Hour).Truncate(time.Microsecond).UTC()
	a := enter(t, n, "ann", "ann", assign.AbsenceWish{Until: &until, Substitute: new("bob")})
	if r := n.EndedRequest(t, waits.ID); r.State != assign.None || enginetest.Why(r) != assign.Away {
		t.Errorf("what she waited for ended as %s %v", r.State, enginetest.Why(r))
	}
	wantWork(t, n, held["keep"], "held", "")
	wantWork(t, n, held["release"], assign.WorkReturned, "ann")
	wantWork(t, n, held["to"], assign.WorkReassigned, "ann")
	wantHolder(t, n, "to", "a", "bob")
	for _, task := range []string{"release", "query"} {
		if r := n.Click(t, task, "ann", 1); r.State != assign.None || enginetest.Why(r) != assign.Away {
			t.Errorf("her click on %s: %s %v", task, r.State, enginetest.Why(r))
		}
		if r := n.Linger(t, task, "ann", 1); r.State != assign.None || enginetest.Why(r) != assign.Away {
			t.Errorf("her lingering click on %s: %s %v", task, r.State, enginetest.Why(r))
		}
	}
	if runs := enginetest.Query[int](t, db, `select count(*) from getwork.run`); runs != 0 {
		t.Errorf("%d runs for somebody who is away", runs)
	}
	_, _, err := n.Claim(t.Context(), "release", "a", enginetest.Who("ann"))
	enginetest.WantKind(t, err, assign.NotAvailable)
	_, _, err = n.Give(t.Context(), "release", "a", assign.Reassignment{User: "ann"})
	enginetest.WantKind(t, err, assign.NotAvailable)
	w := n.Take(t, "release", "bob")
	_, err = n.Reassign(t.Context(), w.ID, assign.Reassignment{User: "ann"}, "boss")
	enginetest.WantKind(t, err, assign.NotAvailable)
	n.Let(t, held["keep"], assign.Disposition{Outcome: "complete"})
	if away, err := n.Away(t.Context(), "ann"); err != nil || away == nil || away.ID != a.ID || !away.Until.Equal(until) {
		t.Errorf("away: %+v, %v", away, err)
	}
	for range 2 { // the second time nothing changes
		if a, err = manage.EndAbsence(t.Context(), n.Engine, a.ID, "ann", false); err != nil || a.EndedAt == nil || a.EndedBy == nil || *a.EndedBy != "ann" {
			t.Fatalf("ended: %+v, %v", a, err)
		}
	}
	n.PushKeys(t, "release", "b")
	n.Take(t, "release", "ann")
	n.PushKeys(t, "empty", "c")
	if r := n.EndedRequest(t, other.ID); r.State != assign.Assigned {
		t.Errorf("the other's request: %s", r.State)
	}
}

// A substitute gets what the rules let them have. The rest goes back, also where the substitute is away.
func TestSubstitute(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := enginetest.Start(t, url, enginetest.Options{})
	db := enginetest.Pool(t, url)
	one := 1
	enginetest.NewInbox(t, n, "other", nil)
	for name, change := range map[string]func(*assign.Settings){
		"eyes":  func(s *assign.Settings) { s.ConflictsWith = []string{"other"} },
		"group": func(s *assign.Settings) { s.Groups = []string{"desk"} },
		"limit": func(s *assign.Settings) { s.MaxOpen = &one },
		"two":   func(s *assign.Settings) { s.Slots = 2 },
		"free":  nil,
	} {
		enginetest.NewInbox(t, n, name, func(s *assign.Settings) {
			if s.OnAway = assign.PassAway; change != nil {
				change(s)
			}
		})
		n.PushKeys(t, name, "a", "b")
	}
	n.PushKeys(t, "other", "a")
	n.Take(t, "other", "bob") // four eyes: he holds a elsewhere
	enginetest.Execute(t, db, seen, "bob", []string{})
	n.Take(t, "limit", "bob")
	n.Take(t, "two", "bob")
	held := map[string]assign.Work{}
	for _, task := range []string{"eyes", "limit", "two", "free"} {
		held[task] = n.Take(t, task, "ann")
	}
	r, err := n.GetWork(t.Context(), "group", assign.Click{Holder: assign.Holder{User: "ann"}, Count: 1, Groups: []string{"desk"}})
	if err != nil || len(r.Work) != 1 {
		t.Fatalf("%+v, %v", r, err)
	}
	held["group"] = r.Work[0]
	enginetest.Execute(t, db, seen, "bob", []string{})
	enter(t, n, "ann", "boss", assign.AbsenceWish{Substitute: new("bob")})
	for _, task := range []string{"eyes", "group", "limit", "two"} {
		wantWork(t, n, held[task], assign.WorkReturned, "boss")
	}
	wantWork(t, n, held["free"], assign.WorkReassigned, "boss")
	wantHolder(t, n, "free", "a", "bob")
	// No chains: his own substitute is not asked for what he would have got, though she gets what he held.
	enginetest.Execute(t, db, seen, "cyd", []string{})
	enter(t, n, "bob", "boss", assign.AbsenceWish{Substitute: new("cyd")})
	wantHolder(t, n, "free", "a", "cyd")
	late := n.Take(t, "free", "eve")
	enter(t, n, "eve", "boss", assign.AbsenceWish{Substitute: new("bob")})
	wantWork(t, n, late, assign.WorkReturned, "boss")
}

// Work of one task goes to two substitutes while a round of another task gives them seats. They get their seats in the order of rounds, so
// the two don't deadlock; and if the other round takes a seat first, the substitute gets the next one.
func TestSubstitutesBesideARound(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := enginetest.Start(t, url, enginetest.Options{})
	db := enginetest.Pool(t, url)
	enginetest.NewInbox(t, n, "task", onAway(assign.PassAway))
	n.PushKeys(t, "task", "a", "b")
	first, second := n.Take(t, "task", "gus"), n.Take(t, "task", "hal")
	for _, substitute := range []string{"zoe", "ann"} {
		enginetest.Execute(t, db, seen, substitute, []string{})
	}
	enginetest.Execute(t, db, `insert into getwork.limits (version, created_by, everybody) values (1, 'boss', 2)`)
	round, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = round.Rollback(context.Background()) }()
	const give = `insert into getwork.work (task_id, item, user_name, seat) values (0, $1, $1, 1)`
	if _, err := round.Exec(t.Context(), give, "ann"); err != nil {
		t.Fatal(err)
	}
	enginetest.Execute(t, db, `
insert into getwork.absence (user_name, from_at, substitute, created_by)
values ('gus', clock_timestamp(), 'zoe', 'boss'), ('hal', clock_timestamp(), 'ann', 'boss')`)
	released := make(chan error, 1)
	go func() { released <- n.ReleaseAway(t.Context(), "") }()
	enginetest.Await(t, "the release waits for ann's seat", func() bool { return schematest.LockWaits(t, db) > 0 })
	if _, err := round.Exec(t.Context(), give, "zoe"); err != nil {
		t.Fatal(err)
	}
	if err := round.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-released; err != nil {
		t.Fatal(err)
	}
	for _, w := range []assign.Work{first, second} {
		wantWork(t, n, w, assign.WorkReassigned, "boss")
	}
	wantHolder(t, n, "task", "a", "zoe")
	wantHolder(t, n, "task", "b", "ann")
}

// Of several absences the one that was entered last has the substitute, and their user is back when all are over.
func TestAbsencesOverlap(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := enginetest.Start(t, url, enginetest.Options{})
	db := enginetest.Pool(t, url)
	enginetest.NewInbox(t, n, "inbox", onAway("to"))
	n.PushKeys(t, "inbox", "a")
	enginetest.Execute(t, db, seen, "bob", []string{})
	enginetest.Execute(t, db, seen, "cyd", []string{})
	first := enter(t, n, "ann", "ann", assign.AbsenceWish{Substitute: new("bob"), Until: new(time.Now().Add(time.Hour))})
	second := enter(t, n, "ann", "boss", assign.AbsenceWish{Substitute: new("cyd")})
	enginetest.Execute(t, db, enginetest.HeldRow, 1, "a", "ann", 1, nil) // as if a round had given it beside them
	if err := n.ReleaseAway(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	wantHolder(t, n, "inbox", "a", "cyd")
	for i, a := range []assign.Absence{second, first} {
		if r := n.Click(t, "inbox", "ann", 1); enginetest.Why(r) != assign.Away {
			t.Errorf("after %d ended: %s %v", i, r.State, enginetest.Why(r))
		}
		if _, err := manage.EndAbsence(t.Context(), n.Engine, a.ID, "ann", false); err != nil {
			t.Fatal(err)
		}
	}
	if r := n.Click(t, "inbox", "ann", 1); enginetest.Why(r) == assign.Away {
		t.Error("she is not back")
	}
}

// gate holds the first transaction that comes to a step.
type gate struct {
	at            engine.Step
	once          sync.Once
	reached, open chan struct{}
}

func newGate(at engine.Step) *gate {
	return &gate{at: at, reached: make(chan struct{}), open: make(chan struct{})}
}

func (g *gate) hold(ctx context.Context, step engine.Step) {
	if step == g.at {
		g.once.Do(func() {
			close(g.reached)
			select {
			case <-g.open:
			case <-ctx.Done():
			}
		})
	}
}

// A click has the assign lock, and has read that nobody is away, when the absence begins, and commits after. It was right; its work is
// treated like what was held before, by whichever node looks next.
func TestClickBesideAnAbsence(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	g := newGate(engine.StepRead)
	n := enginetest.Start(t, url, enginetest.Options{Steps: g.hold})
	other := enginetest.Start(t, url, enginetest.Options{})
	enginetest.NewInbox(t, other, "inbox", onAway("release"))
	other.PushKeys(t, "inbox", "a")
	clicked := make(chan assign.Request, 1)
	go func() { clicked <- n.Click(t, "inbox", "ann", 1) }()
	<-g.reached
	enter(t, other, "ann", "boss", assign.AbsenceWish{})
	close(g.open)
	r := <-clicked
	if len(r.Work) != 1 {
		t.Fatalf("the click was answered %s %v", r.State, enginetest.Why(r))
	}
	wantWork(t, other, r.Work[0], "held", "")
	enginetest.Start(t, url, enginetest.Options{Look: 50 * time.Millisecond})
	enginetest.Await(t, "it is returned", func() bool {
		w, err := other.Work(t.Context(), r.Work[0].ID)
		return err == nil && w.State == assign.WorkReturned
	})
	if r := n.Click(t, "inbox", "ann", 1); enginetest.Why(r) != assign.Away {
		t.Errorf("the next click: %s %v", r.State, enginetest.Why(r))
	}
}

// A round has locked her request when the absence is entered, which waits for the round. What that gave her is released.
func TestRoundBesideAnAbsence(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	g := newGate(engine.StepRead)
	n := enginetest.Start(t, url, enginetest.Options{Steps: g.hold})
	other := enginetest.Start(t, url, enginetest.Options{})
	db := enginetest.Pool(t, url)
	enginetest.NewTask(t, other, "query", enginetest.Numbers, onAway("release"))
	clicked := make(chan assign.Request, 1)
	go func() { clicked <- n.Click(t, "query", "ann", 1) }()
	<-g.reached
	r := <-clicked
	entered := make(chan error, 1)
	go func() {
		_, err := manage.EnterAbsence(t.Context(), other.Engine, "ann", assign.AbsenceWish{}, "ann")
		entered <- err
	}()
	enginetest.WantWaiting(t, db, "%reason = 'away'%")
	close(g.open)
	if err := <-entered; err != nil {
		t.Fatal(err)
	}
	if r = other.EndedRequest(t, r.ID); len(r.Work) != 1 {
		t.Fatalf("the round answered %s %v", r.State, enginetest.Why(r))
	}
	wantWork(t, other, r.Work[0], assign.WorkReturned, "ann")
}

// A node dies after the absence is in force and before it did what follows. Another finds each step by its condition. So it does with one
// that begins by itself, and with its end.
func TestAbsenceIsTreatedByAnyNode(t *testing.T) {
	t.Parallel()
	for name, from := range map[string]string{"left by a dead node": `clock_timestamp()`, "begins by itself": `clock_timestamp() + interval '1 second'`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := schematest.URL(t)
			n := enginetest.Start(t, url, enginetest.Options{})
			db := enginetest.Pool(t, url)
			enginetest.NewInbox(t, n, "inbox", onAway("release"))
			enginetest.NewInbox(t, n, "empty", nil)
			n.PushKeys(t, "inbox", "a")
			held := n.Take(t, "inbox", "ann")
			waits := n.Linger(t, "empty", "ann", 1)
			enginetest.Execute(t, db, `insert into getwork.absence (user_name, from_at, until_at, created_by) values ('ann', `+from+`, clock_timestamp() + interval '3 seconds', 'boss')`)
			enginetest.Start(t, url, enginetest.Options{Look: 500 * time.Millisecond})
			if r := n.EndedRequest(t, waits.ID); enginetest.Why(r) != assign.Away {
				t.Errorf("what she waited for ended as %s %v", r.State, enginetest.Why(r))
			}
			enginetest.Await(t, "it is returned", func() bool {
				w, err := n.Work(t.Context(), held.ID)
				return err == nil && w.State == assign.WorkReturned && *w.ClosedBy == "boss"
			})
			if early := enginetest.Query[bool](t, db, `select exists (select from getwork.work_requested r, getwork.absence a where r.id = $1 and r.completed_at < a.from_at)`, waits.ID); early {
				t.Error("it ended before the absence began")
			}
			enginetest.Await(t, "it is over", func() bool {
				return enginetest.Query[bool](t, db, `select ended_at is not distinct from until_at and ended_by is null from getwork.absence`)
			})
			n.Take(t, "inbox", "ann")
		})
	}
}

// Whoever has a live channel hears of absences that others enter and end.
func TestAbsenceIsTold(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n, other := enginetest.Start(t, url, enginetest.Options{}), enginetest.Start(t, url, enginetest.Options{})
	told := make(chan assign.Absence, 16)
	_, cancel := n.Feed.Subscribe(assign.Holder{User: "ann", Instance: "a"}, func(events ...assign.Event) {
		for _, e := range events {
			if a, ok := e.Body.(assign.Absence); ok {
				told <- a
			}
		}
	})
	defer cancel()
	a := enter(t, other, "ann", "boss", assign.AbsenceWish{})
	if heard := <-told; cmp.Diff(a, heard) != "" {
		t.Errorf("told %+v, want %+v", heard, a)
	}
	p, err := n.Pipeline(t.Context(), assign.Holder{User: "ann", Instance: "b"})
	if err != nil || len(p.Absences) != 1 || p.Absences[0].ID != a.ID {
		t.Errorf("the pipeline has %+v, %v", p.Absences, err)
	}
	if _, err := manage.EndAbsence(t.Context(), other.Engine, a.ID, "boss", true); err != nil {
		t.Fatal(err)
	}
	if heard := <-told; heard.EndedAt == nil || *heard.EndedBy != "boss" {
		t.Errorf("told %+v", heard)
	}
}

// The same import again changes nothing. Another one replaces what came from that list, and only that; what its user has ended stays
// ended.
func TestImportAbsences(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := enginetest.Start(t, url, enginetest.Options{})
	db := enginetest.Pool(t, url)
	enginetest.NewInbox(t, n, "inbox", nil)
	enginetest.Execute(t, db, seen, "bob", []string{})
	day := time.Now().Add(24 * time.Hour)
	at := func(days int) *time.Time { return new(day.AddDate(0, 0, days)) }
	byHand := enter(t, n, "ann", "ann", assign.AbsenceWish{From: at(1)})
	wish := func(from, until int, substitute *string) assign.AbsenceWish {
		return assign.AbsenceWish{From: at(from), Until: at(until), Substitute: substitute}
	}
	load := func(all ...assign.AbsenceWish) (ids []int64) {
		t.Helper()
		absences, err := manage.ImportAbsences(t.Context(), n.Engine, "ann", "hr", all, "boss")
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range absences {
			if a.User != "ann" || a.Source != "hr" || a.CreatedBy != "boss" {
				t.Errorf("imported %+v", a)
			}
			ids = append(ids, a.ID)
		}
		return ids
	}
	past := assign.AbsenceWish{From: at(-9), Until: at(-8)}
	first := load(past, wish(0, 2, nil), wish(1, 3, new("bob")), wish(0, 2, nil))
	if len(first) != 2 {
		t.Fatalf("imported %v", first)
	}
	if again := load(wish(1, 3, new("bob")), wish(0, 2, nil)); cmp.Diff(first, again) != "" {
		t.Errorf("imported %v, and again %v", first, again)
	}
	if _, err := manage.EndAbsence(t.Context(), n.Engine, first[0], "ann", false); err != nil {
		t.Fatal(err)
	}
	second := load(wish(0, 2, nil), wish(1, 3, new("bob")), wish(5, 6, nil))
	if len(second) != 2 || second[0] != first[1] {
		t.Errorf("first %v, then %v", first, second)
	}
	if last := load(); len(last) != 0 {
		t.Errorf("left: %v", last)
	}
	if third := load(wish(1, 3, new("bob"))); len(third) != 1 || third[0] == first[1] {
		t.Errorf("imported once more: %v", third)
	}
	all, err := n.Absences(t.Context(), "ann", 0, 10)
	if err != nil || len(all) != 2 || all[0].ID != byHand.ID {
		t.Errorf("all: %+v, %v", all, err)
	}
	// An absence that is in force begins with the import.
	n.PushKeys(t, "inbox", "a")
	if _, err := manage.ImportAbsences(t.Context(), n.Engine, "eve", "hr", []assign.AbsenceWish{{From: at(-2)}}, "boss"); err != nil {
		t.Fatal(err)
	}
	if r := n.Click(t, "inbox", "eve", 1); enginetest.Why(r) != assign.Away {
		t.Errorf("eve clicks: %s %v", r.State, enginetest.Why(r))
	}
}

// Nothing is entered that can't be, and an import is taken whole or not at all.
func TestAbsenceIsRefused(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := enginetest.Start(t, url, enginetest.Options{})
	db := enginetest.Pool(t, url)
	enginetest.NewInbox(t, n, "inbox", nil)
	enginetest.Execute(t, db, `insert into getwork.principal (iss, sub, name, name_key, kind, role, blocked_at) values ('i', 's', 'zed', 'zed', 'person', 'worker', clock_timestamp())`)
	now := time.Now()
	for name, w := range map[string]assign.AbsenceWish{
		"ends before it begins":   {From: new(now.Add(time.Hour)), Until: new(now)},
		"ends when it begins":     {From: new(now.Add(time.Hour)), Until: new(now.Add(time.Hour))},
		"is over":                 {From: new(now.Add(-2 * time.Hour)), Until: new(now.Add(-time.Hour))},
		"ends before now":         {Until: new(now.Add(-time.Hour))},
		"by oneself":              {Substitute: new("ann")},
		"by nobody known":         {Substitute: new("nobody")},
		"by somebody blocked":     {Substitute: new("zed")},
		"by what is not a name":   {Substitute: new("")},
		"by what is not a name 2": {Substitute: new("a\x00b")},
	} {
		_, err := manage.EnterAbsence(t.Context(), n.Engine, "ann", w, "ann")
		if !assign.IsRefusal(err, assign.Invalid) {
			t.Errorf("an absence that %s: %v", name, err)
		}
		if w.From == nil || name == "is over" {
			continue
		}
		_, err = manage.ImportAbsences(t.Context(), n.Engine, "ann", "hr", []assign.AbsenceWish{{From: new(now)}, w}, "boss")
		if !assign.IsRefusal(err, assign.Invalid) {
			t.Errorf("an imported absence that %s: %v", name, err)
		}
	}
	for _, source := range []string{"", "a b", "ü"} {
		_, err := manage.ImportAbsences(t.Context(), n.Engine, "ann", source, nil, "boss")
		enginetest.WantKind(t, err, assign.Invalid)
	}
	_, err := manage.ImportAbsences(t.Context(), n.Engine, "ann", "hr", []assign.AbsenceWish{{}}, "boss")
	enginetest.WantKind(t, err, assign.Invalid)
	_, err = manage.ImportAbsences(t.Context(), n.Engine, "ann", "hr", make([]assign.AbsenceWish, 1001), "boss")
	enginetest.WantKind(t, err, assign.Invalid)
	_, err = manage.EnterAbsence(t.Context(), n.Engine, " ", assign.AbsenceWish{}, "boss")
	enginetest.WantKind(t, err, assign.Invalid)
	if rows := enginetest.Query[int](t, db, `select count(*) from getwork.absence`); rows != 0 {
		t.Errorf("%d absences", rows)
	}
	a := enter(t, n, "ann", "ann", assign.AbsenceWish{})
	_, err = manage.EndAbsence(t.Context(), n.Engine, a.ID, "bob", false)
	enginetest.WantKind(t, err, assign.NotFound)
	_, err = manage.EndAbsence(t.Context(), n.Engine, a.ID+1, "boss", true)
	enginetest.WantKind(t, err, assign.NotFound)
}
