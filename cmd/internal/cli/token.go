package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"time"

	"getwork/assign"
	"getwork/assign/rights"
	"getwork/cmd/internal/command"
	"getwork/cmd/internal/serve"
)

// TokenCmd has the commands for tokens.
type TokenCmd struct {
	Create tokenCreateCmd `cmd:"" help:"Make a token. It is printed once; the database keeps only its hash."`
	List   tokenListCmd   `cmd:"" help:"List your tokens, and those that you made for services."`
	Revoke tokenRevokeCmd `cmd:"" help:"Revoke tokens: within two seconds no node accepts them."`
}

type tokenCreateCmd struct {
	Label   string         `required:"" help:"What the token is for, in a few words, so that you know later which one to end." placeholder:"TEXT"`
	Scopes  []string       `help:"What it may be used for, separated by commas: read, work (get, claim and let go of work), push (items), manage (all else). The default is read,work; with --admin it is all." placeholder:"SCOPE"`
	Tasks   []string       `help:"The only tasks that it may be used for, separated by commas." placeholder:"TASK"`
	Expires *time.Duration `help:"How long it lives, such as 720h. The default is 90 days, or 24h with --admin." placeholder:"DURATION"`

	User     string   `call:"" group:"For a program with a name of its own:" help:"The service that the token is for: it holds work under this name. Without it the token is yours, and may do at most what you may." placeholder:"NAME"`
	Role     string   `call:"" group:"For a program with a name of its own:" help:"The service's role: worker, agent, observer or manager." placeholder:"ROLE"`
	MemberOf []string `call:"" group:"For a program with a name of its own:" help:"The groups of a new service, separated by commas. One that is there already keeps its own." placeholder:"GROUP"`

	Direct         bool `group:"Without a node:" help:"Write the token into the database itself. It makes the first administrator, and helps if nobody can log in any more."`
	Admin          bool `group:"Without a node:" help:"With --direct: the token may manage people, sessions and tokens, for at most 24h."`
	serve.Database `embed:"" group:"Without a node:"`

	account `embed:""`
}

// Help returns the text that --help adds.
func (tokenCreateCmd) Help() string {
	return `Examples:

  getwork token create --label "nightly report" --scopes read --expires 720h
  getwork token create --label "photo resizer" --user resizer --role agent --tasks resize --scopes read,work
  getwork token create --direct --database-url postgres://… --label "first administrator" --user ops --role manager --admin

Prints the token on standard output, and nothing else there. Keep it in a file that only its program reads, and give that as --token-file.

You can't make a token with a token: log in first, with getwork login. For the scope manage, or for a service, the log-in must be at most 15 minutes old. Only administrators make tokens for services, and only those who are managers as well make them for services with the role manager, or in the group of serve's --query-authors. --direct needs neither a node nor a token, but the rights of getwork's own database login; the audit records who did it.`
}

// scopes returns the scopes that were asked for, or the usual ones.
func (c tokenCreateCmd) scopes() []string {
	switch {
	case len(c.Scopes) > 0:
		return c.Scopes
	case c.Admin:
		return rights.Scopes
	}
	return []string{rights.ScopeRead, rights.ScopeWork}
}

