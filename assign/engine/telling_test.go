package engine

import (
	"slices"
	"testing"
	"time"

	"getwork/assign"
	"getwork/notify"
	"getwork/schema/schematest"
	"getwork/schema/schematest/timeout"
)

// eventsOf follows a holder.
func (n *node) eventsOf(t testing.TB, user string) <-chan assign.Event {
	t.Helper()
	told := make(chan assign.Event, 1000)
	_, end := n.Feed.Subscribe(assign.Holder{User: user}, func(events ...assign.Event) {
		for _, e := range events {
			told <- e
		}
	})
	t.Cleanup(end)
	return told
}

// heard waits until an event is so.
func heard(t testing.TB, told <-chan assign.Event, what string, so func(assign.Event) bool) {
	t.Helper()
	late := time.NewTimer(timeout.Scale(time.Minute))
	defer late.Stop()
	for {
		select {
		case e := <-told:
			if so(e) {
				return
			}
		case <-late.C:
			t.Fatalf("not told that %s", what)
		}
	}
}

func workIs(id int64, state string) func(assign.Event) bool {
	return func(e assign.Event) bool {
		w, ok := e.Body.(*assign.Work)
		return ok && w.ID == id && string(w.State) == state
	}
}

func requestIs(id int64, state assign.State) func(assign.Event) bool {
	return func(e assign.Event) bool { return e.Request != nil && e.Request.ID == id && e.Request.State == state }
}

// A change that comes alone is told by its own transaction, whatever becomes of the node then.
func TestChangesTellOfThemselves(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	a, b := startNode(t, url, nodeOptions{dumb: true, every: time.Nanosecond}), startNode(t, url, nodeOptions{})
	db := pool(t, url)
	newInbox(t, a, "inbox", func(s *assign.Settings) { s.Lease = lasting(time.Hour) })
	newInbox(t, a, "empty", nil)
	a.push(t, "inbox", "one", "two", "three", "four")
	ann, bob := b.eventsOf(t, "ann"), b.eventsOf(t, "bob")
	holder := assign.Holder{User: "ann"}
	dispose := func(id int64, outcome string) {
		t.Helper()
		if _, err := a.Dispose(t.Context(), id, assign.Disposition{Outcome: outcome}, holder, false); err != nil {
			t.Fatal(err)
		}
	}
	swept := func(statement, set string, id int64) {
		t.Helper()
		execute(t, db, `update getwork.work set `+set+` where id = $1`, id)
		if found, err := a.sweepOnce(t.Context(), statement); err != nil || len(found) != 1 {
			t.Fatalf("swept %v, %v", found, err)
		}
	}

	r := a.click(t, "inbox", "ann", 1)
	one := r.Work[0]
	heard(t, ann, "a quick round gave her work", requestIs(r.ID, assign.Assigned))
	if _, err := a.Extend(t.Context(), one.ID, holder); err != nil {
		t.Fatal(err)
	}
	heard(t, ann, "it was extended", workIs(one.ID, "held"))
	dispose(one.ID, "complete")
	heard(t, ann, "it was completed", workIs(one.ID, "completed"))

	two, _, err := a.Claim(t.Context(), "inbox", "two", assign.Who{Holder: holder})
	if err != nil {
		t.Fatal(err)
	}
	heard(t, ann, "it was claimed", workIs(two.ID, "held"))
	given, err := a.Reassign(t.Context(), two.ID, "bob", "boss")
	if err != nil {
		t.Fatal(err)
	}
	heard(t, ann, "it was taken away", workIs(two.ID, "reassigned"))
	heard(t, bob, "it was given to him", workIs(given.ID, "held"))
	dry, err := a.Release(t.Context(), assign.Release{User: "bob", DryRun: true}, "boss")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Release(t.Context(), assign.Release{User: "bob", Token: dry.Token}, "boss"); err != nil {
		t.Fatal(err)
	}
	heard(t, bob, "it was released", workIs(given.ID, "returned"))

	three, _, err := a.Claim(t.Context(), "inbox", "three", assign.Who{Holder: holder})
	if err != nil {
		t.Fatal(err)
	}
	heard(t, ann, "it was claimed", workIs(three.ID, "held"))
	swept(warnHolders, `warn_at = clock_timestamp()`, three.ID)
	heard(t, ann, "its lease is about to run out", workIs(three.ID, "held"))
	swept(expireWork, `lease_expires_at = clock_timestamp()`, three.ID)
	heard(t, ann, "it expired", workIs(three.ID, "expired"))

	waits := a.linger(t, "empty", "ann", 1)
	heard(t, ann, "she waits", requestIs(waits.ID, assign.Pending))
	if _, err := a.Cancel(t.Context(), waits.ID, holder, false); err != nil {
		t.Fatal(err)
	}
	heard(t, ann, "that was cancelled", requestIs(waits.ID, assign.Cancelled))
	waits = a.linger(t, "empty", "ann", 1)
	heard(t, ann, "she waits again", requestIs(waits.ID, assign.Pending))
	execute(t, db, `update getwork.work_requested set linger_until = clock_timestamp(), look_after = clock_timestamp() + interval '1 hour' where id = $1`, waits.ID)
	if err := a.endLingering(t.Context()); err != nil {
		t.Fatal(err)
	}
	heard(t, ann, "her time is over", requestIs(waits.ID, assign.None))
}

