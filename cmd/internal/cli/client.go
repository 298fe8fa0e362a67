// Package cli has the commands that are clients of the REST API: tasks, work, items, agents, and the completion of commands.
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

// Remote is how every client command reaches a node, and says who asks.
type Remote struct {
	URL      string   `group:"Which node, and who asks:" help:"The node to ask; any of them will do." default:"http://127.0.0.1:8080" placeholder:"URL"`
	Token    string   `group:"Which node, and who asks:" help:"API token, which says who asks. Without one the node is taken to run with --auth dev." placeholder:"TOKEN"`
	User     string   `group:"Which node, and who asks:" help:"Who asks, under --auth dev. Without it: the name that you are logged in with on this machine." placeholder:"NAME"`
	Role     string   `group:"Which node, and who asks:" help:"As what, under --auth dev: worker, agent, observer or manager. Without it: the least that the command needs." placeholder:"ROLE"`
	MemberOf []string `group:"Which node, and who asks:" help:"The groups that you are in, under --auth dev, separated by commas." placeholder:"GROUP"`
	JSON     bool     `help:"Print the answer as JSON, for programs."`
}

// holding is a remote whose user holds work.
type holding struct {
	Remote   `embed:""`
	Instance string `group:"Which node, and who asks:" help:"For programs: which one, where several run under the same name." placeholder:"NAME"`
}

var knownRoles = []web.Role{web.Worker, web.Agent, web.Observer, web.Manager}

// Client makes the calls of one command.
type Client struct{ *api.Client }

// answerWithin is how long a node may take over a call, beside what it was asked to hold the answer for.
const answerWithin = 30 * time.Second

// queryWithin is what a task's query may take at most. Who does not want to wait that long interrupts the command.
const queryWithin = 24 * time.Hour

// Connect makes a client that asks as the given role, where no other was named. It sends nothing yet.
func (r Remote) Connect(role web.Role) (*Client, error) {
	u, err := url.Parse(r.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return nil, command.Usage("--url is an address such as http://127.0.0.1:8080, not %q", r.URL)
	}
	c := &Client{&api.Client{URL: strings.TrimRight(u.String(), "/"), Token: r.Token,
		HTTP: &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()}, Retry: api.Retry{Tries: 1}}}
	if r.Token != "" {
		if r.User != "" || r.Role != "" || len(r.MemberOf) > 0 {
			return nil, command.Usage("a token says who asks: leave out --user, --role and --member-of (GETWORK_USER, GETWORK_ROLE and GETWORK_MEMBER_OF), or --token (GETWORK_TOKEN)")
		}
		if strings.ContainsFunc(r.Token, func(c rune) bool { return c <= ' ' || c > '~' }) {
			return nil, command.Usage("--token has a character that no token has, such as a space or the end of a line")
		}
		return c, nil
	}
	if r.Role != "" {
		role = web.Role(r.Role)
	}
	if !slices.Contains(knownRoles, role) {
		return nil, command.Usage("--role is worker, agent, observer or manager, not %q", r.Role)
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

// name is who asks under dev identity.
func (r Remote) name() (string, error) {
	if r.User != "" {
		return r.User, nil
	}
	u, err := user.Current()
	if err != nil || u.Username == "" {
		return "", command.Usage("say who you are with --user: this machine does not tell")
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

// fits makes a wrong use of the command line of what no server would take, such as a name with a line break.
func fits(err error) error {
	var r *assign.Refusal
	if errors.As(err, &r) {
		return command.Usage("%s", r.Detail)
	}
	return err
}
