package client

import (
	"net/http"
	"strings"
)

// Client makes calls in the name of one caller. URL is needed, and who asks: Token, or User where nodes run with
// --auth dev. It may be used by several goroutines at once, and copied to ask as somebody else; its fields must not change
// while calls are under way.
type Client struct {
	URL string // of a node, or of what stands before several, such as http://127.0.0.1:8080

	Token    string   // an API token, which says who asks
	User     string   // who asks, under dev identity
	Role     string   // as what, under dev identity: worker, agent, observer or manager; empty: worker
	Groups   []string // that the user is in, under dev identity
	Instance string   // which of several programs of one user; each is a holder of its own. Empty: none

	// HTTP makes the calls, those of the live channel included; nil: one with http.DefaultTransport. It never follows a
	// redirect: the API has none, so one means that the URL is wrong, and a POST that follows it may arrive as a GET.
	HTTP *http.Client

	Retry Retry // of calls that are safe to repeat; the zero value sends a call four times at most
}

// As is the same client in another role, under dev identity.
func (c *Client) As(role string) *Client {
	other := *c
	other.Role = role
	return &other
}

func (c *Client) base() string { return strings.TrimRight(c.URL, "/") }

// http is the client that makes the calls. It keeps no state of its own: connections belong to the transport.
func (c *Client) http() *http.Client {
	var h http.Client
	if c.HTTP != nil {
		h = *c.HTTP
	}
	h.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &h
}

// header says who asks.
func (c *Client) header() http.Header {
	h := http.Header{}
	set := func(name, value string) {
		if value != "" {
			h.Set(name, value)
		}
	}
	set("X-Getwork-Instance", c.Instance)
	if c.Token != "" {
		set("Authorization", "Bearer "+c.Token)
		return h
	}
	set("X-Getwork-User", c.User)
	set("X-Getwork-Role", c.Role)
	set("X-Getwork-Groups", strings.Join(c.Groups, ","))
	return h
}