// Of many changes the announcer tells. What it can't tell any more, everybody reads: also who came to listen after the node
// had said that more is to come.
func TestToldOfManyChangesByNobody(t *testing.T) {
	t.Parallel()
	for name, late := range map[string]bool{"listened": false, "came later": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := schematest.URL(t)
			a := startNode(t, url, nodeOptions{dumb: true, every: time.Minute})
			var b *node
			if !late {
				b = startNode(t, url, nodeOptions{})
			}
			newInbox(t, a, "inbox", nil)
			a.push(t, "inbox", "a", "b", "c", "d", "e")
			work := a.endedRequest(t, a.click(t, "inbox", "ann", 5).ID).Work
			if len(work) != 5 {
				t.Fatal(work)
			}
			complete := func(w assign.Work) {
				t.Helper()
				if _, err := a.Dispose(t.Context(), w.ID, assign.Disposition{Outcome: "complete"}, assign.Holder{User: "ann"}, false); err != nil {
					t.Fatal(err)
				}
			}
			complete(work[0])
			complete(work[1])
			if late {
				b = startNode(t, url, nodeOptions{})
			}
			ann := b.eventsOf(t, "ann")
			await(t, "the feed has caught up", func() bool {
				b.Feed.mu.Lock()
				defer b.Feed.mu.Unlock()
				return b.Feed.news.rounds == nil
			})
			for _, w := range work[2:] {
				complete(w)
			}
			last := work[4].ID
			heard(t, ann, "all is completed", func(e assign.Event) bool {
				p, ok := e.Body.(assign.Pipeline)
				return ok && !slices.ContainsFunc(p.Work, func(w assign.Work) bool { return w.ID == last }) || workIs(last, "completed")(e)
			})
		})
	}
}

// Everybody is read again for a node that owes a word and is not heard; and not for one that has said that nothing is left,
// nor for ever.
func TestDebts(t *testing.T) {
	t.Parallel()
	f := newFeed(nil)
	overdue := func(later time.Duration) bool {
		for node, d := range f.debts {
			f.debts[node] = debt{d.heard.Add(-later), d.due.Add(-later)}
		}
		return f.collect()
	}
	say := func(node string, again bool) { f.heard(notify.Message{Node: node, Again: again, Even: !again}) }
	say("n1", true)
	if overdue(time.Second) {
		t.Error("read for one that was heard a second ago")
	}
	if !overdue(notify.PledgeHeardFor) {
		t.Error("not read for one that is not heard any more")
	}
	if overdue(rereadDebt/2) || !overdue(rereadDebt) {
		t.Error("not read again after a while, or at once")
	}
	if overdue(time.Hour) || len(f.debts) != 0 {
		t.Error("read for ever")
	}
	say("n1", true)
	say("n2", true)
	say("n1", false)
	if len(f.debts) != 1 || !overdue(notify.PledgeHeardFor) {
		t.Errorf("owed by %v, want n2", f.debts)
	}
	say("n2", true)
	if overdue(0) {
		t.Error("read for one that has been heard since")
	}
}
