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
	// maxIDs is the most ids of one task that an announcement names. With more, reading the task costs less than reading them.
	maxIDs = 200

	announceTimeout = 5 * time.Second // for one announcement
	farewellTimeout = time.Second     // for the last one, when the node is being stopped
	sendAgainAfter  = time.Second     // after a failed attempt
)

// Announcer gathers changes after their commit and sends them as one NOTIFY at most every Every. The first change after
// a quiet time goes out at once. An announcer with nothing to send costs nothing. If a NOTIFY fails, its changes are kept
// and sent with later ones. If the node dies first, the other nodes know that more was to come: see [Announcer.Tell].
//
// All methods but Run may be called by any goroutine, before, during and after Run, and never block. Call Settings, Items
// and Waiting after the commit: before it, readers would look for rows that they can't see yet. These three are lost with
// the node, which costs time only, because nodes read what they concern periodically.
type Announcer struct {
	// Every is the least time between two announcements: 100 ms unless changed. Set it before Run.
	Every time.Duration

	send    func(ctx context.Context, channel, payload string) error
	channel string
	node    string
	log     *slog.Logger

	wake chan struct{} // holds one value while there may be something to send

	mu      sync.Mutex
	changes map[int64]*Change // by task: not sent yet
	pledge  pledge
}

// NewAnnouncer returns an announcer for one node. send executes [NotifySQL] outside a transaction and must return when its
// context ends; log may be nil. Nothing is sent until Run is called.
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

// Settings announces that the task itself is new, was changed, or was deleted.
func (a *Announcer) Settings(task int64) {
	a.note(Change{Task: task, Settings: true})
}

// Items announces that items were pushed to the task's inbox, or that items which were never to return were redriven.
func (a *Announcer) Items(task int64) {
	a.note(Change{Task: task, Items: true})
}

// Waiting announces that this node wants to run the task and has no free slot, so that a node with a free one may do it.
func (a *Announcer) Waiting(task int64) {
	a.note(Change{Task: task, Waiting: true})
}

// Run sends announcements until ctx ends, sends what is left within a second, and returns nil.
func (a *Announcer) Run(ctx context.Context) error {
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
			a.signal()
		}
		pause(ctx, wait)
	}
}

// owed returns a channel that is ready when the other nodes wait for another message; nil, which never is, if they don't.
func (a *Announcer) owed() <-chan time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.pledge.open {
		return nil
	}
	return time.After(time.Until(a.pledge.spoken.Add(pledgeFor / 2)))
}

// flush sends the gathered changes, if there are any, and reports whether all are sent. Changes that could not be sent are
// kept. They name at most maxIDs ids of a task, so they don't grow however long an outage lasts.
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
	case !errors.Is(ctx.Err(), context.Canceled): // a cancelled context is no fault: the node is stopping, and its last flush sends all
		trouble.failed(ctx, err)
	}
	return err == nil
}

// note gathers one change. It drops an empty one.
func (a *Announcer) note(c Change) {
	if c.silent() {
		return
	}
	a.mu.Lock()
	merge(a.changes, c)
	a.mu.Unlock()
	a.signal()
}

// signal wakes Run.
func (a *Announcer) signal() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// merge adds a change to those of its task, without repeating an id. Above maxIDs it drops the ids and sets Many.
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
	to.Runs = add(to.Runs, c.Runs) // there are few; reading the task later would not show that a run began and ended
	if !to.Many {
		to.Rounds = add(to.Rounds, c.Rounds)
		to.Requests = add(to.Requests, c.Requests)
		to.Work = add(to.Work, c.Work)
		to.Absences = add(to.Absences, c.Absences)
		to.Many = to.ids() > maxIDs
	}
	if to.Many {
		to.Rounds, to.Requests, to.Work, to.Absences = nil, nil, nil, nil
	}
}

// sorted returns the changes in the order of their tasks.
func sorted(changes map[int64]*Change) (all []Change) {
	for _, task := range slices.Sorted(maps.Keys(changes)) {
		all = append(all, *changes[task])
	}
	return all
}

// add appends the ids that are not there yet, and stops above maxIDs. It searches the slice, which for so few ids is
// quicker than a set.
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
