package stage

import (
	"context"
	"fmt"
	"time"
)

// FreshLoad is a load on a shelf that stays fresh for a whole window, so that no run falls into it.
type FreshLoad struct {
	Users, Nodes int
	Tasks, Names int           // as a load's; 0: one, and the users' own
	Others       int           // nodes on which nobody clicks
	Items        int           // 0: enough for the usual window
	Window       time.Duration // 0: the usual one
}

// Turn is a window in which something is measured.
type Turn struct {
	Ready func(ctx context.Context, s *Stage) error // called before it, if it is not nil
	Next  bool                                      // people ask over all tasks, of which there is one
}

// FreshClicks returns what clicks on a fresh shelf cost, on a getwork of its own.
func (e *Env) FreshClicks(ctx context.Context, l FreshLoad) (Cost, error) {
	costs, err := e.FreshTurns(ctx, l, Turn{})
	if err != nil {
		return Cost{}, err
	}
	return costs[0], nil
}

// FreshTurns returns what clicks on a fresh shelf cost in each of the turns, one after the other on one getwork.
func (e *Env) FreshTurns(ctx context.Context, l FreshLoad, turns ...Turn) (costs []Cost, err error) {
	if l.Items == 0 {
		l.Items, l.Window = Sized(e, 150_000, 600_000), Sized(e, 2*time.Second, 5*time.Second)
	}
	err = e.On(ctx, l.Nodes, func(s *Stage) error {
		tasks := []string{"clicks"}
		for n := 1; n < l.Tasks; n++ {
			tasks = append(tasks, fmt.Sprint("clicks-", n))
		}
		if l.Others > 0 {
			if err := s.Start(ctx, l.Others); err != nil {
				return err
			}
		}
		each := l.Items / len(tasks)
		if err := s.MakeItems(ctx, each); err != nil {
			return err
		}
		for _, task := range tasks {
			if err := s.Fill(ctx, task, ItemsQuery, each, UntilEnd); err != nil {
				return err
			}
		}
		most := l.Items/WantedEach - l.Users
		if len(tasks) > 1 {
			most = most * 4 / 5 // one may be quicker than others
		}
		for i := range l.Users { // log-in, if there is one, is not measured
			if _, err := s.Show(ctx, fmt.Sprint("user ", i), "worker"); err != nil {
				return err
			}
		}
		for _, turn := range turns {
			if turn.Ready != nil {
				if err := turn.Ready(ctx, s); err != nil {
					return err
				}
			}
			out, err := s.Measure(ctx, Load{among: tasks, Users: l.Users, next: turn.Next, names: l.Names, nodes: l.Nodes, Most: most / len(turns)}, l.Window, nil)
			if err != nil {
				return err
			}
			costs = append(costs, out.Cost())
		}
		for _, task := range tasks {
			if err := s.Check(ctx, task); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		err = fmt.Errorf("%s, %d users, nodes: %d and %d: %w", e.Binary, l.Users, l.Nodes, l.Others, err)
	}
	return costs, err
}
