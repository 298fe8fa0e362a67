package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"getwork/assign"
	"getwork/cmd/internal/command"
	"getwork/web"
)

// DoneCmd lets go of work.
type DoneCmd struct {
	IDs     []string       `arg:"" name:"work-id" help:"The work to let go of; get and pipeline show its id."`
	Outcome string         `help:"complete: it is done. return: it goes back to the queue after --after. never: nobody gets it for this task again. fail: the attempt went wrong; it comes back after the task's backoff." default:"complete" enum:"complete,return,never,fail" placeholder:"complete|return|never|fail"`
	After   *time.Duration `help:"With --outcome return: how long until somebody may get it again, from 0s to 72h." placeholder:"4h"`
	To      *string        `help:"With --outcome return: all, or others, so that you don't get it again." enum:"all,others" placeholder:"all|others"`
	Error   *string        `help:"With --outcome fail: what went wrong, in at most 4 KiB." placeholder:"TEXT"`
	Note    *string        `help:"A note to keep with the work, of at most 4 KiB." placeholder:"TEXT"`
	holding `embed:""`
}

// Help returns the text that --help adds.
func (DoneCmd) Help() string {
	return `Examples:

  getwork done 17 18
  getwork done 17 --outcome return --after 4h --note "called, no answer"
  getwork done 17 --outcome return --after 0s --to others
  getwork done 17 --outcome fail --error "the photo is broken"
  getwork done 17 --outcome never

Repeating a command changes nothing. Managers may let go of other people's work: --role manager.`
}

func (c DoneCmd) disposition() (assign.Disposition, error) {
	d := assign.Disposition{Outcome: c.Outcome, After: (*assign.Duration)(c.After), To: c.To, Error: c.Error, Note: c.Note}
	switch {
	case c.Outcome == "return" && c.After == nil:
		return d, command.Usage("--outcome return needs --after, from 0s to 72h: how long until somebody may get it again")
	case c.Outcome != "return" && c.After != nil:
		return d, command.Usage("--after belongs to --outcome return, not to %s", c.Outcome)
	case c.Outcome != "return" && c.To != nil:
		return d, command.Usage("--to belongs to --outcome return, not to %s", c.Outcome)
	case c.Outcome != "fail" && c.Error != nil:
		return d, command.Usage("--error belongs to --outcome fail, not to %s; --note goes with any", c.Outcome)
	case c.After != nil && (*c.After < 0 || *c.After > 72*time.Hour):
		return d, command.Usage("--after must be from 0s to 72h, not %s", assign.Duration(*c.After))
	}
	return d, nil
}

// Run closes the work one id after the other. If one is refused, the rest are still closed.
func (c DoneCmd) Run(ctx context.Context, s *command.Streams) error {
	d, err := c.disposition()
	if err != nil {
		return err
	}
	if err := checkIDs(c.IDs...); err != nil {
		return err
	}
	client, err := c.connect(web.Worker)
	if err != nil {
		return err
	}
	closed := []json.RawMessage{}
	var rows [][]string
	var failed []error
	for _, id := range c.IDs {
		var w assign.Work
		got, err := client.Do(ctx, Call{Method: "POST", Path: "/work/" + url.PathEscape(id) + "/disposition", Body: d}, &w)
		if err != nil {
			failed = append(failed, named("work "+id, err))
			if refusal := new(refused); errors.As(err, &refusal) {
				continue
			}
			break // the server can't be reached: the rest would fail, too
		}
		closed = append(closed, got.body)
		rows = append(rows, []string{strconv.FormatInt(w.ID, 10), w.Task, w.Item, string(w.State), moment(w.AvailableAt)})
	}
	switch {
	case c.JSON:
		err = printJSON(s.Out, map[string]any{"work": closed})
	case len(rows) > 0:
		err = Table(s.Out, lean([]string{"WORK-ID", "TASK", "ITEM", "STATE", "AGAIN FROM"}, &rows, 4), rows)
	}
	return errors.Join(append(failed, err)...)
}

// checkIDs returns a usage error for an id that can't be one, before anything is done with the others.
func checkIDs(ids ...string) error {
	for _, id := range ids {
		if _, err := strconv.ParseUint(id, 10, 63); err != nil {
			return command.Usage("an id of work is a number, not %q; `getwork pipeline` lists yours", id)
		}
	}
	return nil
}

// named puts the subject of an error before it, unless its text names the subject.
func named(noun string, err error) error {
	if strings.Contains(err.Error(), noun) {
		return err
	}
	return fmt.Errorf("%s: %w", noun, err)
}
