package cli

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"

	"getwork/assign"
	"getwork/cmd/internal/command"
	"getwork/web"
)

type itemsShowCmd struct {
	Task   string `arg:"" help:"The task."`
	Item   string `arg:"" help:"The item's key."`
	Remote `embed:""`
}

// Help returns the text that --help adds.
func (itemsShowCmd) Help() string {
	return "If the task has a query and no fresh result, the query is run to look for the item, for up to its query_timeout; Ctrl-C gives up. For managers."
}

// Run explains one item.
func (c itemsShowCmd) Run(ctx context.Context, s *command.Streams) error {
	path, err := itemsPath(c.Task, c.Item)
	if err != nil {
		return err
	}
	client, err := c.Connect(web.Manager)
	if err != nil {
		return err
	}
	var e assign.Explanation
	shown := command.NewProgress(s).Count("Asking the task’s query")
	got, err := client.Do(ctx, Call{Method: "GET", Path: path, query: true}, &e)
	shown()
	switch {
	case err != nil:
		return err
	case c.JSON:
		return printJSON(s.Out, got.body)
	}
	return printExplanation(s.Out, e)
}

func printExplanation(w io.Writer, e assign.Explanation) error {
	var b strings.Builder
	say := func(name, value string) {
		if value != "" {
			_, _ = fmt.Fprintf(&b, "%-9s %s\n", name, plain(value))
		}
	}
	_, _ = fmt.Fprintf(&b, "%s, of task %s\n%s\n\n", plain(e.Item), plain(e.Task), plain(e.Text))
	say("matches", matchText(e))
	say("places", strconv.Itoa(e.Slots))
	say("group", textOf(e.Exclusive))
	say("until", moment(e.Until))
	if e.Matches {
		say("details", details(e.Details))
	}
	for _, barred := range e.Barred {
		text := holderText(assign.Work{User: barred.User, Instance: barred.Instance}) + ", who " + barred.Because
		if barred.Until != nil {
			text += ", until " + moment(barred.Until)
		}
		say("not for", text)
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return err
	}
	for _, part := range []struct {
		title string
		works []assign.Work
	}{{"Held now:", e.Held}, {"History, newest first:", e.History}} {
		if len(part.works) == 0 {
			continue
		}
		if _, err := fmt.Fprintf(w, "\n%s\n", part.title); err != nil {
			return err
		}
		if err := printHistory(w, part.works); err != nil {
			return err
		}
	}
	return nil
}

// matchText says whether the task has the item, where it was found, and at which rank.
func matchText(e assign.Explanation) string {
	if !e.Matches {
		return "no"
	}
	text := map[string]string{"shelf": "yes, on the shelf", "query": "yes, by the task's query", "inbox": "yes, it is in the inbox"}[e.Source]
	if text == "" {
		text = "yes"
	}
	if e.Rank != nil {
		text += fmt.Sprintf(", at rank %d", *e.Rank)
	}
	return text
}
