// Package cli has the commands that are clients of the REST API: tasks, work, items, agents, users, sessions, tokens and
// log-in, and shell completion.
package cli

import (
	"errors"
	"net/http"
	"net/url"
	"os/user"
	"slices"
	"strings"
	"time"

	"getwork/assign"
	"getwork/cmd/internal/command"
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
