// Package cli has the commands that are clients of the REST API: tasks, work, items, agents, users, sessions, tokens and
// log-in, and shell completion.
package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"getwork/assign"
	"getwork/cmd/internal/command"
	"getwork/cmd/internal/logins"
	"getwork/web"
	api "getwork/ws/client"
)

// Remote has the flags with which every client command reaches a node and identifies its user.
type Remote struct {
	URL       string             `group:"Which node, and who asks:" help:"The node to ask; any node will do." default:"http://127.0.0.1:8080" placeholder:"URL"`
	Token     string             `group:"Which node, and who asks:" help:"API token, which identifies the user. Every user of this machine can read it in the list of processes; --token-file and GETWORK_TOKEN show it to nobody." placeholder:"TOKEN"`
	TokenFile command.SecretFile `group:"Which node, and who asks:" help:"Read the API token from this file; it overrides --token, unless only that is given as a flag." placeholder:"FILE" complete:"file"`
	User      string             `group:"Which node, and who asks:" help:"The user's name, under --auth dev. The default is the name that you are logged in with on this machine." placeholder:"NAME"`
	Role      string             `group:"Which node, and who asks:" help:"The user's role, under --auth dev: worker, agent, observer or manager. The default is the least that the command needs." placeholder:"ROLE"`
	MemberOf  []string           `group:"Which node, and who asks:" help:"The user's groups, under --auth dev, separated by commas." placeholder:"GROUP"`
	JSON      bool               `help:"Print the answer as JSON, for programs."`
}

// holding is a Remote for commands whose user holds work.
type holding struct {
	Remote   `embed:""`
	Instance string `group:"Which node, and who asks:" help:"For programs: tells apart those that run under the same name." placeholder:"NAME"`
}

var knownRoles = []web.Role{web.Worker, web.Agent, web.Observer, web.Manager}

// Client makes the calls of one command.
type Client struct{ *api.Client }

// answerWithin bounds how long a node may take to answer a call, besides the time for which it was asked to hold the
// answer.
const answerWithin = 30 * time.Second

// queryWithin is the longest time-out that a task's query may have. Users who don't want to wait that long interrupt
// the command.
const queryWithin = 24 * time.Hour

