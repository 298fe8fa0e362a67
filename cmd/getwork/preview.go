package main

import (
	"context"
	"fmt"
	"strconv"

	"getwork/assign"
	"getwork/web"
)

type taskPreviewCmd struct {
	Name      string  `arg:"" help:"The task whose query, or in whose place another query, is to be tried."`
	Query     *string `help:"Try this SELECT instead of the task's." xor:"query" placeholder:"SQL"`
	QueryFile string  `help:"Try the query in this file; - is standard input." xor:"query" placeholder:"FILE" complete:"file"`
	Limit     int     `help:"How many rows to show, at most 100." default:"10" placeholder:"N"`
	remote    `embed:""`
}

// Help is shown by --help.
func (taskPreviewCmd) Help() string {
	return "Runs the query as a run of the task would, for no longer than its query_timeout, and shows the best items that could be handed out. Nothing is written and nobody gets anything. --json has PostgreSQL's plan, too. For managers."
}

// Run previews.
func (c taskPreviewCmd) Run(ctx context.Context, s *streams) error {
	path, err := taskPath(c.Name)
	if err != nil {
		return err
	}
	if c.Limit < 1 || c.Limit > 100 {
		return usage("--limit is from 1 to 100, not %d", c.Limit)
	}
	body := struct {
		Query *string `json:"query,omitempty"`
		Limit int     `json:"limit"`
	}{c.Query, c.Limit}
	if c.QueryFile != "" {
		b, err := readFile(ctx, c.QueryFile)
		if err != nil {
			return err
		}
		body.Query = new(string(b))
	}
	client, err := c.connect(web.Manager)
	if err != nil {
		return err
	}
	var p assign.Preview
	got, err := client.do(ctx, call{method: "POST", path: path + "/preview", body: body, query: true}, &p)
	switch {
	case err != nil:
		return err
	case c.JSON:
		return printJSON(s.out, got.body)
	}
	return c.print(s, p)
}

func (c taskPreviewCmd) print(s *streams, p assign.Preview) error {
	rows := make([][]string, len(p.Rows))
	for i, r := range p.Rows {
		slots := ""
		if r.Slots > 1 {
			slots = strconv.Itoa(r.Slots)
		}
		rows[i] = []string{strconv.FormatInt(r.Rank, 10), r.Item, slots, textOf(r.Exclusive), details(r.Details)}
	}
	if len(rows) > 0 {
		if err := table(s.out, lean([]string{"RANK", "ITEM", "PLACES", "GROUP", "DETAILS"}, &rows, 2), rows); err != nil {
			return err
		}
		_, _ = fmt.Fprintln(s.out)
	}
	_, err := fmt.Fprintf(s.out, "The query gave %s in %s: %d held or put off, %d passed over for want of a usable item. Planned cost: %.0f.\n",
		counted(int(p.Given), "row"), milliseconds(p.DurationMS), p.Blocked, p.PassedOver, p.Cost)
	return err
}

// milliseconds writes how long something took.
func milliseconds(ms float64) string {
	if ms < 1000 {
		return fmt.Sprintf("%.0f ms", ms)
	}
	return fmt.Sprintf("%.1f s", ms/1000)
}
