package cli

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"getwork/assign"
	"getwork/cmd/internal/command"
	"getwork/cmd/internal/itemtext"
	"getwork/web"
)

type workShowCmd struct {
	ID      string `arg:"" name:"work-id" help:"The work to show; get, pipeline and work list show its id."`
	All     bool   `help:"Show folded columns, too."`
	holding `embed:""`
}

// Help returns the text that --help adds.
func (workShowCmd) Help() string {
	return `Shows one item as the task's display wants it: its title, its details with labels and formats, and where the work is done. ! marks values that stand out. --json prints the work as the API has it, with raw details.

Workers see their own work, observers and managers everybody's: --role observer.`
}

// Run shows one work.
func (c workShowCmd) Run(ctx context.Context, s *command.Streams) error {
	if err := checkIDs(c.ID); err != nil {
		return err
	}
	client, err := c.connect(web.Worker)
	if err != nil {
		return err
	}
	var w assign.Work
	got, err := client.Do(ctx, Call{Method: "GET", Path: "/work/" + url.PathEscape(c.ID)}, &w)
	switch {
	case err != nil:
		return err
	case c.JSON:
		return printJSON(s.Out, got.body)
	}
	task, err := client.Task(ctx, w.Task)
	if err != nil && !IsRefused(err, http.StatusNotFound) { // it may have been deleted or renamed, or may not be open to the caller
		return err
	}
	item, err := itemtext.Of(task.Display, w)
	if err != nil {
		return err
	}
	return c.print(s, w, item)
}

func (c workShowCmd) print(s *command.Streams, w assign.Work, item itemtext.Item) error {
	var lines [][2]string
	add := func(label, value string) {
		if value != "" {
			lines = append(lines, [2]string{label, value})
		}
	}
	add("Work", fmt.Sprintf("%d of task %s, %s", w.ID, w.Task, w.State))
	add("Item", w.Item)
	add("Holder", holderText(w))
	add("Since", moment(&w.AssignedAt))
	if w.State == assign.WorkHeld {
		add("Lease until", moment(w.LeaseExpiresAt))
	}
	add("Note", textOf(w.Note))
	add("Open", item.Link)
	lines = append(lines, [2]string{})
	folded := 0
	for _, line := range item.Lines {
		if line.Folded && !c.All && !line.StandsOut {
			folded++
			continue
		}
		mark := ""
		if line.StandsOut {
			mark = "! "
		}
		lines = append(lines, [2]string{line.Label, mark + line.Value})
	}
	width := 0
	for _, line := range lines {
		width = max(width, len([]rune(line[0])))
	}
	var b strings.Builder
	b.WriteString(item.Title + "\n\n")
	for _, line := range lines {
		text := strings.ReplaceAll(line[1], "\n", "\n"+strings.Repeat(" ", width+2))
		b.WriteString(strings.TrimRight(fmt.Sprintf("%-*s  %s", width, line[0], text), " ") + "\n")
	}
	if folded > 0 {
		fmt.Fprintf(&b, "\n%d more with --all\n", folded)
	}
	_, err := fmt.Fprint(s.Out, strings.TrimRight(b.String(), "\n")+"\n")
	return err
}
