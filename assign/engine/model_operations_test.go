package engine

import (
	"context"
	"math"
	"path"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"getwork/assign"
)

// Each operation is done by the engine and by the model, and the two answers are compared. After it [modelWorld.check]
// compares the rows.

func (w *modelWorld) who() assign.Who {
	name := pick(w.T, "who", "ann", "bob", "ann", "bob", "bot1", "bot2", "cleo", "boss")
	return w.people[name]
}

func (w *modelWorld) newItem() modelItem {
	return modelItem{key: pick(w.T, "key", modelKeys...), prio: pick(w.T, "priority", 0, 0, 1), places: pick(w.T, "places", 0, 0, 0, 1, 2, 3), exclusive: pick(w.T, "group", "", "", "", "g")}
}

func (w *modelWorld) doPush() {
	t := w.tasks[0]
	var items []modelItem
	var pushed []assign.NewItem
	wrong := false
	for range rapid.IntRange(1, 5).Draw(w.T, "items") {
		it := w.newItem()
		n := assign.NewItem{Item: it.key, Priority: int32(it.prio), Slots: modelLimit(it.places), Exclusive: &it.exclusive}
		if pick(w.T, "later", false, false, false, true) {
			it.notBefore = t.now + 1
			at := time.Now().Add(time.Hour)
			n.NotBefore = &at
		}
		wrong = wrong || it.places > 1 && it.exclusive != "" // without a number of its own it has one place
		items, pushed = append(items, it), append(pushed, n)
	}
	p, err := w.e.Push(w.Context(), t.name, pushed, assign.Who{Anything: true, Holder: assign.Holder{User: "boss"}})
	if wrong { // all or nothing
		w.wantRefusal(err, assign.Invalid)
		return
	}
	w.must(err)
	accepted := w.push(t, items)
	if p.Accepted != accepted || p.Duplicates != len(items)-accepted {
		w.differ("the answer differs", "push answered %+v, the model says %d accepted of %d", p, accepted, len(items))
	}
}

// doRows changes the rows that a query finds.
func (w *modelWorld) doRows() {
	t := w.tasks[rapid.IntRange(1, 2).Draw(w.T, "task")]
	it := w.newItem()
	t.items = slices.DeleteFunc(t.items, func(o *modelItem) bool { return o.key == it.key })
	_, err := w.db.Exec(w.Context(), `delete from model_rows where task = $1 and item = $2`, t.name, it.key)
	w.must(err)
	if pick(w.T, "matches", true, true, true, false) {
		t.items = append(t.items, &it)
		_, err := w.db.Exec(w.Context(), `insert into model_rows (task, item, priority, slots, exclusive) values ($1, $2, $3, nullif($4, 0), nullif($5, ''))`,
			t.name, it.key, it.prio, it.places, it.exclusive)
		w.must(err)
	}
}

func (w *modelWorld) doClick() {
	t, who := w.task(), w.who()
	count := pick(w.T, "count", 1, 1, 2, 3, 5, 6)
	linger := pick(w.T, "linger", 0, 0, 1.2, 12.2) // over before anything else happens in that hour
	if len(w.rivals(t)) > 0 {
		linger = 0
	}
	lease := pick(w.T, "lease", 0, 0, 0.5)
	c := assign.Click{Holder: who.Holder, Groups: who.Groups, Anything: who.Anything, Count: count, Linger: modelHours(linger),
		Credential: who.Credential}
	if lease > 0 {
		d := modelHours(lease)
		c.Lease = &d
	}
	r, err := w.e.GetWork(w.Context(), t.name, c)
	if count > 5 && modelMember(t, who.Groups, who.Anything) {
		w.wantRefusal(err, assign.Invalid)
		return
	}
	waits := !t.inbox && !t.fresh() && !t.paused
	m := w.click(t, who, count, linger, lease)
	if m == nil {
		w.wantRefusal(err, assign.NotFound)
		return
	}
	w.must(err)
	if t.inbox && linger == 0 && r.State == assign.Pending && r.LingerUntil == nil {
		w.differ("the answer differs", "a click on an inbox that does not linger was answered %+v", r)
	}
	w.e.Wait(w.Context())
	if waits || r.State == assign.Pending {
		r, err = w.e.Records.Request(w.Context(), r.ID, who.Holder, false)
		w.must(err)
	}
	w.compareAnswer(t, m, r)
}

