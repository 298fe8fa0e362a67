package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"getwork/assign"
	"getwork/cmd/internal/command"
	"getwork/web"
)

type taskVersionsCmd struct {
	Name   string `arg:"" help:"The task."`
	paged  `embed:""`
	Remote `embed:""`
}

// Help returns the text that --help adds.
func (taskVersionsCmd) Help() string {
	return "Every change of a task makes a version, except pausing and resuming it, which `getwork task log` lists; --json prints versions in full. `getwork task restore` goes back to one. For managers."
}

// Run lists the versions of a task.
func (c taskVersionsCmd) Run(ctx context.Context, s *command.Streams) error {
	path, err := taskPath(c.Name)
	if err != nil {
		return err
	}
	client, err := c.Connect(web.Manager)
	if err != nil {
		return err
	}
	found, err := c.list(ctx, client, path+"/versions", nil, "versions")
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(s.Out, found)
	}
	versions, err := rowsOf[assign.Version](found)
	if err != nil {
		return err
	}
	rows := make([][]string, len(versions))
	for i, v := range versions {
		changed := "created"
		if v.Version > 1 {
			changed = "" // the version before is on the next page
		}
		if i+1 < len(versions) {
			fields, err := changedFields(found.rows[i+1], found.rows[i])
			if err != nil {
				return err
			}
			changed = strings.Join(fields, ", ")
		}
		rows[i] = []string{strconv.Itoa(v.Version), moment(&v.CreatedAt), v.CreatedBy, changed}
	}
	defer found.more(s)
	return Table(s.Out, []string{"VERSION", "SINCE", "BY", "CHANGED"}, rows)
}

type taskLogCmd struct {
	Name   string `arg:"" help:"The task."`
	paged  `embed:""`
	Remote `embed:""`
}

// Help returns the text that --help adds.
func (taskLogCmd) Help() string {
	return "`getwork task versions` says what each change was. For observers and managers."
}

// Run lists when a task was changed, paused and resumed.
func (c taskLogCmd) Run(ctx context.Context, s *command.Streams) error {
	path, err := taskPath(c.Name)
	if err != nil {
		return err
	}
	client, err := c.Connect(web.Observer)
	if err != nil {
		return err
	}
	found, err := c.list(ctx, client, path+"/log", nil, "log")
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(s.Out, found)
	}
	changes, err := rowsOf[assign.TaskChange](found)
	if err != nil {
		return err
	}
	rows := make([][]string, len(changes))
	for i, change := range changes {
		rows[i] = []string{moment(&change.At), change.Act, strconv.Itoa(change.Version), change.By}
	}
	defer found.more(s)
	return Table(s.Out, []string{"AT", "WAS", "VERSION", "BY"}, rows)
}

// changedFields returns the names of the settings in which two versions differ.
func changedFields(before, after json.RawMessage) ([]string, error) {
	var a, b map[string]json.RawMessage
	if err := json.Unmarshal(before, &a); err != nil {
		return nil, fmt.Errorf("read versions: %w", err)
	}
	if err := json.Unmarshal(after, &b); err != nil {
		return nil, fmt.Errorf("read versions: %w", err)
	}
	var fields []string
	for field, value := range b {
		if !slices.Contains([]string{"version", "created_at", "created_by"}, field) && string(value) != string(a[field]) {
			fields = append(fields, field)
		}
	}
	slices.Sort(fields)
	return fields, nil
}

type taskRestoreCmd struct {
	Name    string `arg:"" help:"The task."`
	Version int    `arg:"" help:"The version to go back to, as getwork task versions lists them."`
	Remote  `embed:""`
}

// Help returns the text that --help adds.
func (taskRestoreCmd) Help() string {
	return "The settings of that version become a new version. The task's name stays as it is, and a paused task stays paused. For managers."
}

// Run restores an earlier version.
func (c taskRestoreCmd) Run(ctx context.Context, s *command.Streams) error {
	path, err := taskPath(c.Name)
	if err != nil {
		return err
	}
	if c.Version < 1 {
		return command.Usage("a version must be 1 or more, not %d; `getwork task versions %s` lists them", c.Version, c.Name)
	}
	client, err := c.Connect(web.Manager)
	if err != nil {
		return err
	}
	t, err := client.doTask(ctx, Call{Method: "POST", Path: path + "/versions/" + strconv.Itoa(c.Version) + "/restore"})
	switch {
	case err != nil:
		return err
	case c.JSON:
		return printJSON(s.Out, t.raw)
	}
	_, err = fmt.Fprintf(s.Out, "task %s is as it was in version %d (version %d now)\n", t.Name, c.Version, t.Version)
	return err
}
