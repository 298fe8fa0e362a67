package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"getwork/assign"
	"getwork/cmd/internal/command"
	"getwork/web"
)

// AlertsCmd lists what is wrong with tasks now.
type AlertsCmd struct {
	Remote `embed:""`
}

// Help returns the text that --help adds.
func (AlertsCmd) Help() string {
	return `Most urgent first: failing, a task's query fails; unserved, somebody has waited for longer than the task's alert_waiting and no node has looked for them; late, the deadline of items is over; backlog, the oldest item is older than its alert_backlog_age. Of a paused task only what is late.

Exits with 1 if there are any. For observers and managers.`
}

// errAlerts ends the program with status 1. The alerts are printed already.
var errAlerts = errors.New("something is wrong; see the alerts above")

// Run prints the alerts.
func (c AlertsCmd) Run(ctx context.Context, s *command.Streams) error {
	client, err := c.Connect(web.Observer)
	if err != nil {
		return err
	}
	var alerts []assign.Alert
	got, err := client.Do(ctx, Call{Method: "GET", Path: "/alerts"}, &alerts)
	switch {
	case err != nil:
		return err
	case c.JSON:
		err = printJSON(s.Out, got.body)
	case len(alerts) == 0:
		_, err = fmt.Fprintln(s.Errs, "There are no alerts.")
	default:
		rows := make([][]string, len(alerts))
		for i, a := range alerts {
			rows[i] = []string{string(a.Kind), a.Task, minute(&a.Since), strconv.FormatInt(a.Count, 10), a.Detail}
		}
		err = Table(s.Out, lean([]string{"ALERT", "TASK", "SINCE", "COUNT", "DETAIL"}, &rows, 4), rows)
	}
	if err == nil && len(alerts) > 0 {
		err = errAlerts
	}
	return err
}