// doNext asks for the next item of the inbox, as if there were more tasks. What it gets is as for a click on it; if that is nothing, the
// request is none of the task's.
func (w *modelWorld) doNext() {
	t, who := w.tasks[0], w.who()
	if slices.ContainsFunc(t.requests, func(m *modelRequest) bool { return m.state == assign.Pending }) {
		w.Skip("somebody waits")
	}
	count := pick(w.T, "count", 1, 1, 2, 3, 5)
	r, err := w.e.GetNext(w.Context(), assign.Click{Holder: who.Holder, Groups: who.Groups, Anything: who.Anything, Count: count,
		Credential: who.Credential, Tasks: []string{t.name}})
	m := w.click(t, who, count, 0, 0)
	if m == nil {
		w.wantRefusal(err, assign.NotFound)
		return
	}
	w.must(err)
	w.e.Wait(w.Context())
	if m.assigned == 0 {
		t.requests = slices.DeleteFunc(t.requests, func(o *modelRequest) bool { return o == m })
		if r.State != assign.None || r.Task != "*" {
			w.differ("the answer differs", "a request for what comes next ended as %s of %s, the model says with nothing", r.State, r.Task)
		}
		return
	}
	w.compareAnswer(t, m, r)
}

// compareAnswer compares a request as its holder sees it.
func (w *modelWorld) compareAnswer(t *modelTask, m *modelRequest, r assign.Request) {
	m.id = r.ID
	var got, want []string
	for _, x := range r.Work {
		got = append(got, x.Item)
	}
	for _, x := range t.works {
		if x.request == m {
			want = append(want, x.item)
		}
	}
	reason := assign.Reason("")
	if r.Reason != nil {
		reason = *r.Reason
	}
	if r.State != m.state || reason != m.reason || r.Wanted != m.wanted || r.Requested != m.requested || r.Assigned != m.assigned || !slices.Equal(got, want) {
		w.differ("the answer differs", "task %s: answered %s\n  with %v; the model says %s\n  with %v", t.name,
			modelRequestLine(r.ID, r.Holder(), r.Wanted, r.Requested, r.Assigned, r.State, reason), got,
			modelRequestLine(m.id, m.holder, m.wanted, m.requested, m.assigned, m.state, m.reason), want)
	}
}

// work chooses work, mostly held work.
func (w *modelWorld) work() (*modelTask, *modelWork) {
	t := w.task()
	works := t.works
	if pick(w.T, "held", true, true, true, false) {
		works = slices.DeleteFunc(slices.Clone(works), func(x *modelWork) bool { return x.state != "held" })
	}
	if len(works) == 0 {
		w.Skip("no work")
	}
	return t, works[rapid.IntRange(0, len(works)-1).Draw(w.T, "work")]
}

func (w *modelWorld) doDispose() {
	t, x := w.work()
	w.disposeAs(t, x, pick(w.T, "by", "holder", "holder", "holder", "holder", "manager", "stranger"))
}

// disposition also returns for how many hours it puts the item off, and whether it keeps it from its holder.
func (w *modelWorld) disposition() (d assign.Disposition, after float64, others bool) {
	d.Outcome = pick(w.T, "outcome", "complete", "return", "fail", "never", "return", "fail")
	if d.Outcome == "return" {
		after = pick(w.T, "after", 0.0, 0, 1, 2)
		others = pick(w.T, "others", false, true)
		a, to := modelHours(after), "all"
		if others {
			to = "others"
		}
		d.After, d.To = &a, &to
	}
	return d, after, others
}

func (w *modelWorld) disposeAs(t *modelTask, x *modelWork, as string) {
	d, after, others := w.disposition()
	by := x.holder
	if as != "holder" {
		by = assign.Holder{User: "mallory"}
	}
	held := x.state == "held"
	got, err := w.e.Dispose(w.Context(), x.id, d, by, as == "manager")
	if as == "stranger" {
		w.wantRefusal(err, assign.NotFound)
		return
	}
	w.wantRefusal(err, w.dispose(t, x, d.Outcome, after, others))
	if err != nil || !held {
		return
	}
	w.backOff(t, x, got)
	w.freed(t)
}

