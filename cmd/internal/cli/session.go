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

// SessionCmd has the commands for sessions, which are log-ins of browsers.
type SessionCmd struct {
	List sessionListCmd `cmd:"" help:"List where you are logged in."`
	End  sessionEndCmd  `cmd:"" help:"Log out browsers, and the terminals that depend on them."`
	Wall sessionWallCmd `cmd:"" help:"Make a link for a screen on a wall."`
}

type sessionListCmd struct {
	Of      *string `help:"For administrators: whose sessions." placeholder:"USER"`
	account `embed:""`
}

// Run lists sessions.
func (c sessionListCmd) Run(ctx context.Context, s *command.Streams) error {
	query, err := ofUser(c.Of)
	if err != nil {
		return err
	}
	client, err := c.connect()
	if err != nil {
		return err
	}
	var list struct {
		Sessions []rights.ShownSession `json:"sessions"`
	}
	got, err := client.Do(ctx, Call{Method: "GET", Path: "/sessions" + query}, &list)
	switch {
	case err != nil:
		return err
	case c.JSON:
		return printJSON(s.Out, got.body)
	case len(list.Sessions) == 0:
		_, err = fmt.Fprintln(s.Errs, "There are no sessions.")
		return err
	}
	rows := make([][]string, len(list.Sessions))
	for i, one := range list.Sessions {
		role := string(one.Role)
		if one.Admin {
			role += ", admin"
		}
		rows[i] = []string{one.ID, one.User, role, minute(&one.CreatedAt), minute(&one.ActiveAt), minute(&one.EndsAt), textOf(one.Address), cut(textOf(one.Agent))}
	}
	return Table(s.Out, lean([]string{"ID", "USER", "ROLE", "SINCE", "ACTIVE", "ENDS", "FROM", "BROWSER"}, &rows, 6), rows)
}

type sessionEndCmd struct {
	IDs     []string `arg:"" optional:"" name:"session-id" help:"The sessions to end; session list shows their ids."`
	Of      *string  `help:"All sessions of this user; for administrators if it is somebody else." placeholder:"USER" xor:"whose"`
	All     bool     `help:"All of yours." xor:"whose"`
	Yes     bool     `help:"Don't ask."`
	account `embed:""`
}

// Help returns the text that --help adds.
func (sessionEndCmd) Help() string {
	return "Requests that wait under a session are cancelled. Work that its user holds stays held until its lease ends or a manager releases it. The user's own tokens go on: `getwork token revoke` ends them, and `getwork user block` keeps somebody out altogether."
}

// Run ends sessions.
func (c sessionEndCmd) Run(ctx context.Context, s *command.Streams) error {
	query, err := ofUser(c.Of)
	if err != nil {
		return err
	}
	whole := c.Of != nil || c.All
	if whole == (len(c.IDs) > 0) {
		return command.Usage("name the sessions to end, or give --of or --all; `getwork session list` shows their ids")
	}
	if err := asks(c.Yes, c.IDs...); err != nil {
		return err
	}
	client, err := c.connect()
	if err != nil {
		return err
	}
	what := counted(len(c.IDs), "session")
	switch {
	case c.All:
		what = "all of your sessions"
	case whole:
		what = "all sessions of " + *c.Of
	}
	if err := ask(ctx, s, c.Yes, fmt.Sprintf("To be ended: %s, and what waits there.", what), "no session was ended"); err != nil {
		return err
	}
	if !whole {
		return each(ctx, s, client, "session", "/sessions/", c.IDs, c.JSON)
	}
	if _, err := client.Do(ctx, Call{Method: http.MethodDelete, Path: "/sessions" + query}, nil); err != nil {
		return err
	}
	if c.JSON {
		return printJSON(s.Out, map[string]any{})
	}
	_, err = fmt.Fprintf(s.Out, "Ended: %s.\n", plain(what))
	return err
}

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
