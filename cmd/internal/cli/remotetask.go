package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"

	"github.com/goccy/go-yaml"

	"getwork/assign"
	"getwork/cmd/internal/command"
)

// remoteTask is a task as the server has it.
type remoteTask struct {
	assign.Task
	tag string // its ETag
	raw json.RawMessage
}

func taskPath(name string) (string, error) {
	if name == "" {
		return "", command.Usage("name a task; `getwork task list` lists them")
	}
	return "/tasks/" + url.PathEscape(name), nil
}

// Task reads a task as the server sends it.
func (c *Client) Task(ctx context.Context, name string) (remoteTask, error) {
	path, err := taskPath(name)
	if err != nil {
		return remoteTask{}, err
	}
	return c.doTask(ctx, Call{Method: "GET", Path: path})
}

// Create creates a task and returns it as the server sends it.
func (c *Client) Create(ctx context.Context, wanted TaskFields) (remoteTask, error) {
	return c.doTask(ctx, Call{Method: "POST", Path: "/tasks", Body: wanted})
}

func (c *Client) doTask(ctx context.Context, what Call) (remoteTask, error) {
	var t remoteTask
	got, err := c.Do(ctx, what, &t.Task)
	t.tag, t.raw = got.Tag(), got.body
	return t, err
}

// Update changes the settings that differ from the wanted ones, if any do. If another client changes the task between
// the read and the write, Update repeats both once.
func (c *Client) Update(ctx context.Context, name string, wanted TaskFields) (change, error) {
	done, err := c.updateOnce(ctx, name, wanted)
	if IsRefused(err, http.StatusPreconditionFailed) {
		done, err = c.updateOnce(ctx, name, wanted)
	}
	return done, err
}

func (c *Client) updateOnce(ctx context.Context, name string, wanted TaskFields) (change, error) {
	t, err := c.Task(ctx, name)
	if err != nil {
		return change{}, err
	}
	values, err := wanted.values()
	if err != nil {
		return change{}, err
	}
	var current map[string]any
	if err := json.Unmarshal(t.raw, &current); err != nil {
		return change{}, fmt.Errorf("read task %s: %w", name, err)
	}
	maps.DeleteFunc(values, func(field string, value any) bool {
		return reflect.DeepEqual(asSet(field, value), asSet(field, current[field]))
	})
	if len(values) == 0 {
		return change{t, "unchanged", nil}, nil
	}
	path, err := taskPath(name)
	if err != nil {
		return change{}, err
	}
	header := map[string]string{"If-Match": t.tag}
	if _, paused := values["paused"]; paused && len(values) == 1 {
		header = nil // whoever else changes the task at the same time is no reason not to pause it
	}
	t, err = c.doTask(ctx, Call{Method: "PATCH", Path: path, Body: values, header: header})
	return change{t, "updated", slices.Sorted(maps.Keys(values))}, err
}

// asSet returns the names of a field in which neither order nor repetition matters in one order, and other values as they are. The
// server sends such names sorted, so that a file with another order would make a new version each time.
func asSet(field string, value any) any {
	names, isList := value.([]any)
	if !isList || field != "groups" && field != "conflicts_with" {
		return value
	}
	sorted := make([]string, 0, len(names))
	for _, name := range names {
		sorted = append(sorted, fmt.Sprint(name))
	}
	slices.Sort(sorted)
	return slices.Compact(sorted)
}

// print writes the task as a file that apply reads, under comments that tell its state.
func (t remoteTask) print(w io.Writer) error {
	var fields TaskFields
	if err := json.Unmarshal(t.raw, &fields); err != nil {
		return fmt.Errorf("read task %s: %w", t.Name, err)
	}
	durations := yaml.CustomMarshaler(func(d assign.Duration) ([]byte, error) { return []byte(d.String()), nil })
	b, err := yaml.MarshalWithOptions(fields, durations, yaml.UseLiteralStyleIfMultiline(true))
	if err != nil {
		return fmt.Errorf("write task %s: %w", t.Name, err)
	}
	// go-yaml can't write every text so that it reads back the same, such as lines that end with blanks. JSON is YAML,
	// too, and can express everything.
	if again, err := readTask(string(b)); err != nil || !reflect.DeepEqual(again, fields) {
		var quoted bytes.Buffer
		e := json.NewEncoder(&quoted)
		e.SetEscapeHTML(false)
		e.SetIndent("", "  ")
		if err := e.Encode(fields); err != nil {
			return fmt.Errorf("write task %s: %w", t.Name, err)
		}
		b = quoted.Bytes()
	}
	_, err = fmt.Fprintf(w, "# version %d; %d waiting, %d held, %d on the shelf\n%s", t.Version, t.Waiting, t.Held, t.Shelf, b)
	return err
}
