package client

import (
	"context"
	"net/http"
	"strconv"

	"getwork/assign"
)

// ListTasks reads the tasks that the caller may see, by name.
func (c *Client) ListTasks(ctx context.Context, options ...Option) ([]assign.Task, error) {
	p, err := list[assign.Task](ctx, c, path("tasks"), "tasks", nil, options)
	return p.Rows, err
}

// ShowTask reads a task. [Into] keeps its tag for a change.
func (c *Client) ShowTask(ctx context.Context, name string, options ...Option) (t assign.Task, err error) {
	err = c.get(ctx, path("tasks", name), nil, &t, options)
	return t, err
}

// CreateTask makes a task. settings is an [assign.Settings] made from [assign.DefaultSettings], or any value that encodes to an
// object with the fields that differ from the defaults; name is required. For managers.
func (c *Client) CreateTask(ctx context.Context, settings any, options ...Option) (t assign.Task, err error) {
	err = c.send(ctx, http.MethodPost, path("tasks"), settings, &t, options)
	return t, err
}

// UpdateTask changes a task. changes encodes to an object with the fields that change, such as map[string]any. [IfMatch] is
// required, except for a change of paused alone ([Client.SetPaused]): it names the version that the change is based on. For
// managers.
func (c *Client) UpdateTask(ctx context.Context, name string, changes any, options ...Option) (t assign.Task, err error) {
	err = c.send(ctx, http.MethodPatch, path("tasks", name), changes, &t, options)
	return t, err
}

// SetPaused pauses or resumes a task, which makes no version; [Client.ListTaskLog] lists it. [IfMatch] is optional. For managers.
func (c *Client) SetPaused(ctx context.Context, name string, paused bool, options ...Option) (assign.Task, error) {
	return c.UpdateTask(ctx, name, map[string]bool{"paused": paused}, options...)
}

// ShowLimits reads how much one user may hold over all tasks. [Into] keeps their tag for a change. For observers and managers.
func (c *Client) ShowLimits(ctx context.Context, options ...Option) (l assign.Limits, err error) {
	err = c.get(ctx, path("limits"), nil, &l, options)
	return l, err
}

// SetLimits replaces the limits. [IfMatch] is required. For managers.
func (c *Client) SetLimits(ctx context.Context, l assign.Limits, options ...Option) (set assign.Limits, err error) {
	err = c.send(ctx, http.MethodPut, path("limits"), l, &set, options)
	return set, err
}

// DeleteTask hides a task and frees its name; its history stays. It is refused with [assign.InUse] if the task's work is held
// or requests wait. For managers.
func (c *Client) DeleteTask(ctx context.Context, name string, options ...Option) error {
	return c.send(ctx, http.MethodDelete, path("tasks", name), nil, nil, options)
}

// ListVersions reads a task's versions, newest first. For managers.
func (c *Client) ListVersions(ctx context.Context, name string, p Part, options ...Option) (Page[assign.Version], error) {
	return list[assign.Version](ctx, c, path("tasks", name, "versions"), "versions", p.query(), options)
}

// ListTaskLog reads when a task was changed, paused and resumed, and by whom, newest first. For observers and managers.
func (c *Client) ListTaskLog(ctx context.Context, name string, p Part, options ...Option) (Page[assign.TaskChange], error) {
	return list[assign.TaskChange](ctx, c, path("tasks", name, "log"), "log", p.query(), options)
}

// RestoreVersion gives a task the settings of a former version, as a new version. [IfMatch] is optional. For managers.
func (c *Client) RestoreVersion(ctx context.Context, name string, version int, options ...Option) (t assign.Task, err error) {
	err = c.send(ctx, http.MethodPost, path("tasks", name, "versions", strconv.Itoa(version), "restore"), nil, &t, options)
	return t, err
}

// Schema reads the tables and columns that a ranking query may read. For managers.
func (c *Client) Schema(ctx context.Context, options ...Option) (s assign.Schema, err error) {
	err = c.get(ctx, path("schema"), nil, &s, options)
	return s, err
}

// ListRuns reads a task's runs, newest first. For observers and managers.
func (c *Client) ListRuns(ctx context.Context, name string, p Part, options ...Option) (Page[assign.Run], error) {
	return list[assign.Run](ctx, c, path("tasks", name, "runs"), "runs", p.query(), options)
}

// Trial is a query to preview.
type Trial struct {
	Query        assign.Query    `json:"query,omitempty"`         // the task's own if empty
	QueryTimeout assign.Duration `json:"query_timeout,omitempty"` // only for a task that does not exist yet; a new task's if 0
	Slots        int             `json:"slots,omitempty"`         // the same
	Limit        int             `json:"limit,omitempty"`         // how many rows to show; 10 if 0
}

// Preview executes a task's query, or the given one, and returns what a run would hand out; it writes nothing. It takes as long
// as the query, until ctx ends. For managers.
func (c *Client) Preview(ctx context.Context, name string, t Trial, options ...Option) (p assign.Preview, err error) {
	err = c.sendSafe(ctx, http.MethodPost, path("tasks", name, "preview"), t, &p, append([]Option{Within(0)}, options...))
	return p, err
}

// PreviewNew does the same for a task that does not exist yet.
func (c *Client) PreviewNew(ctx context.Context, t Trial, options ...Option) (p assign.Preview, err error) {
	err = c.sendSafe(ctx, http.MethodPost, path("preview"), t, &p, append([]Option{Within(0)}, options...))
	return p, err
}

// Rival is what to compare a task's query with.
type Rival struct {
	assign.Contender          // a query, or the number of one of the task's versions
	Limit            int      `json:"limit,omitempty"` // how many of the best to compare one by one; 100 if 0
	Seed             *float64 `json:"seed,omitempty"`  // from -1 to 1: both queries draw the same random numbers
}

// Compare executes a task's query and the other one on one snapshot, and returns how their rankings differ; it writes nothing. It takes
// as long as both, until ctx ends. For managers.
func (c *Client) Compare(ctx context.Context, name string, r Rival, options ...Option) (found assign.Comparison, err error) {
	err = c.sendSafe(ctx, http.MethodPost, path("tasks", name, "compare"), r, &found, append([]Option{Within(0)}, options...))
	return found, err
}
