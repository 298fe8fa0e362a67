package feed

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
)

// Subscription is one follower: a socket, an event stream, or a held answer.
type Subscription struct {
	feed    *Feed
	holder  assign.Holder
	deliver func(...assign.Event)
	who     assign.Who // the user who follows tasks
	quiet   bool       // it wants request events only
	works   bool       // a live channel of somebody who may hold work

	follows atomic.Int64 // how many topics have it as a follower
}

// topic is a task that somebody follows.
type topic struct {
	last      *assign.Event                   // the task as it was last read
	followers map[*Subscription]*assign.Event // the event that each got last; nil: none
}

// Subscribe delivers what concerns a holder, until the returned function is called. deliver is called under the feed's lock: it
// must not block, call the feed or the subscription, or keep the slice that it is given. A caller that shows state should subscribe
// first and then read, so that it misses no change.
func (f *Feed) Subscribe(holder assign.Holder, deliver func(...assign.Event)) (*Subscription, func()) {
	s := &Subscription{feed: f, holder: holder, deliver: deliver}
	s.enter()
	return s, s.leave
}

// enter begins the subscription.
func (s *Subscription) enter() {
	f := s.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	f.holders[s.holder] = append(f.holders[s.holder], s)
	f.all++
	if f.all == 1 {
		f.hear(func(*news) {}) // the loop stands still while nobody follows
	}
}

// leave ends the subscription. It may be called more than once.
func (s *Subscription) leave() {
	f := s.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	subs := f.holders[s.holder]
	i := slices.Index(subs, s)
	if i < 0 {
		return
	}
	f.all--
	if f.holders[s.holder] = slices.Delete(subs, i, i+1); len(subs) == 1 {
		delete(f.holders, s.holder)
	}
	for name := range f.topics {
		s.unfollow(name)
	}
}

// followed is what a follower needs to know of a task.
type followed struct {
	id     int64
	name   string
	groups []string
}

const selectToFollow = `
select s.task_id, s.name, v.groups
from getwork.task_state s join getwork.task_version v on v.task_id = s.task_id and v.version = s.version
where s.name = any($1::text[]) and s.deleted_at is null`

// toFollow reads the tasks that several callers name. All callers get all of them.
func (f *Feed) toFollow(ctx context.Context, asked [][]string) ([]map[string]followed, error) {
	names := slices.Concat(asked...)
	slices.Sort(names)
	rows, err := f.config.DB.Query(ctx, f.config.SQL(selectToFollow), slices.Compact(names))
	if err != nil {
		return nil, fmt.Errorf("read tasks to follow: %w", err)
	}
	tasks := map[string]followed{}
	_, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (t followed, err error) {
		err = row.Scan(&t.id, &t.name, &t.groups)
		tasks[t.name] = t
		return t, err
	})
	if err != nil {
		return nil, fmt.Errorf("read tasks to follow: %w", err)
	}
	return slices.Repeat([]map[string]followed{tasks}, len(asked)), nil
}

// follow adds tasks whose task and run events are delivered, too, as long as they are open to who. Their present state is
// delivered at once.
func (s *Subscription) follow(who assign.Who, tasks []followed) {
	f := s.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	if !slices.Contains(f.holders[s.holder], s) {
		return // the subscription has ended meanwhile
	}
	s.who = who
	for _, t := range tasks {
		if f.topics[t.name] == nil {
			f.topics[t.name] = &topic{followers: map[*Subscription]*assign.Event{}}
		}
		followers := f.topics[t.name].followers
		if _, known := followers[s]; !known {
			s.follows.Add(1)
		}
		followers[s] = nil
		f.hear(func(n *news) { n.newcomers[t.id] = true })
	}
}

// Unfollow removes tasks. It ignores names that are not followed.
func (s *Subscription) Unfollow(tasks ...string) {
	s.feed.mu.Lock()
	defer s.feed.mu.Unlock()
	for _, name := range tasks {
		s.unfollow(name)
	}
}

func (s *Subscription) unfollow(name string) {
	t := s.feed.topics[name]
	if t == nil {
		return
	}
	if t.drop(s); len(t.followers) == 0 {
		delete(s.feed.topics, name)
	}
}

// drop removes a follower, if it is one.
func (t *topic) drop(s *Subscription) {
	if _, known := t.followers[s]; known {
		delete(t.followers, s)
		s.follows.Add(-1)
	}
}

// RequestsOnly limits a subscription to request events.
func (s *Subscription) RequestsOnly() *Subscription {
	s.feed.mu.Lock()
	defer s.feed.mu.Unlock()
	s.quiet = true
	return s
}