func (c tokenCreateCmd) check() error {
	for _, scope := range c.Scopes {
		if !slices.Contains(rights.Scopes, scope) {
			return command.Usage("--scopes are some of %s, separated by commas, not %q", strings.Join(rights.Scopes, ", "), scope)
		}
	}
	for _, group := range c.MemberOf {
		if err := fits(assign.CheckGroup(group)); err != nil {
			return err
		}
	}
	switch {
	case c.Label == "":
		return command.Usage("--label is empty; say what the token is for")
	case c.Admin && !c.Direct:
		return command.Usage("only a token that is made on the database can be an administrator's: add --direct and --database-url")
	case c.Direct && (c.User == "" || c.Role == ""):
		return command.Usage("--direct needs --user and --role: the name and the role of whoever uses the token")
	case (c.User == "") != (c.Role == "") || c.User == "" && len(c.MemberOf) > 0:
		return command.Usage("--user, --role and --member-of describe a service: give a name and a role, or leave all out for a token of your own")
	case c.Role != "" && !slices.Contains(knownRoles, assign.Role(c.Role)):
		return command.Usage("--role must be worker, agent, observer or manager, not %q", c.Role)
	case c.User != "":
		if err := fits(rights.CheckName(c.User)); err != nil {
			return err
		}
	}
	if c.Expires != nil && *c.Expires < time.Minute {
		return command.Usage("--expires must be at least 1m, not %s", assign.Duration(*c.Expires))
	}
	if c.Admin && c.Expires != nil && *c.Expires > 24*time.Hour {
		return command.Usage("an administrator's token lives for at most 24h, not %s: it is for getting in, so that you can log in", assign.Duration(*c.Expires))
	}
	return nil
}

// madeToken is a token that was just made.
type madeToken struct {
	Token string `json:"token"`
	rights.ShownToken
}

// Run makes a token.
func (c tokenCreateCmd) Run(ctx context.Context, s *command.Streams) error {
	if err := c.check(); err != nil {
		return err
	}
	made, err := c.create(ctx, s)
	switch {
	case err != nil:
		return err
	case c.JSON:
		err = printJSON(s.Out, made)
	default:
		_, err = fmt.Fprintln(s.Out, made.Token)
	}
	if err != nil {
		return fmt.Errorf("the token was made and can't be printed: %w\nend it with `getwork token revoke %s`, and make another", err, made.ID)
	}
	admin := ""
	if made.Admin {
		admin = ", administrator"
	}
	_, err = fmt.Fprintf(s.Errs, "Token %s is for %s (%s%s: %s) until %s. It is not shown again.\n", made.ID, made.User, made.Role, admin, strings.Join(made.Scopes, ", "), moment(&made.ExpiresAt))
	return err
}

func (c tokenCreateCmd) create(ctx context.Context, s *command.Streams) (made madeToken, err error) {
	if c.Direct {
		return c.direct(ctx, s)
	}
	client, err := c.connect()
	if err != nil {
		return made, err
	}
	body := map[string]any{"label": c.Label, "scopes": c.scopes()}
	if len(c.Tasks) > 0 {
		body["tasks"] = c.Tasks
	}
	if c.Expires != nil {
		body["expires_in"] = assign.Duration(*c.Expires)
	}
	if c.User != "" {
		service := map[string]any{"user": c.User, "role": c.Role}
		if len(c.MemberOf) > 0 {
			service["groups"] = c.MemberOf
		}
		body["service"] = service
	}
	_, err = client.Do(ctx, Call{Method: "POST", Path: "/tokens", Body: body}, &made)
	return made, err
}

// direct writes the token into the database.
func (c tokenCreateCmd) direct(ctx context.Context, s *command.Streams) (made madeToken, err error) {
	n := rights.NewToken{Label: c.Label, Scopes: c.scopes(), Tasks: c.Tasks, Role: assign.Role(c.Role), Admin: c.Admin, Service: c.User, Groups: c.MemberOf, From: serve.Operator()}
	if c.Expires != nil {
		n.Expires = *c.Expires
	}
	log := slog.New(slog.NewTextHandler(s.Errs, nil))
	err = c.Rights(ctx, log, func(ctx context.Context, g *rights.Registry) error {
		made.Token, made.ShownToken, err = g.CreateToken(ctx, n)
		return err
	})
	var r *assign.Refusal
	if errors.As(err, &r) {
		err = errors.New(r.Detail)
	}
	return made, err
}

type tokenListCmd struct {
	Of      *string `help:"For administrators: whose tokens." placeholder:"USER"`
	account `embed:""`
}