// backOff reads for how long a failed item waits: at random up to a fifth longer than its back-off.
func (w *modelWorld) backOff(t *modelTask, x *modelWork, got assign.Work) {
	if x.state != "failed" {
		return
	}
	wait, least := got.AvailableAt.Sub(*got.ClosedAt).Hours(), modelBackoff*float64(int(1)<<(x.attempt-1))
	if wait < least-0.001 || wait > least*1.2+0.001 {
		w.differ("the back-off differs", "after attempt %d it waits %v hours", x.attempt, wait)
	}
	x.availableAt = t.now + wait
}

// part is work that a call for several names.
type part struct {
	*modelWork
	task *modelTask // nil: there is no such work
}

// several chooses work of all tasks for one call, mostly what the caller holds. Some is somebody else's, some is closed, and some
// was never there.
func (w *modelWorld) several() (parts []part, ids []int64, by assign.Holder) {
	by = w.who().Holder
	all := []part{{modelWork: &modelWork{id: math.MaxInt64}}}
	for _, t := range w.tasks {
		for _, x := range t.works {
			all = append(all, part{x, t})
			if x.state == "held" && x.holder == by {
				all = slices.Insert(all, 0, slices.Repeat(all[len(all)-1:], 5)...)
			}
		}
	}
	parts = rapid.SliceOfNDistinct(rapid.SampledFrom(all), 1, 6, func(p part) int64 { return p.id }).Draw(w.T, "works")
	for _, p := range parts {
		ids = append(ids, p.id)
	}
	return parts, ids, by
}

// wantResult compares one result of a call for several with what a single call would answer.
func (w *modelWorld) wantResult(r assign.Result, id int64, kinds ...assign.Kind) {
	var err error
	if r.Problem != nil {
		err = &assign.Refusal{Kind: assign.Kind(path.Base(r.Problem.Type))}
	}
	if w.wantRefusal(err, kinds...); r.ID != id || (err == nil) != (r.Work != nil && r.Work.ID == id && r.Status == 200) {
		w.differ("the answer differs", "work %d: %+v", id, r)
	}
}

// doDisposeMany may repeat its call, which changes nothing.
func (w *modelWorld) doDisposeMany() {
	parts, ids, by := w.several()
	asManager := pick(w.T, "as a manager", false, false, false, true)
	all := make([]assign.Disposal, len(ids))
	after, others := make([]float64, len(ids)), make([]bool, len(ids))
	for i, id := range ids {
		all[i].ID = id
		all[i].Disposition, after[i], others[i] = w.disposition()
	}
	for range pick(w.T, "times", 1, 2) {
		results, err := w.e.DisposeMany(w.Context(), all, by, asManager, false)
		w.must(err)
		var freed []*modelTask
		for i, p := range parts {
			if p.task == nil || !asManager && p.holder != by {
				w.wantResult(results[i], ids[i], assign.NotFound)
				continue
			}
			held := p.state == "held"
			w.wantResult(results[i], ids[i], w.dispose(p.task, p.modelWork, all[i].Outcome, after[i], others[i]))
			if held {
				w.backOff(p.task, p.modelWork, *results[i].Work)
				freed = append(freed, p.task)
			}
		}
		for _, t := range w.tasks {
			if slices.Contains(freed, t) {
				w.freed(t)
			}
		}
	}
}

func (w *modelWorld) doExtendMany() {
	parts, ids, by := w.several()
	results, err := w.e.ExtendMany(w.Context(), ids, by)
	w.must(err)
	for i, p := range parts {
		switch {
		case p.task == nil || p.holder != by:
			w.wantResult(results[i], ids[i], assign.NotFound)
		case p.state != "held":
			w.wantResult(results[i], ids[i], assign.LeaseLost)
		default:
			w.wantResult(results[i], ids[i])
			p.until = p.task.now + p.lease
		}
	}
}

func (w *modelWorld) doExtend() {
	t, x := w.work()
	by := x.holder
	if pick(w.T, "a stranger", false, false, true) {
		by = assign.Holder{User: "mallory"}
	}
	_, err := w.e.Extend(w.Context(), x.id, by)
	switch {
	case by != x.holder:
		w.wantRefusal(err, assign.NotFound)
	case x.state != "held":
		w.wantRefusal(err, assign.LeaseLost)
	default:
		w.must(err)
		x.until = t.now + x.lease
	}
}

