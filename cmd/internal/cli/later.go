package cli

import (
	"context"
	"net/url"
	"time"

	"getwork/assign"
	"getwork/cmd/internal/command"
	"getwork/web"
)

// LaterCmd puts held work aside.
type LaterCmd struct {
	ID     string `arg:"" name:"work-id" help:"The work to put aside; get and pipeline show its id."`
	Until  string `arg:"" help:"Until when: a time from now such as 2h, or a time such as \"2030-01-31 08:00\" in this machine's zone, within 72 hours; off takes the work up again." placeholder:"TIME"`
	Remote `embed:""`
}

// Help returns the text that --help adds.
func (LaterCmd) Help() string {
	return `Examples:

  getwork later 17 2h
  getwork later 17 off

The work stays yours, and counts in limits; nobody else gets it meanwhile. A lease begins anew when it is due.`
}

// Run puts the work aside, or takes it up again.
func (c LaterCmd) Run(ctx context.Context, s *command.Streams) error {
	if err := checkIDs(c.ID); err != nil {
		return err
	}
	body := map[string]*time.Time{"until": nil}
	if c.Until != "off" {
		at, err := timeOf("the time", c.Until, time.Now())
		if err != nil {
			return err
		}
		body["until"] = &at
	}
	client, err := c.Connect(web.Worker)
	if err != nil {
		return err
	}
	var w assign.Work
	got, err := client.Do(ctx, Call{Method: "POST", Path: "/work/" + url.PathEscape(c.ID) + "/later", Body: body}, &w)
	switch {
	case err != nil:
		return err
	case c.JSON:
		return printJSON(s.Out, got.body)
	}
	return printWork(s.Out, []assign.Work{w})
}
