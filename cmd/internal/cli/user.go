package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"getwork/assign"
	"getwork/assign/rights"
	"getwork/cmd/internal/command"
)

// UserCmd has the commands with which administrators manage people.
type UserCmd struct {
	List    userListCmd    `cmd:"" help:"List all users, services included."`
	Block   userBlockCmd   `cmd:"" help:"Lock a user out at once, with all their sessions and tokens."`
	Unblock userUnblockCmd `cmd:"" help:"Let somebody in again."`
	Rebind  userRebindCmd  `cmd:"" help:"Give a user's name to another account of the identity provider."`
}

type userListCmd struct {
	Of      *string `help:"Only this user." placeholder:"USER"`
	paged   `embed:""`
	account `embed:""`
}

// Help returns the text that --help adds.
func (userListCmd) Help() string {
	return "HOLDS counts the items that they hold, which stay held when they are blocked: `getwork work release --of USER` takes them back. --json adds groups, and when they first came. For administrators."
}

// Run lists users.
func (c userListCmd) Run(ctx context.Context, s *command.Streams) error {
	if err := filled(map[string]*string{"--of": c.Of}); err != nil {
		return err
	}
	client, err := c.connect()
	if err != nil {
		return err
	}
	query := url.Values{}
	if c.Of != nil {
		query.Set("user", *c.Of)
	}
	found, err := c.list(ctx, client, "/users", query, "users")
	if err != nil {
		return err
	}
	return printList(s, found, c.JSON, "There is nobody.", func(users []rights.User) error {
		return printUsers(s, users)
	})
}

func printUsers(s *command.Streams, users []rights.User) error {
	rows := make([][]string, len(users))
	for i, u := range users {
		role := string(u.Role)
		if u.Admin {
			role = strings.TrimPrefix(role+", admin", ", ")
		}
		rows[i] = []string{u.Name, u.Kind, role, minute(u.SeenAt), strconv.Itoa(u.Sessions), strconv.Itoa(u.Tokens), strconv.Itoa(u.Holds), minute(u.BlockedAt), u.Issuer, u.Subject}
	}
	return Table(s.Out, lean([]string{"USER", "KIND", "ROLE", "LAST LOG-IN", "SESSIONS", "TOKENS", "HOLDS", "BLOCKED", "ISSUER", "SUBJECT"}, &rows, 7), rows)
}

// lookUp returns the user of that name.
func lookUp(ctx context.Context, client *Client, name string) (u rights.User, err error) {
	var list struct {
		Users []rights.User `json:"users"`
	}
	if _, err := client.Do(ctx, Call{Method: "GET", Path: "/users?" + url.Values{"user": {name}}.Encode()}, &list); err != nil {
		return u, err
	}
	if len(list.Users) == 0 {
		return u, fmt.Errorf("there is no user %q; `getwork user list` lists all users", name)
	}
	return list.Users[0], nil
}

// changeUser sends a change of a user, and prints the user as they are then.
func changeUser(ctx context.Context, s *command.Streams, client *Client, what Call, asJSON bool) error {
	var u rights.User
	got, err := client.Do(ctx, what, &u)
	switch {
	case err != nil:
		return err
	case asJSON:
		return printJSON(s.Out, got.body)
	}
	return printUsers(s, []rights.User{u})
}

type userBlockCmd struct {
	Name         string `arg:"" name:"user" help:"Whom to keep out."`
	WithServices bool   `help:"End the tokens that they made for services, too, for good."`
	Yes          bool   `help:"Don't ask."`
	account      `embed:""`
}

// Help returns the text that --help adds.
func (userBlockCmd) Help() string {
	return "Their sessions and tokens are refused, their connections end at once, and their waiting requests are cancelled. What they hold stays held: `getwork work release --of USER` takes it back. The services that they made are listed, and go on: whoever has copied a service's token could still use it. --with-services ends the tokens that they made for services, but not those that somebody else made. `getwork user unblock` undoes a block, except what was cancelled or ended. For administrators."
}

