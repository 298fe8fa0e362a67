package cli

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"getwork/assign"
	"getwork/cmd/internal/command"
	"getwork/web"
)

type taskPreviewCmd struct {
	Name      string  `arg:"" optional:"" help:"The task to preview, with its own query or another."`
	File      string  `short:"f" help:"Try the query of the task in this YAML file, whether or not that task exists; - is standard input." placeholder:"task.yaml" complete:"file"`
	Query     *string `help:"Try this SELECT instead." xor:"query" placeholder:"SQL"`
	QueryFile string  `help:"Try the query in this file; - is standard input." xor:"query" placeholder:"FILE" complete:"file"`
	Limit     int     `help:"How many rows to show, at most 100." default:"10" placeholder:"N"`
	Remote    `embed:""`
}

// Help returns the text that --help adds.
func (taskPreviewCmd) Help() string {
	return `Examples:

  getwork task preview review-photos
  getwork task preview review-photos --query-file photos.sql
  getwork task preview -f task.yaml
  getwork task preview --query "select id as item from photo order by uploaded_at"

Runs the query as a run of the task would, for no longer than its query_timeout, and shows the best items that could be handed out. Nothing is written, and no work is handed out. --json has PostgreSQL's plan, too. For managers.

A file may describe a task that does not exist yet: its query is tried with the query_timeout and slots of the file, and nothing counts as held or put off. If the task exists, the file's query is tried in place of its own, with the task's other settings. Without a file and a task's name the query is tried for no task.`
}

// Run previews.
func (c taskPreviewCmd) Run(ctx context.Context, s *command.Streams) error {
	if c.Limit < 1 || c.Limit > 100 {
		return command.Usage("--limit must be from 1 to 100, not %d", c.Limit)
	}
	tried, err := c.tried(ctx)
	if err != nil {
		return err
	}
	client, err := c.Connect(web.Manager)
	if err != nil {
		return err
	}
	var p assign.Preview
	got, err := c.ask(ctx, client, tried, &p)
	switch {
	case err != nil:
		return err
	case c.JSON:
		return printJSON(s.Out, got.body)
	}
	return c.print(s, p)
}

// tried returns what the file and the flags say of the task. Its errors are wrong uses of the command line.
func (c taskPreviewCmd) tried(ctx context.Context) (TaskFields, error) {
	var t TaskFields
	if c.File != "" {
		tasks, err := readTasks(ctx, c.File)
		if err != nil {
			return t, err
		}
		if len(tasks) > 1 {
			tasks = slices.DeleteFunc(tasks, func(t TaskFields) bool { return textOf(t.Name) != c.Name })
		}
		if len(tasks) != 1 {
			return t, command.Usage("%s has several tasks; name the one whose query to try: getwork task preview NAME -f %[1]s", c.File)
		}
		t = tasks[0]
	}
	if c.Name != "" {
		t.Name = &c.Name
	}
	if c.Query != nil {
		t.Query = SetTo(*c.Query)
	}
	if c.QueryFile != "" {
		b, err := readFile(ctx, c.QueryFile)
		if err != nil {
			return t, err
		}
		t.Query = SetTo(string(b))
	}
	switch {
	case t.Query.named && t.Query.value == nil:
		return t, command.Usage("the task in %s is an inbox, which has no query to try", c.File)
	case t.Name == nil && !t.Query.named:
		return t, command.Usage("name a task, or the query to try: -f FILE, --query or --query-file")
	}
	return t, nil
}

// ask has a node try the query: for the task if it exists, and otherwise for no task if a file describes it.
func (c taskPreviewCmd) ask(ctx context.Context, client *Client, t TaskFields, p *assign.Preview) (reply, error) {
	body := struct {
		Query        *string          `json:"query,omitempty"`
		QueryTimeout *assign.Duration `json:"query_timeout,omitempty"`
		Slots        *int             `json:"slots,omitempty"`
		Limit        int              `json:"limit"`
	}{Query: t.Query.value, Limit: c.Limit}
	if t.Name != nil {
		path, err := taskPath(*t.Name)
		if err != nil {
			return reply{}, err
		}
		got, err := client.Do(ctx, Call{Method: "POST", Path: path + "/preview", Body: body, query: true}, p)
		if c.File == "" || body.Query == nil || !IsRefused(err, http.StatusNotFound) {
			return got, err
		}
	}
	body.QueryTimeout, body.Slots = t.QueryTimeout, t.Slots
	return client.Do(ctx, Call{Method: "POST", Path: "/preview", Body: body, query: true}, p)
}

func (c taskPreviewCmd) print(s *command.Streams, p assign.Preview) error {
	rows := make([][]string, len(p.Rows))
	for i, r := range p.Rows {
		slots := ""
		if r.Slots > 1 {
			slots = strconv.Itoa(r.Slots)
		}
		rows[i] = []string{strconv.FormatInt(r.Rank, 10), r.Item, slots, textOf(r.Exclusive), details(r.Details)}
	}
	if len(rows) > 0 {
		if err := Table(s.Out, lean([]string{"RANK", "ITEM", "PLACES", "GROUP", "DETAILS"}, &rows, 2), rows); err != nil {
			return err
		}
		_, _ = fmt.Fprintln(s.Out)
	}
	_, err := fmt.Fprintf(s.Out, "The query gave %s in %s: %d held or put off, %d skipped for want of a usable item. Planned cost: %.0f.\n",
		counted(int(p.Given), "row"), milliseconds(p.DurationMS), p.Blocked, p.PassedOver, p.Cost)
	return err
}

// milliseconds formats a duration.
func milliseconds(ms float64) string {
	if ms < 1000 {
		return fmt.Sprintf("%.0f ms", ms)
	}
	return fmt.Sprintf("%.1f s", ms/1000)
}
