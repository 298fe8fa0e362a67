package cluster

import (
	"context"
	"net/http"
	"net/url"

	"getwork/assign"
)

const (
	manager  = "manager"
	observer = "observer"
)

// itemPath names an item of a task; a key is one segment.
func itemPath(task, item string) string {
	return "/api/v1/tasks/" + task + "/items/" + url.PathEscape(item)
}

// CreateTask makes a task; settings are the contract's fields of one, by name. It asks as a manager.
func (c Client) CreateTask(ctx context.Context, settings map[string]any) error {
	c.Role = manager
	a, err := c.Do(ctx, http.MethodPost, "/api/v1/tasks", settings)
	if err != nil {
		return err
	}
	return a.Decode(&struct{}{})
}

// UpdateTask changes the named fields of a task, such as "paused", whatever its version is. It asks as a manager.
func (c Client) UpdateTask(ctx context.Context, task string, changes map[string]any) error {
	c.Role = manager
	a, err := c.Do(ctx, http.MethodPatch, "/api/v1/tasks/"+task, changes, "If-Match", "*")
	if err != nil {
		return err
	}
	return a.Decode(&struct{}{})
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
func (c Client) Push(ctx context.Context, task string, items ...assign.NewItem) (pushed assign.Pushed, err error) {
	if c.Role == "" {
		c.Role = "agent"
	}
	a, err := c.Do(ctx, http.MethodPost, "/api/v1/tasks/"+task+"/items", items)
	if err == nil {
		err = a.Decode(&pushed)
	}
	return pushed, err
}

// Redrive puts back what is never to return: the named items, or, without names, those whose attempts were used up. It
// returns how many items those are, and asks as a manager.
func (c Client) Redrive(ctx context.Context, task string, items ...string) (int, error) {
	c.Role = manager
	body := map[string]any{}
	if len(items) > 0 {
		body["items"] = items
	}
	var redriven struct {
		Count int `json:"count"`
	}
	a, err := c.Do(ctx, http.MethodPost, "/api/v1/tasks/"+task+"/redrive", body)
	if err == nil {
		err = a.Decode(&redriven)
	}
	return redriven.Count, err
}

// Explain asks how an item stands in a task. It asks as a manager.
func (c Client) Explain(ctx context.Context, task, item string) (x assign.Explanation, err error) {
	c.Role = manager
	a, err := c.Do(ctx, http.MethodGet, itemPath(task, item), nil)
	if err == nil {
		err = a.Decode(&x)
	}
	return x, err
}

// Runs reads a task's runs, newest first. It asks as an observer.
func (c Client) Runs(ctx context.Context, task string) ([]assign.Run, error) {
	c.Role = observer
	var body struct {
		Runs []assign.Run `json:"runs"`
	}
	a, err := c.Do(ctx, http.MethodGet, "/api/v1/tasks/"+task+"/runs?limit=1000", nil)
	if err == nil {
		err = a.Decode(&body)
	}
	return body.Runs, err
}