// doExpire lets a lease run out. Calls of its holder before the sweep are refused.
func (w *modelWorld) doExpire() {
	t, x := w.work()
	if x.state != "held" || x.lease == 0 {
		w.Skip("no lease")
	}
	_, err := w.db.Exec(w.Context(), `update getwork.work set lease_expires_at = clock_timestamp() where id = $1`, x.id)
	w.must(err)
	after := assign.Duration(0)
	for _, late := range []assign.Disposition{{Outcome: "complete"}, {Outcome: "return", After: &after}} {
		_, err = w.e.Dispose(w.Context(), x.id, late, x.holder, false)
		w.wantRefusal(err, assign.LeaseLost)
	}
	_, err = w.e.Extend(w.Context(), x.id, x.holder)
	w.wantRefusal(err, assign.LeaseLost)
	results, err := w.e.DisposeMany(w.Context(), []assign.Disposal{{ID: -1, Disposition: assign.Disposition{Outcome: "never"}},
		{ID: x.id, Disposition: assign.Disposition{Outcome: "complete"}}}, x.holder, false, false)
	w.must(err)
	w.wantResult(results[1], x.id, assign.LeaseLost)
	results, err = w.e.ExtendMany(w.Context(), []int64{-1, x.id}, x.holder)
	w.must(err)
	w.wantResult(results[1], x.id, assign.LeaseLost)
	_, err = w.e.sweep(w.Context())
	w.must(err)
	w.expire(t, x)
	w.freed(t)
}

func (w *modelWorld) doClaim() {
	t, who := w.task(), w.who()
	item := pick(w.T, "key", modelKeys...)
	got, claimed, err := w.e.Claim(w.Context(), t.name, item, who)
	his, against := w.claim(t, item, who.Holder, who.Groups, who.Anything)
	w.wantRefusal(err, against...)
	if err == nil && (claimed == his || got.Item != item || got.Holder() != who.Holder || got.State != "held") {
		w.differ("the answer differs", "claim answered %+v, claimed %t; held before: %t", got, claimed, his)
	}
}

func (w *modelWorld) doReassign() {
	t, x := w.work()
	to, force := pick(w.T, "to", "ann", "bob", "cleo", "bot", "newcomer"), pick(w.T, "force", false, true)
	got, err := w.e.Reassign(w.Context(), x.id, assign.Reassignment{User: to, Force: force}, "boss")
	w.wantRefusal(err, w.reassign(t, x, to, w.known[to], force))
	if err == nil && (got.Item != x.item || got.Slot != x.slot || got.Holder() != assign.Holder{User: to} || got.State != "held") {
		w.differ("the answer differs", "reassign answered %+v", got)
	}
}

// doAway enters an absence, or ends one.
func (w *modelWorld) doAway() {
	if len(w.absences) > 0 && pick(w.T, "back", true, false) {
		i := rapid.IntRange(0, len(w.absences)-1).Draw(w.T, "absence")
		_, err := Above.EndAbsence(w.Context(), w.e, w.absences[i].id, "boss", true)
		w.must(err)
		w.absences = slices.Delete(w.absences, i, i+1)
		return
	}
	a := modelAbsence{user: pick(w.T, "user", "ann", "bob", "cleo", "bot"), substitute: pick(w.T, "substitute", "", "ann", "bob", "cleo", "bot")}
	var what assign.AbsenceWish
	if a.substitute != "" {
		what.Substitute = &a.substitute
	}
	got, err := Above.EnterAbsence(w.Context(), w.e, a.user, what, "boss")
	if a.user == a.substitute {
		w.wantRefusal(err, assign.Invalid)
		return
	}
	w.must(err)
	a.id = got.ID
	w.away(a, w.known[a.substitute])
}

