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

// CreateTask creates a task, as a manager; settings are fields of a task, as the API names them.
func (c Client) CreateTask(ctx context.Context, settings map[string]any) error {
	_, err := c.api().As(manager).CreateTask(ctx, settings)
	return err
}

// UpdateTask changes the named fields of a task, such as "title", as a manager and whatever the task's version.
func (c Client) UpdateTask(ctx context.Context, task string, changes map[string]any) error {
	_, err := c.api().As(manager).UpdateTask(ctx, task, changes, client.IfMatch("*"))
	return err
}

// Push pushes items to an inbox, all of them or none. A client with the role of a worker asks as an agent.
func (c Client) Push(ctx context.Context, task string, items ...assign.NewItem) (assign.Pushed, error) {
	if c.Role == "" {
		c.Role = "agent"
	}
	return c.api().PushItems(ctx, task, items)
}

// Redrive puts back items that are never to return, as a manager: the named ones or, without arguments, those whose
// attempts were used up. It returns how many were put back.
func (c Client) Redrive(ctx context.Context, task string, items ...string) (int, error) {
	return c.api().As(manager).Redrive(ctx, task, items)
}

// Explain reads how an item stands in a task, as a manager.
func (c Client) Explain(ctx context.Context, task, item string) (assign.Explanation, error) {
	return c.api().As(manager).Explain(ctx, task, item)
}

// Runs reads a task's runs, newest first, as an observer.
func (c Client) Runs(ctx context.Context, task string) ([]assign.Run, error) {
	p, err := c.api().As(observer).ListRuns(ctx, task, client.Part{Limit: 1000})
	return p.Rows, err
}
