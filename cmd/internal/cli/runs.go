package cli

import (
	"context"
	"fmt"
	"strconv"

	"getwork/assign"
	"getwork/cmd/internal/command"
	"getwork/web"
)

type taskRunsCmd struct {
	Name   string `arg:"" help:"The task."`
	paged  `embed:""`
	Remote `embed:""`
}

// Run lists the runs of a task's query.
func (c taskRunsCmd) Run(ctx context.Context, s *command.Streams) error {
	path, err := taskPath(c.Name)
	if err != nil {
		return err
	}
	client, err := c.Connect(web.Observer)
	if err != nil {
		return err
	}
	found, err := c.list(ctx, client, path+"/runs", nil, "runs")
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(s.Out, found)
	}
	runs, err := rowsOf[assign.Run](found)
	if err != nil {
		return err
	}
	if len(runs) == 0 {
		_, err = fmt.Fprintf(s.Errs, "No query of task %s has been run yet.\n", c.Name)
		return err
	}
	rows := make([][]string, len(runs))
	for i, r := range runs {
		took := ""
		if r.DurationMS != nil {
			took = milliseconds(*r.DurationMS)
		}
		rows[i] = []string{strconv.FormatInt(r.ID, 10), moment(&r.StartedAt), took, r.State, strconv.Itoa(r.Version), r.Node,
			number(r.Given), number(r.Blocked), number(r.PassedOver), number(r.Candidates), cut(textOf(r.Error))}
	}
	defer found.more(s)
	heads := []string{"RUN", "STARTED", "TOOK", "STATE", "VERSION", "NODE", "ROWS", "BLOCKED", "PASSED OVER", "CANDIDATES", "ERROR"}
	return Table(s.Out, lean(heads, &rows, 6), rows)
}

func number[T int | int64](n *T) string {
	if n == nil {
		return ""
	}
	return strconv.FormatInt(int64(*n), 10)
}
