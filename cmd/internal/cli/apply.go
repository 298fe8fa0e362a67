package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"getwork/cmd/internal/command"
	"getwork/web"
)

type taskApplyCmd struct {
	Files  []string `short:"f" name:"file" sep:"none" required:"" help:"YAML file with one or more tasks; - is standard input. May be repeated." placeholder:"task.yaml" complete:"file"`
	Remote `embed:""`
}

// Help returns the text that --help adds.
func (taskApplyCmd) Help() string {
	return `Fields that a file does not name stay as they are, so a paused task stays paused. A line of three hyphens separates the tasks of a file.

` + fileHelp
}

// Run creates or updates the tasks in the files. If one is refused, the others are still applied.
func (c taskApplyCmd) Run(ctx context.Context, s *command.Streams) error {
	var wanted []TaskFields
	for _, name := range c.Files {
		tasks, err := readTasks(ctx, name)
		if err != nil {
			return err
		}
		for i, t := range tasks {
			if t.Name == nil {
				return command.Usage("%s: task %d has no name", name, i+1)
			}
		}
		wanted = append(wanted, tasks...)
	}
	client, err := c.Connect(web.Manager)
	if err != nil {
		return err
	}
	type result struct {
		Result string          `json:"result"`
		Task   json.RawMessage `json:"task"`
	}
	results := []result{}
	var failed []error
	for _, w := range wanted {
		done, err := client.apply(ctx, w)
		if err != nil {
			failed = append(failed, named(fmt.Sprintf("task %q", *w.Name), err))
			if refusal := new(refused); errors.As(err, &refusal) {
				continue
			}
			break // the server can't be reached: the rest would fail, too
		}
		results = append(results, result{done.what, done.task.raw})
		if !c.JSON {
			failed = append(failed, done.print(s, false))
		}
	}
	if c.JSON {
		failed = append(failed, printJSON(s.Out, map[string]any{"applied": results}))
	}
	return errors.Join(failed...)
}

// apply creates the task, or updates it if a task of that name exists.
func (c *Client) apply(ctx context.Context, wanted TaskFields) (change, error) {
	done, err := c.Update(ctx, *wanted.Name, wanted)
	if !IsRefused(err, http.StatusNotFound) {
		return done, err
	}
	if !wanted.Query.named {
		return change{}, fmt.Errorf("there is no such task, and to create it the file must have its query; query: null makes it an inbox, to which items are pushed")
	}
	t, err := c.Create(ctx, wanted)
	if IsRefused(err, http.StatusConflict) { // another client created it just now
		return c.Update(ctx, *wanted.Name, wanted)
	}
	return change{t, "created", nil}, err
}

// change tells what happened to a task.
type change struct {
	task   remoteTask
	what   string   // created, updated or unchanged
	fields []string // the fields that were changed
}

func (c change) print(s *command.Streams, asJSON bool) error {
	if asJSON {
		return printJSON(s.Out, c.task.raw)
	}
	text := fmt.Sprintf("task %s %s (version %d)", c.task.Name, c.what, c.task.Version)
	if len(c.fields) > 0 {
		text += ": " + strings.Join(c.fields, ", ")
	}
	_, err := fmt.Fprintln(s.Out, text)
	return err
}