// Connect returns a client that asks in the given role, unless a flag names another. It sends nothing yet. Its errors
// are wrong uses of the command line.
func (r Remote) Connect(role web.Role) (*Client, error) {
	u, err := url.Parse(r.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return nil, command.Usage("--url must be an address such as http://127.0.0.1:8080, not %q", r.URL)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.HTTP2 = &http.HTTP2Config{SendPingTimeout: 10 * time.Second, PingTimeout: 5 * time.Second} // a silent connection would serve the repetition, too
	c := &Client{&api.Client{URL: strings.TrimRight(u.String(), "/"), HTTP: &http.Client{Transport: transport}, Retry: api.Retry{Tries: 1}}}
	if c.Token, err = r.token(u); err != nil || c.Token != "" {
		return c, err
	}
	if r.Role != "" {
		role = web.Role(r.Role)
	}
	if !slices.Contains(knownRoles, role) {
		return nil, command.Usage("--role must be worker, agent, observer or manager, not %q", r.Role)
	}
	name, err := r.name()
	if err != nil {
		return nil, err
	}
	if err := fits(assign.CheckUser(name)); err != nil {
		return nil, err
	}
	c.User, c.Role, c.Groups = name, string(role), r.MemberOf
	for _, group := range r.MemberOf {
		if err := fits(assign.CheckGroup(group)); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// name returns the user's name for --auth dev.
func (r Remote) name() (string, error) {
	if r.User != "" {
		return r.User, nil
	}
	u, err := user.Current()
	if err != nil || u.Username == "" {
		return "", command.Usage("say who you are with --user: this machine does not know your name")
	}
	return u.Username, nil
}

func (h holding) connect(role web.Role) (*Client, error) {
	c, err := h.Connect(role)
	if err != nil || h.Instance == "" {
		return c, err
	}
	c.Instance = h.Instance
	return c, fits(assign.CheckInstance(h.Instance))
}

// fits returns a usage error for values that every server refuses, such as a name with a line break.
func fits(err error) error {
	var r *assign.Refusal
	if errors.As(err, &r) {
		return command.Usage("%s", r.Detail)
	}
	return err
}

// token returns the token to send to a node; empty: none is given. Its errors are wrong uses of the command line.
func (r Remote) token(to *url.URL) (string, error) {
	token := r.Token
	if r.TokenFile != "" {
		var err error
		if token, err = r.TokenFile.Read("token-file"); err != nil {
			return "", err
		}
	}
	named := r.User != "" || r.Role != "" || len(r.MemberOf) > 0
	switch {
	case token == "" && named:
		return "", nil
	case token == "":
		l, known, err := logins.Of(logins.Origin(to))
		if err != nil || !known {
			return "", err
		}
		return l.Token, confidential(to)
	case named:
		return "", command.Usage("a token identifies the user: leave out --user, --role and --member-of (GETWORK_USER, GETWORK_ROLE and GETWORK_MEMBER_OF), or --token and --token-file (GETWORK_TOKEN and GETWORK_TOKEN_FILE)")
	case strings.ContainsFunc(token, func(c rune) bool { return c <= ' ' || c > '~' }):
		return "", command.Usage("the token contains a character that tokens don't have, such as a space or a line break")
	}
	return token, confidential(to)
}

// confidential refuses an address to which a secret would go unencrypted.
func confidential(to *url.URL) error {
	host := to.Hostname()
	address, err := netip.ParseAddr(host)
	if to.Scheme == "https" || host == "localhost" || err == nil && address.IsLoopback() {
		return nil
	}
	return command.Usage("a token does not go over http to %s, where the network can read it: give the node's https:// address as --url", plain(to.Host))
}

// account has the flags of commands about people, sessions and tokens, which exist only where people log in.
type account struct {
	URL       string             `group:"Which node, and who asks:" help:"The node to ask; any node will do." default:"http://127.0.0.1:8080" placeholder:"URL"`
	Token     string             `group:"Which node, and who asks:" help:"API token, which identifies the user. Every user of this machine can read it in the list of processes; --token-file and GETWORK_TOKEN show it to nobody." placeholder:"TOKEN"`
	TokenFile command.SecretFile `group:"Which node, and who asks:" help:"Read the API token from this file; it overrides --token, unless only that is given as a flag." placeholder:"FILE" complete:"file"`
	JSON      bool               `help:"Print the answer as JSON, for programs."`
}

// connect returns a client that shows a token.
func (a account) connect() (*Client, error) {
	c, err := Remote{URL: a.URL, Token: a.Token, TokenFile: a.TokenFile}.Connect("manager")
	if err == nil && c.Token == "" {
		err = command.Usage("say who you are: with `getwork login`, with --token-file, or the variable GETWORK_TOKEN; the first token is made on the database, with `getwork token create --direct`")
	}
	return c, err
}

// Call is one request of the REST API.
type Call struct {
	Method string
	Path   string // below /api/v1, escaped
	Body   any    // sent as JSON; nil: none
	header map[string]string
	hold   time.Duration // how long the server may hold the answer (Prefer: wait), in whole seconds; 0: not at all
	query  bool          // the server may have to run the task's query, which takes as long as the task allows; or to release very much
}

// reply is an answer with a 2xx status.
type reply struct {
	api.Answer
	body json.RawMessage
}

// Do makes a call and decodes the answer into v, unless v is nil. It returns a [refused] if the server answered with
// another status than 2xx, and an [unreached] if no answer came.
func (c *Client) Do(ctx context.Context, what Call, v any) (reply, error) {
	within := answerWithin
	if what.query {
		within += queryWithin
	}
	var got reply
	options := []api.Option{api.Within(within), api.Wait(what.hold), api.Into(&got.Answer)}
	for name, value := range what.header {
		options = append(options, api.Header(name, value))
	}
	if err := c.Client.Do(ctx, what.Method, "/api/v1"+what.Path, what.Body, v, options...); err != nil {
		return reply{}, c.inWords(ctx, err)
	}
	got.body = got.Body
	return got, nil
}

// inWords turns the error of a call into words for the person who typed the command. If ctx, the caller's context, has
// ended, nothing is wrong with the server.
func (c *Client) inWords(ctx context.Context, err error) error {
	var foreign *api.Foreign
	var problem *api.Problem
	var none *api.NoAnswer
	switch {
	case ctx.Err() != nil:
		return ErrInterrupted
	case errors.As(err, &problem):
		return &refused{Problem: *problem, url: c.URL, byToken: c.Token != ""}
	case errors.As(err, &foreign):
		return fmt.Errorf("%s did not answer as getwork does (%w); is --url right?", c.URL, foreign.Err)
	case errors.As(err, &none):
		return c.unreached(none)
	}
	return err
}

// unreached is the error of a call that got no answer.
type unreached struct {
	unsent bool // no connection was made, so the server has not seen the call
	text   string
}

func (u *unreached) Error() string { return u.text }

// unreached explains why no answer came.
func (c *Client) unreached(none *api.NoAnswer) error {
	err, u := none.Err, &unreached{unsent: none.Unsent}
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		u.text = fmt.Sprintf("no server at %s: connection refused\nStart one with `getwork serve` or `getwork demo`, or name another with --url.", c.URL)
	case errors.Is(err, context.DeadlineExceeded):
		u.text = fmt.Sprintf("%s does not answer\nTry again, or name another node with --url.", c.URL)
	case u.unsent:
		u.text = fmt.Sprintf("can't reach %s: %v\nName another node with --url.", c.URL, err)
	default:
		u.text = fmt.Sprintf("the connection to %s was lost: %v\nTry again, or name another node with --url.", c.URL, err)
	}
	return u
}

// ErrInterrupted is the error of a command that was ended by Ctrl-C or SIGTERM.
var ErrInterrupted = errors.New("interrupted")

// paged has the flags of commands that print a list that can be long.
type paged struct {
	Limit  int    `help:"How many to list." default:"20" placeholder:"N"`
	All    bool   `help:"List all, however many there are."`
	Cursor string `help:"Continue where an earlier list ended, at the cursor that it printed." placeholder:"CURSOR"`
}

// maxPage is the most rows that one call returns.
const maxPage = 1000

// list is a list as the API sent it, with the cursor to continue at; an empty cursor means that the list is complete.
type list struct {
	plural string
	rows   []json.RawMessage
	next   string
}

// list reads as many pages as are wanted. plural is the name of the rows in the API's answer. Its errors are those of
// [Client.Do], or a wrong use of the flags.
func (p paged) list(ctx context.Context, c *Client, path string, query url.Values, plural string) (list, error) {
	if p.Limit < 1 {
		return list{}, command.Usage("--limit must be 1 or more, not %d; --all lists all", p.Limit)
	}
	l := list{plural: plural, rows: []json.RawMessage{}, next: p.Cursor}
	if query == nil {
		query = url.Values{}
	}
	for {
		size := maxPage
		if !p.All {
			size = min(size, p.Limit-len(l.rows))
		}
		query.Set("limit", strconv.Itoa(size))
		if l.next != "" {
			query.Set("cursor", l.next)
		}
		var page map[string]json.RawMessage
		if _, err := c.Do(ctx, Call{Method: "GET", Path: path + "?" + query.Encode()}, &page); err != nil {
			return list{}, err
		}
		var rows []json.RawMessage
		if err := json.Unmarshal(page[plural], &rows); err != nil {
			return list{}, fmt.Errorf("%s did not answer with %s (%w); is --url right?", c.URL, plural, err)
		}
		l.rows, l.next = append(l.rows, rows...), ""
		if next, ok := page["next_cursor"]; ok {
			if err := json.Unmarshal(next, &l.next); err != nil {
				return list{}, fmt.Errorf("read the cursor: %w", err)
			}
		}
		if l.next == "" || len(rows) == 0 || !p.All && len(l.rows) >= p.Limit {
			return l, nil
		}
	}
}

// MarshalJSON writes a list as the API does.
func (l list) MarshalJSON() ([]byte, error) {
	v := map[string]any{l.plural: l.rows}
	if l.next != "" {
		v["next_cursor"] = l.next
	}
	return json.Marshal(v)
}

// printList prints a list: with --json as the API sent it, and otherwise as print does, or as none says if it is empty and none isn't.
func printList[T any](s *command.Streams, l list, asJSON bool, none string, print func(rows []T) error) error {
	if asJSON {
		return printJSON(s.Out, l)
	}
	rows := make([]T, len(l.rows))
	for i, raw := range l.rows {
		if err := json.Unmarshal(raw, &rows[i]); err != nil {
			return fmt.Errorf("read %s: %w", l.plural, err)
		}
	}
	if len(rows) == 0 && none != "" {
		_, err := fmt.Fprintln(s.Errs, none)
		return err
	}
	err := print(rows)
	if l.next != "" {
		_, _ = fmt.Fprintf(s.Errs, "There may be more: --all lists everything, --cursor %s continues here.\n", l.next)
	}
	return err
}

// refused is an answer with another status than 2xx. Its text is made for the command line.
type refused struct {
	api.Problem
	url     string // that was asked
	byToken bool   // the call showed a token
}

// inCommands replaces what the server says about its API by the commands that do the same.
var inCommands = strings.NewReplacer(
	"GET /api/v1/tasks lists", "`getwork task list` lists",
	"GET /api/v1/pipeline lists", "`getwork pipeline` lists",
	"`GET /api/v1/work?item=` shows", "`getwork work list --item ITEM` shows",
	"is the URL right?", "is --url right?",
	"is that the right URL?", "is that the right --url?",
	"GET /api/v1/tokens lists", "`getwork token list` lists",
	"GET /api/v1/sessions lists", "`getwork session list` lists",
	"GET /api/v1/users lists", "`getwork user list` lists",
	"GET /api/v1/users shows", "`getwork user list` shows",
	`send "force": true if`, "add --force if",
	"a manager can redrive it", "a manager can put it back with `getwork items redrive`",
)

// logIn says how somebody comes in who is not believed.
const logIn = "Log in with `getwork login`; programs show a token, with --token-file or the variable GETWORK_TOKEN."

// Error returns the problem's detail, the fields that the detail does not mention, and what the user can do.
func (r *refused) Error() string {
	text := r.Detail
	if text == "" {
		text = r.Title
	}
	if slices.ContainsFunc(r.Errors, func(f assign.Field) bool { return f.Field == "X-Getwork-User" }) {
		return r.url + " believes no names, because it does not run with --auth dev\n" + logIn
	}
	lines := []string{ownTimes(inCommands.Replace(text))}
	for _, f := range r.Errors {
		if !strings.Contains(text, f.Detail) {
			lines = append(lines, fmt.Sprintf("  %s: %s", f.Field, ownTimes(f.Detail)))
		}
	}
	switch {
	case r.Type == "/problems/unauthenticated" && strings.Contains(r.LogIn, "again="):
		lines = append(lines, "Prove who you are with `getwork login --again`, and repeat the command.")
	case r.Type == "/problems/unauthenticated" && !r.byToken:
		lines = append(lines, "Under --auth dev say who you are with --user. "+logIn)
	case r.Type == "/problems/forbidden" && !r.byToken:
		lines = append(lines, "Under --auth dev set your role with --role, such as --role manager.")
	case r.RetryAfter > 0 && (r.Type == "/problems/busy" || r.Type == "/problems/unavailable" || r.Type == "/problems/rate-limited"):
		lines = append(lines, fmt.Sprintf("Try again in %s.", assign.Duration(r.RetryAfter)))
	}
	return strings.Join(lines, "\n")
}

// IsRefused reports whether err is an answer with that status.
func IsRefused(err error, status int) bool {
	var r *refused
	return errors.As(err, &r) && r.Status == status
}

// retryIn returns after how long a call is worth repeating, because the server is overloaded or away, or the connection
// was lost. known means that the server has answered before: if it can't be reached now, it may come back.
func retryIn(err error, known bool) (time.Duration, bool) {
	var lost *unreached
	if errors.As(err, &lost) {
		return time.Second, known || !lost.unsent
	}
	var r *refused
	if !errors.As(err, &r) {
		return 0, false
	}
	switch r.Status {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return max(r.RetryAfter, time.Second), true
	}
	return 0, false
}
