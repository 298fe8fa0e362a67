package feed

import (
	"slices"
	"testing"
	"time"

	"getwork/assign"
	"getwork/assign/pg"
	"getwork/assign/records"
	"getwork/notify"
	"getwork/schema/schematest"
)

// The announcer announces many changes together. If it can't any more, the other nodes read all users again; so does a node
// that began to listen after the promise of more announcements.
func TestToldOfManyChangesByNobody(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	for name, late := range map[string]bool{"listened": false, "came later": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := schematest.URL(t)
			a := startNode(t, url, NodeOptions{Dumb: true, Every: time.Minute})
			var b *Node
			if !late {
				b = startNode(t, url, NodeOptions{})
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
				b = startNode(t, url, NodeOptions{})
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

// All users are read again for a node that owes an announcement and is silent, but not for a node that owes none, nor for
// ever.
func TestDebts(t *testing.T) {
	t.Parallel()
	f := New(Config{Records: records.New(pg.Router{}, nil)})
	overdue := func(later time.Duration) bool {
		for node, d := range f.debts {
			f.debts[node] = debt{d.heard.Add(-later), d.due.Add(-later)}
		}
		return f.collect()
	}
	say := func(node string, again bool) { f.Heard(notify.Message{Node: node, Again: again, Even: !again}) }
	say("n1", true)
	if overdue(time.Second) {
		t.Error("read for a node that was heard a second ago")
	}
	if !overdue(notify.PledgeHeardFor) {
		t.Error("not read for a silent node")
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
		t.Error("read for a node that has been heard since")
	}
}
