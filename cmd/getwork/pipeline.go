package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"

	"getwork/assign"
	"getwork/web"
)

// pipelineCmd shows what somebody holds and waits for.
type pipelineCmd struct {
	holding `embed:""`
}

// Help is shown by --help.
func (pipelineCmd) Help() string {
	return "`getwork done WORK-ID` lets go of work that is shown here."
}

// Run prints the pipeline.
func (c pipelineCmd) Run(ctx context.Context, s *streams) error {
	client, err := c.connect(web.Worker)
	if err != nil {
		return err
	}
	var p assign.Pipeline
	got, err := client.do(ctx, call{method: "GET", path: "/pipeline"}, &p)
	switch {
	case err != nil:
		return err
	case c.JSON:
		return printJSON(s.out, got.body)
	case len(p.Work)+len(p.Requests) == 0:
		_, err = fmt.Fprintln(s.errs, "The pipeline is empty. `getwork get TASK` asks for work; `getwork task list` lists the tasks.")
		return err
	}
	if len(p.Work) > 0 {
		if err := printWork(s.out, p.Work); err != nil {
			return err
		}
	}
	if len(p.Work) > 0 && len(p.Requests) > 0 {
		_, _ = fmt.Fprintln(s.out)
	}
	if len(p.Requests) > 0 {
		return printRequests(s.out, p.Requests)
	}
	return nil
}

// printWork lists work: that which is held, or was just closed. Columns that would be empty all the way are left out.
func printWork(w io.Writer, works []assign.Work) error {
	leased := slices.ContainsFunc(works, func(w assign.Work) bool { return w.LeaseExpiresAt != nil })
	heads := []string{"WORK-ID", "TASK", "ITEM", "SINCE"}
	if leased {
		heads = append(heads, "LEASE UNTIL")
	}
	heads = append(heads, "DETAILS")
	rows := make([][]string, len(works))
	for i, work := range works {
		row := []string{strconv.FormatInt(work.ID, 10), work.Task, work.Item, moment(&work.AssignedAt)}
		if leased {
			row = append(row, moment(work.LeaseExpiresAt))
		}
		rows[i] = append(row, details(work.Details))
	}
	return table(w, heads, rows)
}

// printRequests lists requests that wait.
func printRequests(w io.Writer, requests []assign.Request) error {
	rows := make([][]string, len(requests))
	for i, r := range requests {
		var position, eta string
		if r.Position != nil {
			position = strconv.FormatInt(*r.Position, 10)
		}
		if r.EtaSeconds != nil {
			eta = fmt.Sprintf("%.0fs", *r.EtaSeconds)
		}
		rows[i] = []string{strconv.FormatInt(r.ID, 10), r.Task, strconv.Itoa(r.Wanted), moment(&r.CreatedAt), position, eta}
	}
	return table(w, []string{"WAITING", "TASK", "WANTED", "SINCE", "POSITION", "ABOUT"}, rows)
}
