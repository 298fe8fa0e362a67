package feed

import (
	"time"

	"getwork/notify"
)

// news is what was heard and has not been read yet.
type news struct {
	rounds               map[int64]int // how many requests each answered, at most
	requests, work, runs map[int64]bool
	absences             map[int64]bool
	tasks                map[int64]bool
	newcomers            map[int64]bool // tasks that have new followers
	list                 bool           // a task is new, changed or deleted
	many                 bool           // more was changed than was named
	gap                  bool           // any change of some period may have been missed
}

func newNews() news {
	set := func() map[int64]bool { return map[int64]bool{} }
	return news{rounds: map[int64]int{}, requests: set(), work: set(), runs: set(), absences: set(), tasks: set(), newcomers: set()}
}

// Heard takes a message of NOTIFY. It does not block.
func (f *Feed) Heard(m notify.Message) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.owes(m)
	if f.all == 0 {
		return // a later subscriber reads the tables first
	}
	f.hear(func(n *news) {
		if m.Round != nil {
			if m.Round.Requests > 0 {
				n.rounds[m.Round.ID] = m.Round.Requests
			}
			n.tasks[m.Round.Task] = true
			if m.Round.Run != 0 {
				n.runs[m.Round.Run] = true
			}
		}
		for _, c := range m.Changes {
			if c.Task != 0 {
				n.tasks[c.Task] = true
			}
			n.list = n.list || c.Settings
			n.many = n.many || c.Many
			for _, id := range c.Rounds {
				n.rounds[id] = notify.MaxQuickRound // or less
			}
			note(n.requests, c.Requests)
			note(n.work, c.Work)
			note(n.runs, c.Runs)
			note(n.absences, c.Absences)
		}
		n.list, n.many = n.list || m.All, n.many || m.All
	})
}

func note(into map[int64]bool, ids []int64) {
	for _, id := range ids {
		into[id] = true
	}
}

// hear adds to the news, and wakes the reader; f.mu is held.
func (f *Feed) hear(change func(*news)) {
	f.change(change)
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// change adds to the news without waking the reader; f.mu is held.
func (f *Feed) change(change func(*news)) {
	if f.news.rounds == nil {
		f.news = newNews()
	}
	change(&f.news)
}

// putOff adds to the news, and wakes the reader after a while.
func (f *Feed) putOff(wait time.Duration, change func(*news)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.change(change)
	due := time.Now().Add(wait)
	switch {
	case f.later == nil:
		f.later = time.AfterFunc(wait, func() {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.later = nil
			f.hear(func(*news) {})
		})
	case due.Before(f.due):
		f.later.Reset(wait)
	default:
		return
	}
	f.due = due
}