// Run lists tokens.
func (c tokenListCmd) Run(ctx context.Context, s *command.Streams) error {
	client, err := c.connect()
	if err != nil {
		return err
	}
	query, err := ofUser(c.Of)
	if err != nil {
		return err
	}
	var list struct {
		Tokens []rights.ShownToken `json:"tokens"`
	}
	got, err := client.Do(ctx, Call{Method: "GET", Path: "/tokens" + query}, &list)
	switch {
	case err != nil:
		return err
	case c.JSON:
		return printJSON(s.Out, got.body)
	case len(list.Tokens) == 0:
		_, err = fmt.Fprintln(s.Errs, "There are no tokens. `getwork token create` makes one.")
		return err
	}
	rows := make([][]string, len(list.Tokens))
	for i, t := range list.Tokens {
		role := string(t.Role)
		if t.Admin {
			role += ", admin"
		}
		rows[i] = []string{t.ID, t.Kind, t.User, role, strings.Join(t.Scopes, ","), cut(t.Label), minute(&t.ExpiresAt), minute(t.UsedAt), textOf(t.UsedFrom), strings.Join(t.Tasks, ","), t.MadeBy}
	}
	return Table(s.Out, lean([]string{"ID", "KIND", "USER", "ROLE", "SCOPES", "LABEL", "EXPIRES", "LAST USED", "FROM", "TASKS", "MADE BY"}, &rows, 7), rows)
}

// ofUser returns the query that asks about a user; empty: about the caller.
func ofUser(of *string) (string, error) {
	if of == nil {
		return "", nil
	}
	return "?" + url.Values{"user": {*of}}.Encode(), filled(map[string]*string{"--of": of})
}

type tokenRevokeCmd struct {
	IDs     []string `arg:"" name:"token-id" help:"The tokens to end; token list shows their ids."`
	Yes     bool     `help:"Don't ask."`
	account `embed:""`
}

// Help returns the text that --help adds.
func (tokenRevokeCmd) Help() string {
	return "Requests that wait under the token are cancelled. Work that it holds stays held until its lease ends or a manager releases it. To replace a token, make the new one first. Administrators may end anybody's."
}

// Run ends the tokens one after the other. If one is refused, the rest are still ended.
func (c tokenRevokeCmd) Run(ctx context.Context, s *command.Streams) error {
	if err := asks(c.Yes, c.IDs...); err != nil {
		return err
	}
	for _, id := range c.IDs {
		if strings.HasPrefix(id, "gw_") && len(id) > 16 {
			return command.Usage("give the token's id, which has 12 characters, and not the token; `getwork token list` shows it")
		}
	}
	client, err := c.connect()
	if err != nil {
		return err
	}
	what := fmt.Sprintf("To be ended: %s, and what waits there.", counted(len(c.IDs), "token"))
	if err := ask(ctx, s, c.Yes, what, "no token was ended"); err != nil {
		return err
	}
	return each(ctx, s, client, "token", "/tokens/", c.IDs, c.JSON)
}

// each ends tokens or sessions one after the other, and says which were ended.
func each(ctx context.Context, s *command.Streams, client *Client, noun, path string, ids []string, asJSON bool) error {
	ended := []string{}
	var failed []error
	for _, id := range ids {
		if _, err := client.Do(ctx, Call{Method: "DELETE", Path: path + url.PathEscape(id)}, nil); err != nil {
			failed = append(failed, named(noun+" "+id, err))
			if refusal := new(refused); errors.As(err, &refusal) {
				continue
			}
			break // the server can't be reached: the rest would fail, too
		}
		ended = append(ended, id)
	}
	var err error
	switch {
	case asJSON:
		err = printJSON(s.Out, map[string]any{"ended": ended})
	case len(ended) > 0:
		_, err = fmt.Fprintf(s.Out, "Ended: %s %s.\n", noun, strings.Join(ended, ", "))
	}
	return errors.Join(append(failed, err)...)
}
