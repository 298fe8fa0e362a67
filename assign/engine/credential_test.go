package engine

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"getwork/assign"
	"getwork/assign/pg"
	"getwork/assign/ranking"
	"getwork/notify"
	"getwork/schema/schematest"
)

// logIn makes a session of a user, and returns their credential.
func logIn(t testing.TB, db *pgxpool.Pool, user string) string {
	t.Helper()
	execute(t, db, `insert into getwork.principal (name, name_key, iss, sub, kind, role) values ($1, $1, 'bank', $1, 'person', 'worker') on conflict do nothing`, user)
	return query[string](t, db, `
with new as (select $1 || '-' || (select count(*) from getwork.session) as name)
insert into getwork.session (id, public_id, principal, role, ends_at)
select sha256(convert_to(n.name, 'UTF8')), n.name, p.id, 'worker', clock_timestamp() + interval '10 hours'
from new n, getwork.principal p where p.name = $1
returning 's:' || public_id`, user)
}

const endSession = `update getwork.session set ended_at = clock_timestamp(), ended_by = 'log-out' where 's:' || public_id = $1`

// logOut ends a session as a transaction does that has not seen a click which commits beside it: nothing is cancelled.
func logOut(t testing.TB, db *pgxpool.Pool, credential string) {
	t.Helper()
	execute(t, db, endSession, credential)
}

// end ends sessions as a node does, and announces what that cancelled.
func (n *node) end(ctx context.Context, credentials ...string) (changes []notify.Change, err error) {
	err = n.TransactAnnouncing(ctx, func(tx pgx.Tx) ([]notify.Change, error) {
		for _, c := range credentials {
			if _, err := tx.Exec(ctx, endSession, c); err != nil {
				return nil, err
			}
		}
		changes, err = n.EndCredentials(ctx, tx, credentials)
		return changes, err
	})
	return changes, err
}

// lingering is a click that lingers for an hour.
func lingering(user, credential string) assign.Click {
	return assign.Click{Holder: assign.Holder{User: user}, Count: 1, Credential: credential, Linger: assign.Duration(time.Hour)}
}

func once(user, credential string) assign.Click {
	return assign.Click{Holder: assign.Holder{User: user}, Count: 1, Credential: credential}
}

// ask clicks, and fails the test if the click is refused.
func (n *node) ask(t testing.TB, task string, c assign.Click) assign.Request {
	t.Helper()
	r, err := n.GetWork(t.Context(), task, c)
	if err != nil {
		t.Fatalf("%s clicks: %v", c.Holder.User, err)
	}
	return r
}

func wantEnded(t testing.TB, r assign.Request, state assign.State, work int) {
	t.Helper()
	if r.State != state || len(r.Work) != work {
		t.Errorf("the request of %s is %s and has %d items, want %s and %d", r.User, r.State, len(r.Work), state, work)
	}
}

// A round does not serve whose log-in ended before it took the assign lock, even if nothing else has come to the request yet.
// It cancels the request and says so; the others get the work.
func TestEndBeforeTheRound(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	queried := newGate(StepQueried)
	a := startNode(t, url, nodeOptions{Steps: queried.hold})
	db := pool(t, url)
	newTask(t, a, "task", `select i as item from generate_series(1, 2) i order by i`, nil)
	gone, blocked, late, stays := logIn(t, db, "gone"), logIn(t, db, "blocked"), logIn(t, db, "late"), logIn(t, db, "stays")
	var waiting []assign.Request
	for _, c := range []assign.Click{once("gone", gone), lingering("blocked", blocked), once("late", late), once("stays", stays)} {
		waiting = append(waiting, a.ask(t, "task", c))
	}
	<-queried.reached
	b := startNode(t, url, nodeOptions{}) // not before: it would run the query as well
	logOut(t, db, gone)
	execute(t, db, `update getwork.principal set blocked_at = clock_timestamp() where name = 'blocked'`)
	execute(t, db, `update getwork.work_requested set valid_until = clock_timestamp() where user_name = 'late'`)
	close(queried.open)
	for i, r := range waiting[:3] {
		r := b.endedRequest(t, r.ID)
		wantEnded(t, r, assign.Cancelled, 0)
		if round := query[*int64](t, db, `select round_id from getwork.work_requested where id = $1`, r.ID); round == nil {
			t.Errorf("request %d was not cancelled by the round", i)
		}
	}
	wantEnded(t, b.endedRequest(t, waiting[3].ID), assign.Assigned, 1)
	if n := query[int](t, db, `select count(*) from getwork.work`); n != 1 {
		t.Errorf("%d items were handed out, want 1", n)
	}
}