// doDryRun counts what would be released.
func (w *modelWorld) doDryRun() {
	what := assign.Release{User: pick(w.T, "user", "", "ann", "bob", "bot"), DryRun: true}
	if what.User == "" || pick(w.T, "of a task", true, false) {
		what.Task = w.task().name
	}
	set := w.heldBy(what)
	got, err := w.e.Release(w.Context(), what, "boss")
	w.must(err)
	if waiting := len(w.waitingOf(what)); got.Count != len(set) || got.Requests != waiting {
		w.differ("the answer differs", "dry run counts %d and %d, the model %d and %d", got.Count, got.Requests, len(set), waiting)
	}
	what.DryRun, what.Token = false, got.Token
	w.released, w.set = what, set
}

func (w *modelWorld) heldBy(what assign.Release) (ids []int64) {
	for _, t := range w.tasks {
		for _, x := range t.works {
			if x.state == "held" && (what.User == "" || x.holder.User == what.User) && (what.Task == "" || what.Task == t.name) {
				ids = append(ids, x.id)
			}
		}
	}
	slices.Sort(ids)
	return ids
}

// waitingOf returns what a release cancels.
func (w *modelWorld) waitingOf(what assign.Release) (requests []*modelRequest) {
	for _, t := range w.tasks {
		for _, r := range t.requests {
			if r.state == assign.Pending && r.holder.User == what.User && (what.Task == "" || what.Task == t.name) {
				requests = append(requests, r)
			}
		}
	}
	return requests
}

// doRelease names the token of the last dry run, whatever has changed since.
func (w *modelWorld) doRelease() {
	if w.released.Token == "" {
		w.Skip("no dry run")
	}
	ids := w.heldBy(w.released)
	var stirred []*modelTask
	for _, t := range w.tasks {
		if slices.ContainsFunc(t.works, func(x *modelWork) bool { return slices.Contains(ids, x.id) }) {
			stirred = append(stirred, t)
		}
	}
	got, err := w.e.Release(w.Context(), w.released, "boss")
	if !slices.Equal(ids, w.set) {
		w.wantRefusal(err, assign.ChangedSet)
		return
	}
	w.must(err)
	waiting := w.waitingOf(w.released)
	if got.Count != len(ids) || got.Requests != len(waiting) {
		w.differ("the answer differs", "released %d and %d, the model %d and %d", got.Count, got.Requests, len(ids), len(waiting))
	}
	for _, r := range waiting {
		r.end(assign.Cancelled, 0, "")
	}
	for _, t := range stirred {
		for _, x := range t.works {
			if slices.Contains(ids, x.id) {
				w.close(t, x, "returned")
				x.availableAt = t.now
			}
		}
	}
	for _, t := range stirred {
		w.freed(t)
	}
}

func (w *modelWorld) doRedrive() {
	t := w.task()
	var items []string
	if pick(w.T, "named", true, false) {
		items = rapid.SliceOfNDistinct(rapid.SampledFrom(modelKeys), 1, 3, rapid.ID[string]).Draw(w.T, "items")
	}
	n, err := w.e.Redrive(w.Context(), t.name, items, "boss")
	w.must(err)
	if want := w.redrive(t, items); int(n) != want {
		w.differ("the answer differs", "redrive counts %d, the model %d", n, want)
	}
}

func (w *modelWorld) doCancel() {
	t := w.task()
	if len(t.requests) == 0 {
		w.Skip("no request")
	}
	requests := t.pending()
	if len(requests) == 0 || pick(w.T, "any", true, false, false) {
		requests = t.requests
	}
	r := requests[rapid.IntRange(0, len(requests)-1).Draw(w.T, "request")]
	by := r.holder
	if pick(w.T, "a stranger", false, false, true) {
		by = assign.Holder{User: "mallory"}
	}
	got, err := w.e.Cancel(w.Context(), r.id, by, false)
	switch {
	case by != r.holder:
		w.wantRefusal(err, assign.NotFound)
	case r.state == assign.Pending || r.state == assign.Cancelled:
		w.must(err)
		r.end(assign.Cancelled, 0, "")
		w.compareAnswer(t, r, got)
	default:
		w.wantRefusal(err, assign.NotPending)
	}
}