// Run blocks a user.
func (c userBlockCmd) Run(ctx context.Context, s *command.Streams) error {
	if err := asks(c.Yes, c.Name); err != nil {
		return err
	}
	client, err := c.connect()
	if err != nil {
		return err
	}
	u, err := lookUp(ctx, client, c.Name)
	if err != nil {
		return err
	}
	if !c.Yes {
		what := fmt.Sprintf("This blocks %s, who has %s and %s, and holds %s.", u.Name, counted(u.Sessions, "session"), counted(u.Tokens, "token"), counted(u.Holds, "item"))
		made, err := servicesOf(ctx, client, c.Name)
		switch {
		case err != nil:
			return err
		case len(made) == 0:
		case c.WithServices:
			what += fmt.Sprintf(" The tokens that they made for %s end.", strings.Join(made, ", "))
		default:
			what += fmt.Sprintf(" The tokens that they made for %s go on; --with-services ends them, too.", strings.Join(made, ", "))
		}
		if err := ask(ctx, s, false, what, "nobody was blocked"); err != nil {
			return err
		}
	}
	var changed assign.ChangedUser
	got, err := client.Do(ctx, Call{Method: http.MethodPatch, Path: "/users/" + url.PathEscape(c.Name), Body: assign.UserChange{Blocked: true, WithServices: c.WithServices}}, &changed)
	switch {
	case err != nil:
		return err
	case c.JSON:
		return printJSON(s.Out, got.body)
	}
	if err := printUsers(s, []rights.User{changed.User}); err != nil || len(changed.Services) == 0 {
		return err
	}
	services := strings.Join(changed.Services, ", ")
	if c.WithServices {
		_, err = fmt.Fprintln(s.Errs, plain("Ended: the tokens that they made for "+services+"."))
	} else {
		_, err = fmt.Fprintln(s.Errs, plain("The tokens that they made for "+services+" go on; `getwork user block "+c.Name+" --with-services` ends them."))
	}
	return err
}

// servicesOf returns the services with tokens that a user made.
func servicesOf(ctx context.Context, client *Client, user string) (services []string, err error) {
	var list struct {
		Tokens []rights.ShownToken `json:"tokens"`
	}
	_, err = client.Do(ctx, Call{Method: "GET", Path: "/tokens?" + url.Values{"user": {user}}.Encode()}, &list)
	for _, t := range list.Tokens {
		if t.Kind == "service" && t.MadeBy == user && t.User != user {
			services = append(services, t.User)
		}
	}
	return slices.Compact(slices.Sorted(slices.Values(services))), err
}

type userUnblockCmd struct {
	Name    string `arg:"" name:"user" help:"Whom to let in."`
	account `embed:""`
}

// Help returns the text that --help adds.
func (userUnblockCmd) Help() string {
	return "Sessions and tokens that have not run out meanwhile work again. For administrators."
}

// Run lets a user in again.
func (c userUnblockCmd) Run(ctx context.Context, s *command.Streams) error {
	if err := asks(true, c.Name); err != nil {
		return err
	}
	client, err := c.connect()
	if err != nil {
		return err
	}
	return changeUser(ctx, s, client, Call{Method: http.MethodPatch, Path: "/users/" + url.PathEscape(c.Name), Body: map[string]bool{"blocked": false}}, c.JSON)
}

type userRebindCmd struct {
	Name    string `arg:"" name:"user" help:"Whose name it is."`
	Issuer  string `required:"" help:"The identity provider's issuer." placeholder:"URL"`
	Subject string `required:"" help:"The account, as the provider's claim sub names it." placeholder:"SUB"`
	Yes     bool   `help:"Don't ask."`
	account `embed:""`
}

// Help returns the text that --help adds.
func (userRebindCmd) Help() string {
	return `Example:

  getwork user rebind mia --issuer https://login.bank.example --subject 8f14e45f

A name belongs to one account for good, so that nobody inherits another user's work. If a user's account was replaced at the provider, this command gives the name, and what is held under it, to the new account. All sessions and tokens of the name end. The account must not have a name here yet. For administrators.`
}

// Run binds a user's name to another account.
func (c userRebindCmd) Run(ctx context.Context, s *command.Streams) error {
	if err := asks(c.Yes, c.Name, c.Issuer, c.Subject); err != nil {
		return err
	}
	client, err := c.connect()
	if err != nil {
		return err
	}
	u, err := lookUp(ctx, client, c.Name)
	if err != nil {
		return err
	}
	if u.Issuer == c.Issuer && u.Subject == c.Subject {
		return errors.New("the name belongs to this account already")
	}
	what := fmt.Sprintf("The name %s, and what is held under it (%s), will belong to the account %s of %s; %s and %s end.",
		u.Name, counted(u.Holds, "item"), c.Subject, c.Issuer, counted(u.Sessions, "session"), counted(u.Tokens, "token"))
	if err := ask(ctx, s, c.Yes, what, "nothing was changed"); err != nil {
		return err
	}
	return changeUser(ctx, s, client, Call{Method: http.MethodPost, Path: "/users/" + url.PathEscape(c.Name) + "/rebind", Body: map[string]string{"iss": c.Issuer, "sub": c.Subject}}, c.JSON)
}
