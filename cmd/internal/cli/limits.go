package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"

	"github.com/goccy/go-yaml"

	"getwork/assign"
	"getwork/cmd/internal/command"
	"getwork/web"
)

// LimitsCmd has the commands with which managers limit how much one user holds over all tasks.
type LimitsCmd struct {
	Show  limitsShowCmd  `cmd:"" help:"Print the limits as a file that apply reads."`
	Apply limitsApplyCmd `cmd:"" help:"Replace the limits by those in a file."`
}

const limitsHelp = `A file says how many items one user may hold at a time, over all tasks:

  everybody: 10
  groups:
    trainees: 3
  people:
    ann: 20

A limit of one's own name comes first, then the greatest of one's groups, then everybody's; null is no limit. Programs (role agent) are bound by a limit of their own name alone, under people.`

type limitsShowCmd struct {
	Remote `embed:""`
}

// Help returns the text that --help adds.
func (limitsShowCmd) Help() string { return limitsHelp + "\n\nFor observers and managers." }

// Run prints the limits.
func (c limitsShowCmd) Run(ctx context.Context, s *command.Streams) error {
	client, err := c.Connect(web.Observer)
	if err != nil {
		return err
	}
	l, err := client.limits(ctx)
	switch {
	case err != nil:
		return err
	case c.JSON:
		return printJSON(s.Out, l.raw)
	}
	return l.print(s.Out)
}

type limitsApplyCmd struct {
	File   string `short:"f" required:"" help:"YAML file with the limits; - is standard input." placeholder:"limits.yaml" complete:"file"`
	Remote `embed:""`
}

// Help returns the text that --help adds.
func (limitsApplyCmd) Help() string {
	return limitsHelp + `

The file replaces all limits: {} removes them. A lower limit takes nothing away: whoever holds more gets nothing until they hold less. For managers.`
}

// Run replaces the limits, if they differ. If another client changes them between the read and the write, it repeats both once.
func (c limitsApplyCmd) Run(ctx context.Context, s *command.Streams) error {
	wanted, err := readLimits(ctx, c.File)
	if err != nil {
		return err
	}
	client, err := c.Connect(web.Manager)
	if err != nil {
		return err
	}
	done, what, err := client.applyLimits(ctx, wanted)
	if IsRefused(err, http.StatusPreconditionFailed) {
		done, what, err = client.applyLimits(ctx, wanted)
	}
	switch {
	case err != nil:
		return err
	case c.JSON:
		return printJSON(s.Out, done.raw)
	}
	_, err = fmt.Fprintf(s.Out, "limits %s (version %s)\n", what, done.version())
	return err
}

// remoteLimits are the limits as the server has them.
type remoteLimits struct {
	assign.Limits
	tag string // their ETag
	raw json.RawMessage
}

func (l remoteLimits) version() string { return strings.Trim(l.tag, `"`) }

func (c *Client) limits(ctx context.Context) (remoteLimits, error) {
	return c.doLimits(ctx, Call{Method: "GET", Path: "/limits"})
}

func (c *Client) doLimits(ctx context.Context, what Call) (l remoteLimits, err error) {
	got, err := c.Do(ctx, what, &l.Limits)
	l.tag, l.raw = got.Tag(), got.body
	return l, err
}

func (c *Client) applyLimits(ctx context.Context, wanted assign.Limits) (done remoteLimits, what string, err error) {
	l, err := c.limits(ctx)
	if err != nil {
		return l, "", err
	}
	if reflect.DeepEqual(l.Limits, wanted) {
		return l, "unchanged", nil
	}
	done, err = c.doLimits(ctx, Call{Method: "PUT", Path: "/limits", Body: wanted, header: map[string]string{"If-Match": l.tag}})
	return done, "updated", err
}

// print writes the limits as a file that apply reads, under a comment with their version.
func (l remoteLimits) print(w io.Writer) error {
	file := yaml.MapSlice{}
	if l.Everybody != nil {
		file = append(file, yaml.MapItem{Key: "everybody", Value: l.Everybody})
	}
	if len(l.Groups) > 0 {
		file = append(file, yaml.MapItem{Key: "groups", Value: l.Groups})
	}
	if len(l.People) > 0 {
		file = append(file, yaml.MapItem{Key: "people", Value: l.People})
	}
	b, err := yaml.Marshal(file)
	if err != nil {
		return fmt.Errorf("write the limits: %w", err)
	}
	if again, err := limitsOf(b); err != nil || !reflect.DeepEqual(again, l.Limits) || command.Obeyed(b) { // as for tasks: JSON can express every name
		if b, err = json.MarshalIndent(l.Limits, "", "  "); err != nil {
			return fmt.Errorf("write the limits: %w", err)
		}
		b = append(b, '\n')
	}
	_, err = fmt.Fprintf(w, "# version %s\n%s", l.version(), b)
	return err
}

// readLimits reads a file of limits, or standard input. Members that limits do not have are refused, with their line.
func readLimits(ctx context.Context, name string) (assign.Limits, error) {
	b, err := readFile(ctx, name)
	if err != nil {
		return assign.Limits{}, err
	}
	l, err := limitsOf(b)
	var document any
	if err == nil && yaml.Unmarshal(b, &document) == nil && document == nil {
		return l, command.Usage("%s is empty; {} removes all limits", name)
	}
	if err != nil {
		return l, command.Usage("%s: %s", name, strings.TrimSpace(yaml.FormatError(err, false, true)))
	}
	return l, nil
}

// limitsOf reads a document, in which an empty member is as good as none.
func limitsOf(document []byte) (l assign.Limits, err error) {
	if err := yaml.UnmarshalWithOptions(document, &l, yaml.Strict()); err != nil {
		return l, err
	}
	if len(l.Groups) == 0 {
		l.Groups = nil
	}
	if len(l.People) == 0 {
		l.People = nil
	}
	return l, nil
}