// logIn gives one of modelPeople a new session, with the role and groups that they click with: after an end the engine gives
// waiting requests the groups of their session. A session without groups kept users from tasks that the model gave them.
func (w *modelWorld) logIn(name string) {
	who, role := w.people[name], "worker"
	if who.Anything {
		role = "manager"
	}
	w.must(w.db.QueryRow(w.Context(), `
with new as (select count(*)::text as name from getwork.session)
insert into getwork.session (id, public_id, principal, role, groups, ends_at)
select sha256(convert_to(n.name, 'UTF8')), n.name, p.id, $2, coalesce($3::text[], '{}'), clock_timestamp() + interval '10 hours'
from new n, getwork.principal p where p.name = $1
returning 's:' || public_id`, who.Holder.User, role, who.Groups).Scan(&who.Credential))
	w.know(who)
	w.people[name] = who
}

// know writes to a user's principal what their log-in or refresh said, as package rights does.
func (w *modelWorld) know(who assign.Who) {
	_, err := w.db.Exec(w.Context(), `update getwork.principal set seen_at = clock_timestamp(), groups = coalesce($2::text[], '{}') where name = $1`, who.Holder.User, who.Groups)
	w.must(err)
	w.known[who.Holder.User] = who.Groups
}

// doEnd ends a session, whose user then logs in again. If the end does not see the requests, as if they committed beside it,
// the next check cancels them.
func (w *modelWorld) doEnd() {
	name := pick(w.T, "who", "ann", "bob", "bot1", "cleo", "boss")
	who := w.people[name]
	credential := who.Credential
	seen := pick(w.T, "seen", true, false)
	changes := 0
	w.must(w.e.transact(w.Context(), func(tx pgx.Tx) error {
		if _, err := tx.Exec(w.Context(), endSession, credential); err != nil || !seen {
			return err
		}
		ended, err := w.e.EndCredentials(w.Context(), tx, []string{credential})
		changes = len(ended)
		return err
	}))
	if !seen {
		_, err := w.e.GetWork(w.Context(), w.tasks[0].name, assign.Click{Holder: who.Holder, Groups: who.Groups, Anything: who.Anything, Count: 1, Credential: credential})
		if modelMember(w.tasks[0], who.Groups, who.Anything) {
			w.wantRefusal(err, assign.Unauthenticated)
		} else {
			w.wantRefusal(err, assign.NotFound)
		}
		w.must(w.e.CancelEnded(w.Context()))
	}
	if n := w.end(credential); seen && n != changes {
		w.differ("the answer differs", "the end cancelled %d, the model %d", changes, n)
	}
	w.logIn(name)
}

// doLogIn replaces a session: what waits under it moves to the new one at once, or when its user asks again.
func (w *modelWorld) doLogIn() {
	name := pick(w.T, "who", "ann", "bob", "bot1", "cleo", "boss")
	from := w.people[name].Credential
	w.logIn(name)
	who := w.people[name]
	if pick(w.T, "moves", true, false) {
		w.must(w.e.transact(w.Context(), func(tx pgx.Tx) error {
			return w.e.Rebind(w.Context(), tx, who.Holder.User, []string{from}, who.Credential, time.Time{})
		}))
		w.move(from, who.Credential)
	}
}

// doRegroup gives a session other groups. If the change does not see the requests, as if they committed beside it, the next
// check changes theirs.
func (w *modelWorld) doRegroup() {
	name := pick(w.T, "who", "ann", "bob", "bot1", "bot2", "cleo")
	who := w.people[name]
	who.Groups = pick(w.T, "groups", []string{}, []string{"desk"}, []string{"desk", "night"}, []string{"night"})
	seen := pick(w.T, "seen", true, false)
	changes := 0
	w.must(w.e.transact(w.Context(), func(tx pgx.Tx) error {
		_, err := tx.Exec(w.Context(), `update getwork.session set groups = $2 where 's:' || public_id = $1`, who.Credential, who.Groups)
		if err != nil || !seen {
			return err
		}
		changed, err := w.e.ChangeGroups(w.Context(), tx, []string{who.Credential}, who.Groups)
		changes = len(changed)
		return err
	}))
	if !seen {
		w.must(w.e.CancelEnded(w.Context()))
	}
	if n := w.regroup(who.Credential, who.Groups); seen && n != changes {
		w.differ("the answer differs", "the groups of %d requests changed, of %d in the model", changes, n)
	}
	w.know(who)
	w.people[name] = who
}

