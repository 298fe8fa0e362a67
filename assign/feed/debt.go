package feed

import (
	"time"

	"getwork/notify"
)

const (
	rereadDebt = 8 * time.Second  // how often everybody is read again for a node that owes a word and says nothing
	forgetDebt = 30 * time.Second // and for how long: a commit that it began may still be under way
)

// debt is that of a node which said that it commits more than it says. If it dies, nobody names what that was.
type debt struct {
	heard time.Time // when it was heard last
	due   time.Time // everybody is to be read again then
}

// unknownNode stands for those that may have said so while this node did not listen.
const unknownNode = ""

// owes notes what a message says of its sender's debt; f.mu is held. It is noted also while nobody follows: who comes next reads
// what is so then, and not what that node commits afterwards.
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

// collect has everybody read again if a node has said for too long nothing of what it owes, and reports whether it does.
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