// Who would get nothing is not asked about, and waits on; who would get something is asked about in every round.
func TestEndOfOneWhoLingers(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	db := pool(t, url)
	newInbox(t, n, "inbox", nil)
	first, second := logIn(t, db, "first"), logIn(t, db, "second")
	waits, after := n.ask(t, "inbox", lingering("first", first)), n.ask(t, "inbox", lingering("second", second))
	logOut(t, db, first)
	n.push(t, "inbox", "a")
	wantEnded(t, n.endedRequest(t, waits.ID), assign.Cancelled, 0)
	wantEnded(t, n.endedRequest(t, after.ID), assign.Assigned, 1)
}

// A round that has read a request serves it: it was before the end, which waits for it and finds nothing to cancel.
func TestEndAfterTheRoundsRead(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	read := newGate(StepRead)
	n := startNode(t, url, nodeOptions{Steps: read.hold})
	db := pool(t, url)
	newTask(t, n, "task", numbers, nil)
	session := logIn(t, db, "ann")
	r := n.ask(t, "task", once("ann", session))
	<-read.reached
	type result struct {
		changes []notify.Change
		err     error
	}
	ended := make(chan result, 1)
	go func() {
		changes, err := n.end(t.Context(), session)
		ended <- result{changes, err}
	}()
	await(t, "the end waits for the round's row", func() bool {
		return schematest.LockWaits(t, db) == 1
	})
	close(read.open)
	if e := <-ended; e.err != nil || len(e.changes) > 0 {
		t.Errorf("the end cancelled %v, %v; want nothing", e.changes, e.err)
	}
	wantEnded(t, n.endedRequest(t, r.ID), assign.Assigned, 1)
}

// beside records a click in a transaction that it leaves open.
func (n *node) beside(t testing.TB, task int64, c assign.Click) (tx pgx.Tx, id int64) {
	t.Helper()
	tx, err := n.pools.API.BeginTx(t.Context(), pg.ReadCommitted)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	k := &click{Click: c, holder: c.Holder}
	if _, err := n.recordAndServe(t.Context(), tx, clicksTask{id: task}, []*click{k}, ranking.Matching{}); err != nil {
		t.Fatal(err)
	}
	return tx, k.id
}

