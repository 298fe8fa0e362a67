package cli

import (
	"context"
	"fmt"
	"net/url"
	"strings"

	"getwork/cmd/internal/command"
	"getwork/web"
)

// SkillsCmd shows or replaces what somebody can.
type SkillsCmd struct {
	User   string   `arg:"" help:"Who."`
	Skills []string `arg:"" optional:"" help:"What they can from now on, such as french law, or french,law."`
	None   bool     `help:"They can nothing of the kind any more."`
	Remote `embed:""`
}

// Help returns the text that --help adds.
func (SkillsCmd) Help() string {
	return `Items may need groups or skills (needs, of a query or of a pushed item), all of which their holder must have. A skill counts for that alone, and makes nobody a member of a task's groups.

Examples:

  getwork skills tracy
  getwork skills tracy french,law

Names replace all that somebody has; they may be set before their first log-in. For managers; without names also for observers, and for everybody their own.`
}

// Run shows the skills, after it has replaced them if there are any to set.
func (c SkillsCmd) Run(ctx context.Context, s *command.Streams) error {
	var names []string
	for _, list := range c.Skills {
		for name := range strings.SplitSeq(list, ",") {
			if name = strings.TrimSpace(name); name != "" {
				names = append(names, name)
			}
		}
	}
	what := Call{Method: "GET", Path: "/people/" + url.PathEscape(c.User) + "/skills"}
	role := web.Observer
	switch {
	case c.None && len(names) > 0:
		return fmt.Errorf("--none takes no skills; name them, or send --none alone")
	case len(c.Skills) > 0 && len(names) == 0:
		return fmt.Errorf("no skill is named; --none takes all away")
	case c.None, len(names) > 0:
		what.Method, what.Body, role = "PUT", append([]string{}, names...), web.Manager
	}
	client, err := c.Connect(role)
	if err != nil {
		return err
	}
	var skills []string
	got, err := client.Do(ctx, what, &skills)
	switch {
	case err != nil:
		return err
	case c.JSON:
		return printJSON(s.Out, got.body)
	case len(skills) == 0:
		_, err = fmt.Fprintf(s.Out, "%s has no skills\n", c.User)
	default:
		_, err = fmt.Fprintln(s.Out, strings.Join(skills, ", "))
	}
	return err
}
