package cli

import (
	"context"
	"fmt"
	"net/url"
	"strconv"

	"getwork/assign"
	"getwork/cmd/internal/command"
	"getwork/web"
)

type workHoldersCmd struct {
	Of     *string `help:"Only work that this user holds." placeholder:"USER"`
	Task   *string `help:"Only work of this task, or of several, separated by commas." placeholder:"TASK"`
	paged  `embed:""`
	Remote `embed:""`
}

// Help returns the text that --help adds.
func (workHoldersCmd) Help() string {
	return `Examples:

  getwork work holders
  getwork work holders --task verify,approve --all
  getwork work holders --of tracy

Prints a line for each user and task, with all of the user's instances together. To list what a user holds, item by item, use getwork work list --state held --of USER. For observers and managers.`
}

// Run lists who holds how much.
func (c workHoldersCmd) Run(ctx context.Context, s *command.Streams) error {
	if err := filled(map[string]*string{"--of": c.Of, "--task": c.Task}); err != nil {
		return err
	}
	client, err := c.Connect(web.Observer)
	if err != nil {
		return err
	}
	query := url.Values{}
	for name, value := range map[string]*string{"user": c.Of, "task": c.Task} {
		if value != nil {
			query.Set(name, *value)
		}
	}
	found, err := c.list(ctx, client, "/holders", query, "holders")
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(s.Out, found)
	}
	holders, err := rowsOf[assign.Held](found)
	if err != nil {
		return err
	}
	if len(holders) == 0 {
		_, err = fmt.Fprintln(s.Errs, "Nobody holds such work.")
		return err
	}
	rows := make([][]string, len(holders))
	for i, h := range holders {
		instances := ""
		if h.Instances > 0 {
			instances = strconv.FormatInt(h.Instances, 10)
		}
		rows[i] = []string{h.User, h.Task, strconv.FormatInt(h.Held, 10), moment(&h.OldestAt), moment(h.LeaseExpiresAt), instances}
	}
	defer found.more(s)
	return Table(s.Out, lean([]string{"USER", "TASK", "HELD", "SINCE", "LEASE UNTIL", "INSTANCES"}, &rows, 4), rows)
}
