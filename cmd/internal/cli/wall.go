package cli

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"getwork/assign"
	"getwork/assign/rights"
	"getwork/cmd/internal/command"
)

type sessionWallCmd struct {
	Name    string        `call:"" help:"The screen's name in lists and the audit (default ${default})." default:"wall" placeholder:"NAME"`
	Expires time.Duration `help:"How long it shows counts, at most 720h (default ${default})." default:"720h"`
	account `embed:""`
}

// Help returns the text that --help adds.
func (sessionWallCmd) Help() string {
	return "Prints a link on standard output. Whoever opens it first, within an hour, and confirms it there, turns their browser into a screen that shows how much there is to do, and nothing else: no names, no queries. Open it on the screen itself. `getwork session list --of wall` shows its session, and `getwork session end` ends it. For administrators."
}

// Run makes a link for a screen on a wall.
func (c sessionWallCmd) Run(ctx context.Context, s *command.Streams) error {
	if c.Expires < time.Minute || c.Expires > rights.WallMost {
		return command.Usage("--expires must be from 1m to %s, not %s", assign.Duration(rights.WallMost), assign.Duration(c.Expires))
	}
	if err := fits(rights.CheckName(c.Name)); err != nil {
		return err
	}
	client, err := c.connect()
	if err != nil {
		return err
	}
	var made struct {
		URL string `json:"url"`
		rights.NewWall
	}
	body := map[string]any{"user": c.Name, "expires_in": assign.Duration(c.Expires)}
	got, err := client.Do(ctx, Call{Method: http.MethodPost, Path: "/walls", Body: body}, &made)
	switch {
	case err != nil:
		return err
	case c.JSON:
		return printJSON(s.Out, got.body)
	}
	if _, err = fmt.Fprintln(s.Out, made.URL); err != nil {
		return err
	}
	_, err = fmt.Fprintf(s.Errs, "Open it by %s on the screen %s. It shows counts until %s. Session %s.\n", moment(&made.OpensUntil), plain(made.User), moment(&made.EndsAt), made.ID)
	return err
}
