package cluster

import (
	"context"

	"getwork/assign"
	"getwork/ws/client"
)

const (
	manager  = "manager"
	observer = "observer"
)

// CreateTask makes a task; settings are the contract's fields of one, by name. It asks as a manager.
func (c Client) CreateTask(ctx context.Context, settings map[string]any) error {
	_, err := c.api().As(manager).CreateTask(ctx, settings)
	return err
}

// UpdateTask changes the named fields of a task, such as "paused", whatever its version is. It asks as a manager.
func (c Client) UpdateTask(ctx context.Context, task string, changes map[string]any) error {
	_, err := c.api().As(manager).UpdateTask(ctx, task, changes, client.IfMatch("*"))
	return err
}

// Pause has nothing of a task handed out, until Resume. Both ask as a manager.
func (c Client) Pause(ctx context.Context, task string) error {
	return c.UpdateTask(ctx, task, map[string]any{"paused": true})
}

// Resume ends a Pause.
func (c Client) Resume(ctx context.Context, task string) error {
	return c.UpdateTask(ctx, task, map[string]any{"paused": false})
}

// Push puts items into an inbox, all of them or none. A worker asks as an agent.
func (c Client) Push(ctx context.Context, task string, items ...assign.NewItem) (assign.Pushed, error) {
	if c.Role == "" {
		c.Role = "agent"
	}
	return c.api().PushItems(ctx, task, items)
}

// Redrive puts back what is never to return: the named items, or, without names, those whose attempts were used up. It
// returns how many items those are, and asks as a manager.
func (c Client) Redrive(ctx context.Context, task string, items ...string) (int, error) {
	return c.api().As(manager).Redrive(ctx, task, items)
}

// Explain asks how an item stands in a task. It asks as a manager.
func (c Client) Explain(ctx context.Context, task, item string) (assign.Explanation, error) {
	return c.api().As(manager).Explain(ctx, task, item)
}

// Runs reads a task's runs, newest first. It asks as an observer.
func (c Client) Runs(ctx context.Context, task string) ([]assign.Run, error) {
	p, err := c.api().As(observer).ListRuns(ctx, task, client.Part{Limit: 1000})
	return p.Rows, err
}