// doChange changes one setting of a task.
func (w *modelWorld) doChange() {
	t := w.task()
	what := pick(w.T, "what", "paused", "slots", "max_open", "groups", "conflicts_with", "nothing")
	changed := *t
	switch what {
	case "paused":
		changed.paused = !t.paused
	case "slots":
		changed.slots = pick(w.T, "slots", 1, 2, 3)
	case "max_open":
		changed.maxOpen = pick(w.T, "max_open", 0, 1, 2, 3)
	case "groups":
		changed.groups = pick(w.T, "groups", nil, []string{"desk"}, []string{"night", "day"})
	case "conflicts_with":
		changed.conflicts = nil
		for _, o := range w.tasks {
			if o != t && pick(w.T, "conflict", true, false) && (len(t.pending()) == 0 || len(o.pending()) == 0) {
				changed.conflicts = append(changed.conflicts, o)
			}
		}
	}
	version := t.version - pick(w.T, "stale", 0, 0, 0, 0, 1)
	got, err := w.e.UpdateTask(w.Context(), t.name, version, "boss", func(s *assign.Settings) error {
		s.Paused, s.Slots, s.MaxOpen, s.Groups, s.ConflictsWith = changed.paused, changed.slots, modelLimit(changed.maxOpen), changed.groups, nil
		for _, o := range changed.conflicts {
			s.ConflictsWith = append(s.ConflictsWith, o.name)
		}
		if s.Groups == nil {
			s.Groups = []string{}
		}
		return nil
	})
	if version != t.version {
		w.wantRefusal(err, assign.StaleVersion)
		return
	}
	if t.inbox && (changed.slots > 1) != (t.slots > 1) && slices.ContainsFunc(t.works, func(o *modelWork) bool { return o.state == "held" }) {
		w.wantRefusal(err, assign.InUse)
		return
	}
	w.must(err)
	if changed.slots != t.slots {
		changed.shelf = nil
	}
	changed.version = got.Version
	*t = changed
	for _, r := range t.pending() {
		r.lookAfter = nil
	}
	w.look(t, false)
}

// doLimit changes the limits over all tasks.
func (w *modelWorld) doLimit() {
	limit := func(what string) *int { return pick(w.T, what, nil, new(0), new(1), new(2), new(4)) }
	w.limit(assign.Limits{Everybody: limit("everybody"), People: map[string]*int{"ann": limit("ann"), "bot": limit("bot")}})
}

func (w *modelWorld) limit(l assign.Limits) {
	_, err := w.db.Exec(context.Background(), `insert into getwork.limits (version, created_by, everybody, people)
select coalesce(max(version), 0) + 1, 'boss', $1, nullif($2::jsonb, 'null') from getwork.limits`, l.Everybody, l.People)
	w.must(err)
	w.limits = l
}

const modelHour = `
with w as (
  update getwork.work set assigned_at = assigned_at - interval '1 hour', lease_expires_at = lease_expires_at - interval '1 hour', warn_at = warn_at - interval '1 hour',
    closed_at = closed_at - interval '1 hour', available_at = available_at - interval '1 hour'
  where task_id = $1
), r as (
  update getwork.work_requested set linger_until = linger_until - interval '1 hour', look_after = look_after - interval '1 hour',
    completed_at = completed_at - interval '1 hour', created_at = created_at - interval '1 hour'
  where task_id = $1
), u as (
  update getwork.run set started_at = started_at - interval '1 hour', finished_at = finished_at - interval '1 hour' where task_id = $1
), i as (
  update getwork.item set due_at = due_at - interval '1 hour', done_at = done_at - interval '1 hour' where task_id = $1
)
update getwork.task_state set fresh_until = fresh_until - interval '1 hour' where task_id = $1`

// doHour lets an hour pass, for one task after the other, so that what falls due in one is served before the next.
func (w *modelWorld) doHour() {
	for _, t := range w.tasks {
		_, err := w.db.Exec(w.Context(), modelHour, t.id)
		w.must(err)
		_, err = w.e.sweep(w.Context())
		w.must(err)
		w.e.Wait(w.Context())
		w.e.Wake(t.id)
		w.e.Wait(w.Context())
		w.hour(t)
	}
}

func (w *modelWorld) doRetain() {
	w.must(w.e.Retain(w.Context(), time.Microsecond))
	w.retain()
}
