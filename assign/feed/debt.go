package feed

import (
	"time"

	"getwork/notify"
)

const (
	rereadDebt = 8 * time.Second  // how often all users are read again for a node that owes an announcement and is silent
	forgetDebt = 30 * time.Second // and for how long: one of its commits may still be under way
)

// debt is what a node owes that has announced less than it commits. If it dies, nobody names those commits.
type debt struct {
	heard time.Time // when the node was last heard
	due   time.Time // when to read all users again
}

// unknownNode stands for nodes that may have made such a promise while this node did not listen.
const unknownNode = ""

// owes records what a message says of its sender's debt; f.mu is held. It also does so while nobody follows: a user who
// connects next reads the present state, but not what that node commits afterwards.
func (f *Feed) owes(m notify.Message) {
	switch {
	case m.Again:
		f.borrowed(m.Node)
	case m.Even:
		delete(f.debts, m.Node)
	}
}

func (f *Feed) borrowed(node string) {
	now := time.Now()
	f.debts[node] = debt{now, now.Add(notify.PledgeHeardFor)}
}

// collect makes the feed read all users again if a node that owes an announcement has been silent for too long, and reports
// whether it does.
func (f *Feed) collect() (overdue bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	for node, d := range f.debts {
		if now.Before(d.due) {
			continue
		}
		forgotten := now.Sub(d.heard) > forgetDebt
		overdue = overdue || !forgotten
		if d.due = now.Add(rereadDebt); forgotten || node == unknownNode {
			delete(f.debts, node)
		} else {
			f.debts[node] = d
		}
	}
	if overdue {
		f.change(func(n *news) { n.many = true })
	}
	return overdue
}
