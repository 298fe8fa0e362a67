package cli

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	"getwork/assign"
	"getwork/cmd/internal/command"
	"getwork/web"
)

// ItemsCmd has the commands for the items of a task, which are named by their keys.
type ItemsCmd struct {
	Push    itemsPushCmd    `cmd:"" help:"Push items to an inbox, which is a task without a query."`
	Show    itemsShowCmd    `cmd:"" help:"Explain an item: whether it matches, who holds it, what keeps it back."`
	Claim   itemsClaimCmd   `cmd:"" help:"Take one named item."`
	Redrive itemsRedriveCmd `cmd:"" help:"Put back items that were never to be handed out again."`
}

// itemsPath returns the path of a task's items, or of one of them. It returns a usage error if a name is empty.
func itemsPath(task string, item ...string) (string, error) {
	path, err := taskPath(task)
	if err != nil {
		return "", err
	}
	path += "/items"
	for _, key := range item {
		if key == "" {
			return "", command.Usage("name an item by its key, which has at least one character")
		}
		path += "/" + url.PathEscape(key)
	}
	return path, nil
}

type itemsClaimCmd struct {
	Task    string `arg:"" help:"The task."`
	Item    string `arg:"" help:"The item's key."`
	holding `embed:""`
}

// Help returns the text that --help adds.
func (itemsClaimCmd) Help() string {
	return "Exits with 0 if the item is yours now, even if it was before. Exits with 1 if somebody else holds it, all its places are taken, it is put off, a rule keeps it from you, or it does not match the task."
}

// Run claims one item.
func (c itemsClaimCmd) Run(ctx context.Context, s *command.Streams) error {
	path, err := itemsPath(c.Task, c.Item)
	if err != nil {
		return err
	}
	client, err := c.connect(web.Worker)
	if err != nil {
		return err
	}
	var w assign.Work
	got, err := client.Do(ctx, Call{Method: "POST", Path: path + "/claim", query: true}, &w)
	switch {
	case err != nil:
		return err
	case c.JSON:
		return printJSON(s.Out, got.body)
	case got.Status == http.StatusOK:
		_, _ = fmt.Fprintln(s.Errs, "It was yours already.")
	}
	return printWork(s.Out, []assign.Work{w})
}

type itemsRedriveCmd struct {
	Task   string   `arg:"" help:"The task."`
	Items  []string `arg:"" optional:"" name:"item" help:"Keys of items, no matter who set them to never."`
	All    bool     `help:"All items whose attempts were used up. Items that somebody set to never must be named."`
	Remote `embed:""`
}

// Help returns the text that --help adds.
func (itemsRedriveCmd) Help() string {
	return "Items that are put back can be handed out again at once, and their next attempt is the first again. Items that were not set to never are left as they are and not counted. For managers."
}

// Run puts items back.
func (c itemsRedriveCmd) Run(ctx context.Context, s *command.Streams) error {
	path, err := taskPath(c.Task)
	switch {
	case err != nil:
		return err
	case c.All == (len(c.Items) > 0):
		return command.Usage("name the items to put back, or give --all for those whose attempts were used up")
	}
	client, err := c.Connect(web.Manager)
	if err != nil {
		return err
	}
	body := map[string][]string{}
	if !c.All {
		body["items"] = c.Items
	}
	var done struct {
		Count int `json:"count"`
	}
	got, err := client.Do(ctx, Call{Method: "POST", Path: path + "/redrive", Body: body}, &done)
	switch {
	case err != nil:
		return err
	case c.JSON:
		return printJSON(s.Out, got.body)
	}
	if left := len(slices.Compact(slices.Sorted(slices.Values(c.Items)))) - done.Count; left > 0 {
		_, _ = fmt.Fprintf(s.Errs, "not set to never, and left alone: %s; `getwork items show` tells an item's state\n", counted(left, "item"))
	}
	_, err = fmt.Fprintf(s.Out, "%s of task %s put back\n", counted(done.Count, "item"), c.Task)
	return err
}
