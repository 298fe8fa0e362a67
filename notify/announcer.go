package notify

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"
)

const (
	// maxIDs is how many ids of one task an announcement names. Above it, reading the task costs less than reading them.
	maxIDs = 200

	announceTimeout = 5 * time.Second // for one announcement
	farewellTimeout = time.Second     // for the last one, when the node is being stopped
	sendAgainAfter  = time.Second     // a try that failed
)

// Announcer gathers changes after their commit and sends them as one NOTIFY at most every Every. The first change after
// quiet goes out at once; with nothing to say it does nothing at all. What can't be sent is kept, with what comes, until
// it can. If the node dies before, the others know that something was to come: see [Announcer.Tell].
//
// All but Loop may be called by any goroutine, before, during and after Loop, and never blocks. Call Settings, Items and Waiting
// after the commit: before it a reader would be sent to rows that it can't see yet. They are lost with the node; all that
// they concern is looked at from time to time anyway.
type Announcer struct {
	// Every is the least time between two announcements. 100 ms; set it before Loop.
	Every time.Duration

	send    func(ctx context.Context, channel, payload string) error
	channel string
	node    string
	log     *slog.Logger

	wake chan struct{} // holds one value while there may be something to say

	mu      sync.Mutex
	changes map[int64]*Change // by task: not sent yet
	pledge  pledge
}

// NewAnnouncer returns an announcer for one node. send executes [NotifySQL] in no transaction and must return when its
// context ends; log may be nil. Nothing is sent until Loop runs.
func NewAnnouncer(send func(ctx context.Context, channel, payload string) error, channel, node string, log *slog.Logger) *Announcer {
	return &Announcer{
		Every:   100 * time.Millisecond,
		send:    send,
		channel: channel,
		node:    node,
		log:     cmp.Or(log, slog.New(slog.DiscardHandler)),
		wake:    make(chan struct{}, 1),
		changes: map[int64]*Change{},
	}
}

// Settings says that the task itself is new, was changed, or was deleted.
func (a *Announcer) Settings(task int64) {
	a.note(Change{Task: task, Settings: true})
}

// Items says that items of the task's inbox were pushed, or that what was never to return was put back.
func (a *Announcer) Items(task int64) {
	a.note(Change{Task: task, Items: true})
}

// Waiting says that this node wants to run the task and has no free slot, so that a node which has one may do it.
func (a *Announcer) Waiting(task int64) {
	a.note(Change{Task: task, Waiting: true})
}

// Loop sends announcements until ctx ends, sends what is left within a second, and returns nil.
func (a *Announcer) Loop(ctx context.Context) error {
	trouble := outage{log: a.log, bad: "announcement was not sent, it is tried again", good: "announcements are sent again"}
	for {
		select {
		case <-ctx.Done():
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewellTimeout)
			defer cancel()
			a.flush(ctx, &trouble, true)
			return nil
		case <-a.wake:
		case <-a.owed():
		}
		bounded, cancel := context.WithTimeout(ctx, announceTimeout)
		sent := a.flush(bounded, &trouble, false)
		cancel()
		wait := a.Every
		if !sent {
			wait = sendAgainAfter
			a.stir()
		}
		pause(ctx, wait)
	}
}

// owed is ready when the others wait for a word. While they do not, it never is.
func (a *Announcer) owed() <-chan time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.pledge.open {
		return nil
	}
	return time.After(time.Until(a.pledge.spoken.Add(pledgeFor / 2)))
}

// flush sends what was gathered, if there is anything to say, and reports whether nothing is left of it. What could not be
// sent is kept. It names no more than maxIDs of a task, so however long that lasts it does not grow.
func (a *Announcer) flush(ctx context.Context, trouble *outage, last bool) (sent bool) {
	a.mu.Lock()
	changes, at := a.changes, time.Now()
	a.changes = map[int64]*Change{}
	m := Message{Node: a.node, Changes: sorted(changes)}
	m.Again, m.Even = a.pledge.speaks(len(changes) > 0, last)
	a.mu.Unlock()
	if len(changes) == 0 && !m.Again && !m.Even {
		return true
	}
	err := a.send(ctx, a.channel, m.Encode())
	a.mu.Lock()
	a.pledge.spoke(at, m.Again, m.Even, err == nil)
	if err != nil {
		for _, c := range a.changes {
			merge(changes, *c)
		}
		a.changes = changes
	}
	a.mu.Unlock()
	switch {
	case err == nil:
		trouble.over(ctx)
	case !errors.Is(ctx.Err(), context.Canceled): // else the node is being stopped, no fault: the farewell takes it all along
		trouble.failed(ctx, err)
	}
	return err == nil
}

// note gathers one change. One without anything to say is left out.
func (a *Announcer) note(c Change) {
	if c.silent() {
		return
	}
	a.mu.Lock()
	merge(a.changes, c)
	a.mu.Unlock()
	a.stir()
}

// stir makes Loop look.
func (a *Announcer) stir() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// merge adds a change to what is known of its task, without repeating an id, and keeps no more than maxIDs of a task.
func merge(into map[int64]*Change, c Change) {
	to := into[c.Task]
	if to == nil {
		to = &Change{Task: c.Task}
		into[c.Task] = to
	}
	to.Settings = to.Settings || c.Settings
	to.Waiting = to.Waiting || c.Waiting
	to.Items = to.Items || c.Items
	to.Many = to.Many || c.Many
	to.Runs = add(to.Runs, c.Runs) // few; a run is told of as it begins and ends, which reading the task later would not tell
	if !to.Many {
		to.Rounds = add(to.Rounds, c.Rounds)
		to.Requests = add(to.Requests, c.Requests)
		to.Work = add(to.Work, c.Work)
		to.Many = to.ids() > maxIDs
	}
	if to.Many {
		to.Rounds, to.Requests, to.Work = nil, nil, nil
	}
}

// sorted are the changes in the order of their tasks.
func sorted(changes map[int64]*Change) (all []Change) {
	for _, task := range slices.Sorted(maps.Keys(changes)) {
		all = append(all, *changes[task])
	}
	return all
}

// add appends the ids that are not there yet, and stops when they are too many anyway. It looks through the slice, which
// for so few is quicker than a set.
func add(to, ids []int64) []int64 {
	for _, id := range ids {
		if len(to) > maxIDs {
			break
		}
		if !slices.Contains(to, id) {
			to = append(to, id)
		}
	}
	return to
}