// A click that was admitted before its task was deleted reads that, and not that its user's log-in has changed.
func TestClickBesideTheDeletion(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n, db := startNode(t, url, nodeOptions{}), pool(t, url)
	newTask(t, n, "task", numbers, nil)
	c := lingering("ann", logIn(t, db, "ann"))
	batch := []*click{{Click: c, holder: c.Holder}}
	rec := n.Engine
	admitted, batch, err := rec.admit(t.Context(), "task", batch)
	if err != nil || len(batch) != 1 {
		t.Fatal(batch, err)
	}
	if err := n.DeleteTask(t.Context(), "task", 0); err != nil {
		t.Fatal(err)
	}
	if err := n.transact(t.Context(), func(tx pgx.Tx) error {
		_, err := rec.recordAndServe(t.Context(), tx, admitted, batch, ranking.Matching{})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	wantKind(t, batch[0].err, assign.NotFound)
}

// A click that commits beside the end is not seen by the end. Every node checks for it, so it does not matter which of them
// dies: here the click's node and the end's are gone. A node checks again, because the click may commit after the check; and
// when it starts, because there may have been no other.
func TestClickBesideTheEnd(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	const soon = 100 * time.Millisecond
	for _, when := range []string{"after", "before", "at the start"} {
		t.Run("looks "+when, func(t *testing.T) {
			t.Parallel()
			url := schematest.URL(t)
			a := startNode(t, url, nodeOptions{})
			db := pool(t, url)
			task := newTask(t, a, "task", numbers, func(s *assign.Settings) { s.Paused = true })
			session := logIn(t, db, "ann")
			tx, id := a.beside(t, task.ID, lingering("ann", session))
			if changes, err := a.end(t.Context(), session); err != nil || len(changes) > 0 {
				t.Fatal(changes, err)
			}
			var b *node
			look := func() {
				if err := b.CancelEnded(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if when == "before" {
				b = startNode(t, url, nodeOptions{Look: soon})
				await(t, "it has looked at its start", func() bool { return b.Looks.Load() > 1 })
				look()
			}
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			a.stop()
			switch when {
			case "after":
				b = startNode(t, url, nodeOptions{})
				look()
			case "at the start":
				b = startNode(t, url, nodeOptions{Look: soon})
			}
			wantEnded(t, b.endedRequest(t, id), assign.Cancelled, 0)
		})
	}
}

// A node that dies before its end commits has ended nothing.
func TestNodeDiesBeforeTheEndCommits(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	db := pool(t, url)
	newInbox(t, n, "inbox", nil)
	session := logIn(t, db, "ann")
	r := n.ask(t, "inbox", lingering("ann", session))
	tx, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), endSession, session); err != nil {
		t.Fatal(err)
	}
	if changes, err := n.EndCredentials(t.Context(), tx, []string{session}); err != nil || len(changes) != 1 {
		t.Fatal(changes, err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	n.push(t, "inbox", "a")
	wantEnded(t, n.endedRequest(t, r.ID), assign.Assigned, 1)
}

// A request whose time is over ends at the rescuer's next check, whether it lingers or merely waits, also while its task is
// paused.
func TestValidUntil(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{Look: 100 * time.Millisecond})
	db := pool(t, url)
	newInbox(t, n, "inbox", nil)
	task := newTask(t, n, "paused", numbers, func(s *assign.Settings) { s.Paused = true })
	session := logIn(t, db, "ann")
	c := lingering("ann", session)
	c.ValidUntil = time.Now().Add(500 * time.Millisecond)
	lingers := n.ask(t, "inbox", c)
	waits := query[int64](t, db, `
insert into getwork.work_requested (task_id, user_name, wanted, requested, credential, valid_until)
values ($1, 'ann', 1, 1, $2, clock_timestamp()) returning id`, task.ID, session)
	for _, id := range []int64{lingers.ID, waits} {
		wantEnded(t, n.endedRequest(t, id), assign.Cancelled, 0)
	}
	if late := query[bool](t, db, `select completed_at >= valid_until from getwork.work_requested where id = $1`, lingers.ID); !late {
		t.Error("it was cancelled before its time")
	}
	if n.Rescued.Load() > 0 {
		t.Error("the rescuer has served them")
	}
}

// Of a batch only the clicks whose log-in has ended are refused, and their keys are not used up; the others are served, or
// recorded.
func TestEndedClicksOfABatch(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	db := pool(t, url)
	newTask(t, n, "shelf", numbers, fresh(time.Hour))
	n.endedRequest(t, n.click(t, "shelf", "first", 1).ID)
	newTask(t, n, "stale", numbers, func(s *assign.Settings) { s.Paused = true })
	for _, task := range []string{"shelf", "stale"} {
		t.Run(task, func(t *testing.T) {
			ended, blocked, live := logIn(t, db, "ended "+task), logIn(t, db, "blocked "+task), logIn(t, db, "live "+task)
			logOut(t, db, ended)
			execute(t, db, `update getwork.principal set blocked_at = clock_timestamp() where name = $1`, "blocked "+task)
			var batch []*click
			for i, c := range []assign.Click{once("ended "+task, ended), lingering("live "+task, live), once("blocked "+task, blocked), once("late "+task, live)} {
				c.Key = fmt.Sprint(task, i)
				if i == 3 {
					c.ValidUntil = time.Now().Add(-time.Second)
				}
				batch = append(batch, &click{Click: c, holder: c.Holder, done: make(chan struct{})})
			}
			n.recordBatch(t.Context(), task, batch)
			for i, k := range batch {
				if i == 1 {
					if k.err != nil || k.answer == nil || len(k.answer.Work) != map[string]int{"shelf": 1}[task] {
						t.Errorf("the live one is answered %+v, %v", k.answer, k.err)
					}
					continue
				}
				wantKind(t, k.err, assign.Unauthenticated)
			}
			alone := once("late "+task, live)
			alone.ValidUntil = time.Now().Add(-time.Second)
			_, err := n.GetWork(t.Context(), task, alone)
			wantKind(t, err, assign.Unauthenticated)
			if n := query[int](t, db, `select count(*) from getwork.work_requested where user_name like '% ' || $1`, task); n != 1 {
				t.Errorf("%d requests were recorded, want 1", n)
			}
			if n := query[int](t, db, `select count(*) from getwork.work_requested where key like $1 || '%'`, task); n != 1 {
				t.Errorf("%d keys were used, want 1", n)
			}
		})
	}
}

// Who asks with an ended log-in is refused also while they have a waiting request.
func TestEndedClickWithAWaitingRequest(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	db := pool(t, url)
	newInbox(t, n, "inbox", nil)
	newTask(t, n, "stale", numbers, func(s *assign.Settings) { s.Paused = true })
	for _, task := range []string{"inbox", "stale"} {
		session := logIn(t, db, "ann")
		r := n.ask(t, task, lingering("ann", session))
		logOut(t, db, session)
		_, err := n.GetWork(t.Context(), task, lingering("ann", session))
		wantKind(t, err, assign.Unauthenticated)
		if again := n.ask(t, task, lingering("ann", logIn(t, db, "ann"))); again.ID != r.ID || again.State != assign.Pending {
			t.Errorf("%s: with a new log-in ann gets request %d (%s), want %d", task, again.ID, again.State, r.ID)
		}
	}
}

// stands returns what a request stands on.
func stands(t testing.TB, db *pgxpool.Pool, id int64) string {
	t.Helper()
	return query[string](t, db, `
select concat_ws(' ', credential, to_char(valid_until at time zone 'UTC', 'HH24:MI'), groups::text) from getwork.work_requested where id = $1`, id)
}

// A holder who asks again gets the waiting request, which from then on stands on the newer credential and its groups, and is
// good for longer, not shorter. The former credential's end does not concern it any more.
func TestAskingAgainRebinds(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	db := pool(t, url)
	newInbox(t, n, "inbox", nil)
	newTask(t, n, "stale", numbers, func(s *assign.Settings) { s.Paused = true })
	noon := time.Now().UTC().Truncate(24 * time.Hour).Add(36 * time.Hour)
	for _, task := range []string{"inbox", "stale"} {
		one, two := logIn(t, db, "ann"), logIn(t, db, "ann")
		c := lingering("ann", one)
		c.Groups, c.ValidUntil = []string{"a"}, noon
		r := n.ask(t, task, c)
		for _, again := range []struct {
			credential string
			until      time.Time
			want       string
		}{
			{one, noon.Add(-time.Hour), one + " 12:00 {a}"},
			{two, noon.Add(-time.Hour), two + " 12:00 {b}"},
			{two, noon.Add(time.Hour), two + " 13:00 {b}"},
			{two, time.Time{}, two + " {b}"},
			{two, noon, two + " {b}"},
		} {
			c.Groups, c.Credential, c.ValidUntil = []string{"b"}, again.credential, again.until
			if got := n.ask(t, task, c); got.ID != r.ID {
				t.Fatalf("ann got request %d, want %d", got.ID, r.ID)
			}
			if got := stands(t, db, r.ID); got != again.want {
				t.Errorf("%s: the request stands on %q, want %q", task, got, again.want)
			}
		}
		if changes, err := n.end(t.Context(), one); err != nil || len(changes) > 0 {
			t.Errorf("the former log-in's end cancels %v, %v", changes, err)
		}
	}
}

// A check that found a request under an ended log-in leaves it alone if its holder has asked again meanwhile.
func TestAskingAgainBesideTheLook(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	db := pool(t, url)
	newInbox(t, n, "inbox", nil)
	one, two := logIn(t, db, "ann"), logIn(t, db, "ann")
	r := n.ask(t, "inbox", lingering("ann", one))
	logOut(t, db, one)
	tx, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if err := n.Rebind(t.Context(), tx, "ann", []string{one}, two, time.Time{}); err != nil {
		t.Fatal(err)
	}
	looked := make(chan error, 1)
	go func() { looked <- n.CancelEnded(t.Context()) }()
	await(t, "the look waits for the request's row", func() bool {
		return schematest.LockWaits(t, db) >= 1 // the node's own check may wait, too
	})
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-looked; err != nil {
		t.Fatal(err)
	}
	n.push(t, "inbox", "a")
	wantEnded(t, n.endedRequest(t, r.ID), assign.Assigned, 1)
}

// A log-in moves the same person's requests from the session that it replaces, and nobody else's.
func TestRebind(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	db := pool(t, url)
	newInbox(t, n, "inbox", nil)
	one, two, bob := logIn(t, db, "ann"), logIn(t, db, "ann"), logIn(t, db, "bob")
	noon := time.Now().UTC().Truncate(24 * time.Hour).Add(36 * time.Hour)
	c := lingering("ann", one)
	c.ValidUntil = noon
	r, other := n.ask(t, "inbox", c), n.ask(t, "inbox", lingering("bob", bob))
	err := n.transact(t.Context(), func(tx pgx.Tx) error {
		return n.Rebind(t.Context(), tx, "ann", []string{one, bob}, two, noon.Add(time.Hour))
	})
	if err != nil {
		t.Fatal(err)
	}
	logOut(t, db, one)
	if err := n.CancelEnded(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, bobs := stands(t, db, r.ID), stands(t, db, other.ID); got != two+" 13:00 {}" || bobs != bob+" {}" {
		t.Errorf("the requests stand on %q and %q", got, bobs)
	}
	n.push(t, "inbox", "a", "b")
	wantEnded(t, n.endedRequest(t, r.ID), assign.Assigned, 1)
	wantEnded(t, n.endedRequest(t, other.ID), assign.Assigned, 1)
}

// Rounds go by the groups that a user has now: who has left the task's groups gets nothing, and neither does a former manager.
func TestChangedGroups(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	db := pool(t, url)
	newInbox(t, n, "inbox", func(s *assign.Settings) { s.Groups = []string{"desk"} })
	var requests []assign.Request
	var credentials []string
	for _, user := range []string{"left", "boss", "stays"} {
		session := logIn(t, db, user)
		c := lingering(user, session)
		c.Groups, c.Anything = []string{"desk"}, user == "boss"
		requests, credentials = append(requests, n.ask(t, "inbox", c)), append(credentials, session)
	}
	err := n.TransactAnnouncing(t.Context(), func(tx pgx.Tx) ([]notify.Change, error) {
		changes, err := n.ChangeGroups(t.Context(), tx, credentials[:1], []string{"night"})
		if err == nil && len(changes) == 1 {
			changes, err = n.ChangeGroups(t.Context(), tx, credentials[1:2], nil)
		}
		if err != nil || len(changes) != 1 {
			t.Errorf("changed %v, %v", changes, err)
		}
		return changes, err
	})
	if err != nil {
		t.Fatal(err)
	}
	n.push(t, "inbox", "a")
	for _, r := range requests[:2] {
		r = n.endedRequest(t, r.ID)
		if wantEnded(t, r, assign.None, 0); why(r) != "rules" {
			t.Errorf("%s: %s", r.User, why(r))
		}
	}
	wantEnded(t, n.endedRequest(t, requests[2].ID), assign.Assigned, 1)
}

// What changes beside a click is not seen by the change. Every node checks for such requests: under the credential of an account
// that has lost its name, and with groups that its session has lost.
func TestClickBesideAChange(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	db := pool(t, url)
	session := logIn(t, db, "ann")
	principal := query[int64](t, db, `select id from getwork.principal`)
	for i, c := range []struct {
		credential, change string
		state              assign.State
		groups             string
	}{
		{fmt.Sprint("p:", principal), `update getwork.principal set rebound = rebound + 1`, assign.Cancelled, "{desk}"},
		{fmt.Sprint("j:", principal, ".1"), `update getwork.principal set rebound = rebound + 1`, assign.Cancelled, "{desk}"},
		{session, `update getwork.session set groups = '{night}'`, assign.None, "{night}"},
		{fmt.Sprint("p:", principal, ".2"), `update getwork.principal set groups = '{night}'`, assign.None, "{night}"},
	} {
		// Each has an inbox of its own, in which there is nothing before the check: a round of the case before would hand it out.
		inbox := fmt.Sprint("inbox-", i)
		task := newInbox(t, n, inbox, func(s *assign.Settings) { s.Groups = []string{"desk"} })
		click := lingering("ann", c.credential)
		click.Groups = []string{"desk"}
		tx, id := n.beside(t, task.ID, click)
		execute(t, db, c.change)
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := n.CancelEnded(t.Context()); err != nil {
			t.Fatal(err)
		}
		n.push(t, inbox, fmt.Sprint("of ", id))
		wantEnded(t, n.endedRequest(t, id), c.state, 0)
		if got := query[string](t, db, `select groups::text from getwork.work_requested where id = $1`, id); got != c.groups {
			t.Errorf("%s: the request has the groups %s", c.credential, got)
		}
	}
}

// A claim whose log-in ends before the assign lock is refused. Nobody gives work to who is blocked.
func TestClaimByAnEndedLogIn(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	db := pool(t, url)
	newInbox(t, n, "inbox", nil)
	n.push(t, "inbox", "a", "b")
	session := logIn(t, db, "ann")
	ann := assign.Who{Holder: assign.Holder{User: "ann"}, Credential: session}
	w, _, err := n.Claim(t.Context(), "inbox", "a", ann)
	if err != nil {
		t.Fatal(err)
	}
	logOut(t, db, session)
	_, _, err = n.Claim(t.Context(), "inbox", "b", ann)
	wantKind(t, err, assign.Unauthenticated)
	logIn(t, db, "bob")
	execute(t, db, `update getwork.principal set blocked_at = clock_timestamp() where name = 'bob'`)
	_, err = n.Reassign(t.Context(), w.ID, assign.Reassignment{User: "bob", Force: true}, "boss")
	wantKind(t, err, assign.NotAvailable)
	if held := query[string](t, db, `select string_agg(user_name || ' ' || item, ', ') from getwork.work where state = 'held'`); held != "ann a" {
		t.Errorf("held: %s", held)
	}
}

// A blocked user's requests end, whatever they stand on.
func TestBlockedWithoutACredential(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	db := pool(t, url)
	newInbox(t, n, "inbox", nil)
	logIn(t, db, "ann")
	r, other := n.ask(t, "inbox", lingering("ann", "")), n.ask(t, "inbox", lingering("bob", ""))
	execute(t, db, `update getwork.principal set blocked_at = clock_timestamp() where name = 'ann'`)
	if err := n.CancelEnded(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantEnded(t, n.endedRequest(t, r.ID), assign.Cancelled, 0)
	if r, err := n.Request(t.Context(), other.ID, other.Holder(), false); err != nil || r.State != assign.Pending {
		t.Errorf("bob's request is %s, %v", r.State, err)
	}
}

// Each kind of credential ends in its own way; one that nobody knows has ended.
func TestEndedCredentials(t *testing.T) {
	t.Parallel()
	db := pool(t, schematest.URL(t))
	live, parent := logIn(t, db, "ann"), logIn(t, db, "ann")
	id := query[int64](t, db, `select id from getwork.principal`)
	for token, kind := range map[string]string{"own": "personal", "cli": "cli"} {
		execute(t, db, `
insert into getwork.token (id, hash, kind, principal, parent, label, role, scopes, made_by, expires_at)
values ($1, sha256(convert_to($1, 'UTF8')), $2, $3, (select id from getwork.session where $2 = 'cli' and 's:' || public_id = $4), 'a label', 'worker', '{}', $3, clock_timestamp() + interval '1 day')`,
			token, kind, id, parent)
	}
	all := []string{live, parent, "t:own", "t:cli", fmt.Sprint("j:", id), fmt.Sprint("p:", id)}
	check := func(what string, ended ...string) {
		t.Helper()
		got := query[[]string](t, db, `
select coalesce(array_agg(c order by n) filter (where c in (select e from getwork.ended_among($1) e)), '{}')
from unnest($1::text[]) with ordinality as c (c, n)`, all)
		if fmt.Sprint(got) != fmt.Sprint(ended) {
			t.Errorf("%s: ended are %v, want %v", what, got, ended)
		}
	}
	check("all live")
	const block = `update getwork.principal set blocked_at = case when blocked_at is null then clock_timestamp() end`
	execute(t, db, block)
	check("blocked", all...)
	execute(t, db, block)
	logOut(t, db, parent)
	check("the parent ended", parent, "t:cli")
	execute(t, db, `update getwork.token set expires_at = clock_timestamp() where id = 'own'`)
	execute(t, db, `update getwork.session set ends_at = clock_timestamp() where 's:' || public_id = $1`, live)
	check("past their time", live, parent, "t:own", "t:cli")
	execute(t, db, `update getwork.principal set role = 'observer'`)
	check("a role that takes no work", live, parent, "t:own", "t:cli", fmt.Sprint("p:", id)) // a JWT says itself what it allows
	execute(t, db, `update getwork.principal set role = 'agent', rebound = 2`)
	all = []string{fmt.Sprint("j:", id), fmt.Sprint("j:", id, ".1"), fmt.Sprint("j:", id, ".2"), fmt.Sprint("p:", id, ".1"), fmt.Sprint("p:", id, ".2")}
	check("another account's", fmt.Sprint("j:", id), fmt.Sprint("j:", id, ".1"), fmt.Sprint("p:", id, ".1"))
	all = []string{"", "s:", "s:nobody", "t:nobody", "j:0", "p:0", "x:1"}
	check("unknown", all...)
}

// A log-in moves some requests and regroups others. A run's round beside it waits for all of them, or the log-in for the round:
// neither ends the other, and the query runs once.
func TestLogInBesideARun(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	queried := newGate(StepQueried)
	n := startNode(t, url, nodeOptions{Steps: queried.hold})
	db := pool(t, url)
	newTask(t, n, "task", numbers, nil)
	old, other, renewed := logIn(t, db, "ann"), logIn(t, db, "ann"), logIn(t, db, "ann")
	one := n.ask(t, "task", assign.Click{Holder: assign.Holder{User: "ann", Instance: "agent"}, Count: 1, Credential: other})
	two := n.ask(t, "task", assign.Click{Holder: assign.Holder{User: "ann"}, Count: 1, Credential: old})
	<-queried.reached
	err := n.transact(t.Context(), func(tx pgx.Tx) error { // as Registry.Begin does
		if err := n.LockCredentials(t.Context(), tx, []string{old, other}); err != nil {
			return err
		}
		if err := n.Rebind(t.Context(), tx, "ann", []string{old}, renewed, time.Time{}); err != nil {
			return err
		}
		select {
		case <-queried.open:
		default:
			close(queried.open)
			wantWaiting(t, db, "%getwork.work_requested%for update%")
		}
		_, err := n.ChangeGroups(t.Context(), tx, []string{other, renewed}, []string{"new"})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []assign.Request{one, two} {
		if r = n.endedRequest(t, r.ID); r.State != assign.Assigned {
			t.Errorf("request %d is %s", r.ID, r.State)
		}
	}
	if got := runs(t, db); got != 1 {
		t.Errorf("the query ran %d times", got)
	}
}
