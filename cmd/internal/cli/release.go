package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"

	"getwork/assign"
	"getwork/cmd/internal/command"
	"getwork/web"
)

type workReleaseCmd struct {
	Of     *string `help:"Take back what this user holds." placeholder:"USER"`
	Task   *string `help:"Take back all held work of this task." placeholder:"TASK"`
	Yes    bool    `help:"Don't ask." xor:"sure"`
	DryRun bool    `help:"Only count the work." xor:"sure"`
	Remote `embed:""`
}

// Help returns the text that --help adds.
func (workReleaseCmd) Help() string {
	return `Examples:

  getwork work release --of tracy
  getwork work release --of tracy --task verify --yes

Counts the work and asks before it takes it back; if nobody can be asked, --yes is needed. With both --of and --task it takes back what that user holds of that task. The items can be handed out again at once, and the attempt does not count. If work is taken or let go of between the count and the answer, nothing is released. ` + "`getwork work list --state held`" + ` lists held work. For managers.`
}

// Run counts the work, asks, and releases exactly what it counted.
func (c workReleaseCmd) Run(ctx context.Context, s *command.Streams) error {
	if err := filled(map[string]*string{"--of": c.Of, "--task": c.Task}); err != nil {
		return err
	}
	switch {
	case c.Of == nil && c.Task == nil:
		return command.Usage("say whose work to take back with --of, or of which task with --task, or both")
	case !c.Yes && !c.DryRun && !command.IsTerminal(os.Stdin):
		return command.Usage("nobody can be asked: --yes takes the work back without asking, --dry-run only counts it")
	}
	client, err := c.Connect(web.Manager)
	if err != nil {
		return err
	}
	what := assign.Release{User: textOf(c.Of), Task: textOf(c.Task), DryRun: true}
	var found, done assign.Released
	got, err := client.Do(ctx, c.call(what), &found)
	switch {
	case err != nil:
		return err
	case c.DryRun && c.JSON:
		return printJSON(s.Out, got.body)
	case c.DryRun:
		_, err = fmt.Fprintf(s.Out, "To be released: %s.\n", c.amount(found.Count))
		return err
	case found.Count == 0 && !c.JSON:
		_, err = fmt.Fprintln(s.Out, "Nobody holds such work, so there is nothing to release.")
		return err
	}
	if !c.Yes {
		_, _ = fmt.Fprintf(s.Errs, "To be released: %s. Go on? [y/N] ", c.amount(found.Count))
		if err := confirm(ctx, os.Stdin, "nothing was released"); err != nil {
			return err
		}
	}
	what.DryRun, what.Token = false, found.Token
	got, err = client.Do(ctx, c.call(what), &done)
	switch {
	case IsRefused(err, http.StatusConflict):
		return errors.New("nothing was released: the held work has changed since it was counted\nrun the command again, and look at the count")
	case err != nil:
		return err
	case c.JSON:
		return printJSON(s.Out, got.body)
	}
	_, err = fmt.Fprintf(s.Out, "Released: %s.\n", c.amount(done.Count))
	return err
}

// amount describes the work that the command is about.
func (c workReleaseCmd) amount(n int) string {
	text := counted(n, "item")
	if c.Task != nil {
		text += " of task " + *c.Task
	}
	if c.Of != nil {
		text += ", held by " + *c.Of
	}
	return plain(text)
}

func (c workReleaseCmd) call(what assign.Release) Call {
	body := map[string]any{}
	for name, value := range map[string]string{"user": what.User, "task": what.Task, "token": what.Token} {
		if value != "" {
			body[name] = value
		}
	}
	if what.DryRun {
		body["dry_run"] = true
	}
	return Call{Method: "POST", Path: "/work/release", Body: body}
}

// filled returns a usage error for a filter that is given but empty, as by a script whose variable is empty: it would
// match everything.
func filled(filters map[string]*string) error {
	for _, flag := range slices.Sorted(maps.Keys(filters)) {
		if v := filters[flag]; v != nil && *v == "" {
			return command.Usage("%s is empty; give it a value, or leave it out", flag)
		}
	}
	return nil
}

// confirm waits for a yes, until ctx ends. Any other answer is an error with the text no.
func confirm(ctx context.Context, from io.Reader, no string) error {
	answered := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(from).ReadString('\n')
		answered <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case <-ctx.Done():
		return ErrInterrupted
	case answer := <-answered:
		if answer != "y" && answer != "yes" {
			return errors.New(no)
		}
		return nil
	}
}
