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
)

// Announcer gathers changes after their commit and sends them as one NOTIFY at most every Every. The first change after
// quiet goes out at once; with nothing to say it does nothing at all. An announcement is lost when its node dies, or when
// sending fails twice; whoever listens re-reads from time to time anyway.
//
// Round, Request, Work, Run, Settings, Items and Waiting may be called by any goroutine, before, during and after Loop. They never
// block. Call them after the commit: before it a reader would be sent to rows that it can't see yet.
type Announcer struct {
	// Every is the least time between two announcements. 100 ms; set it before Loop.
	Every time.Duration

	send    func(ctx context.Context, channel, payload string) error
	channel string
	node    string
	log     *slog.Logger

	wake chan struct{} // holds one value while there may be something to say

	mu      sync.Mutex
	changes map[int64]*Change // by task: never sent yet
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

// Round says that a round has committed which answered nobody but who clicked, and so knows already. Such rounds may be
// hundreds in a second, and a NOTIFY in each would have every node's connection woken as often.
func (a *Announcer) Round(task, id int64) {
	a.note(Change{Task: task, Rounds: []int64{id}})
}

// Request says that requests of the task were recorded or cancelled.
func (a *Announcer) Request(task int64, ids ...int64) {
	a.note(Change{Task: task, Requests: ids})
}

// Work says that work of the task was closed or extended.
func (a *Announcer) Work(task int64, ids ...int64) {
	a.note(Change{Task: task, Work: ids})
}

// Run says that a run of the task started, or ended without a round.
func (a *Announcer) Run(task, id int64) {
	a.note(Change{Task: task, Runs: []int64{id}})
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
	trouble := outage{log: a.log, bad: "announcement was not sent, others hear of it later", good: "announcements are sent again"}
	var again map[int64]*Change // failed once
	for {
		select {
		case <-ctx.Done():
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewellTimeout)
			defer cancel()
			a.flush(ctx, again, &trouble)
			return nil
		case <-a.wake:
		}
		bounded, cancel := context.WithTimeout(ctx, announceTimeout)
		again = a.flush(bounded, again, &trouble)
		cancel()
		if again != nil {
			a.stir()
		}
		pause(ctx, a.Every)
	}
}

// flush sends what was gathered together with what failed before, and returns what to try once more: when sending fails,
// that which was tried for the first time. So nothing is kept for ever.
func (a *Announcer) flush(ctx context.Context, again map[int64]*Change, trouble *outage) map[int64]*Change {
	a.mu.Lock()
	fresh := a.changes
	a.changes = map[int64]*Change{}
	a.mu.Unlock()

	all := map[int64]*Change{}
	for _, part := range []map[int64]*Change{again, fresh} {
		for _, c := range part {
			merge(all, *c)
		}
	}
	if len(all) == 0 {
		return nil
	}
	m := Message{Node: a.node}
	for _, task := range slices.Sorted(maps.Keys(all)) {
		m.Changes = append(m.Changes, *all[task])
	}
	if err := a.send(ctx, a.channel, m.Encode()); err != nil {
		if errors.Is(ctx.Err(), context.Canceled) {
			return all // the node is being stopped, no fault: the farewell takes it all along
		}
		trouble.failed(ctx, err)
		if len(fresh) == 0 {
			return nil
		}
		return fresh
	}
	trouble.over(ctx)
	return nil
}

// note gathers one change. One without anything to say is left out.
func (a *Announcer) note(c Change) {
	if c.ids() == 0 && !c.Settings && !c.Waiting && !c.Items {
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
