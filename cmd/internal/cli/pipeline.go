package cli

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"

	"getwork/assign"
	"getwork/cmd/internal/command"
	"getwork/web"
)

// PipelineCmd shows the work that a user holds and the requests that wait.
type PipelineCmd struct {
	Of      *string `help:"For managers: whose pipeline; the default is yours." placeholder:"USER"`
	holding `embed:""`
}

// Help returns the text that --help adds.
func (PipelineCmd) Help() string {
	return "`getwork done WORK-ID` lets go of work that is shown here. Work with a lease goes back when the lease ends: `getwork work extend WORK-ID` renews it."
}

// Run prints the pipeline.
func (c PipelineCmd) Run(ctx context.Context, s *command.Streams) error {
	if err := filled(map[string]*string{"--of": c.Of}); err != nil {
		return err
	}
	role, path := web.Worker, "/pipeline"
	if c.Of != nil {
		role, path = web.Manager, "/pipeline?"+url.Values{"user": {*c.Of}}.Encode()
	}
	client, err := c.connect(role)
	if err != nil {
		return err
	}
	var p assign.Pipeline
	got, err := client.Do(ctx, Call{Method: "GET", Path: path}, &p)
	switch {
	case err != nil:
		return err
	case c.JSON:
		return printJSON(s.Out, got.body)
	case len(p.Work)+len(p.Requests) == 0:
		_, err = fmt.Fprintln(s.Errs, "The pipeline is empty. `getwork get TASK` asks for work; `getwork task list` lists the tasks.")
		return err
	}
	if len(p.Work) > 0 {
		if err := printWork(s.Out, p.Work); err != nil {
			return err
		}
	}
	if len(p.Work) > 0 && len(p.Requests) > 0 {
		_, _ = fmt.Fprintln(s.Out)
	}
	if len(p.Requests) > 0 {
		return printRequests(s.Out, p.Requests)
	}
	return nil
}

// printWork lists held work. Columns that are empty in every row are left out.
func printWork(w io.Writer, works []assign.Work) error {
	rows := make([][]string, len(works))
	for i, work := range works {
		rows[i] = []string{strconv.FormatInt(work.ID, 10), work.Task, work.Item, minute(&work.AssignedAt),
			minute(work.LeaseExpiresAt), minute(work.Deadline), minute(work.LaterUntil), attempt(works, work), detailsOf(work)}
	}
	return Table(w, lean([]string{"WORK-ID", "TASK", "ITEM", "SINCE", "LEASE UNTIL", "DEADLINE", "LATER", "ATTEMPT", "DETAILS"}, &rows, 4), rows)
}

// detailsOf returns work's details for a line.
func detailsOf(w assign.Work) string {
	if w.DetailsLeftOut {
		return fmt.Sprintf("too large for this list: getwork work show %d --json", w.ID)
	}
	return details(w.Details)
}

// attempt returns how often work's item has been tried, this time included, or nothing if every item is at its first
// attempt.
func attempt(works []assign.Work, work assign.Work) string {
	if !slices.ContainsFunc(works, func(w assign.Work) bool { return w.Attempt > 1 }) {
		return ""
	}
	return strconv.Itoa(work.Attempt)
}

// printRequests lists waiting requests.
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
		rows[i] = []string{strconv.FormatInt(r.ID, 10), r.Task, strconv.Itoa(r.Wanted), minute(&r.CreatedAt), position, eta, minute(r.LingerUntil)}
	}
	return Table(w, lean([]string{"WAITING", "TASK", "WANTED", "SINCE", "POSITION", "ABOUT", "AT MOST UNTIL"}, &rows, 6), rows)
}
