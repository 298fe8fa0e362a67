package client

import (
	"net/http"
	"strings"
	"sync"
	"time"
)

// Client makes calls as one caller. URL is required, and an identity: Token, or User if nodes run with --auth dev. Several
// goroutines may use a Client at once. Copy it to call as another user; its fields must not change during calls.
type Client struct {
	URL string // of a node, or of a proxy before several, such as http://127.0.0.1:8080

	Token    string   // an API token, which identifies the caller
	User     string   // the caller's name, under dev identity
	Role     string   // under dev identity: worker, agent, observer or manager; worker if empty
	Groups   []string // the user's groups, under dev identity
	Instance string   // which of several programs of one user; each is a holder of its own. Empty for none

	// HTTP makes the calls, including those of the live channel. Nil means one with a copy of http.DefaultTransport as it is at
	// the first call, which all clients share; it drops HTTP/2 connections that went silent. HTTP never follows redirects: the
	// API has none, so a redirect means that the URL is wrong, and a POST could become a GET.
	HTTP *http.Client

	Retry Retry // how calls are repeated; the zero value sends a call at most four times
}

// As returns the same client in another role, under dev identity.
func (c *Client) As(role string) *Client {
	other := *c
	other.Role = role
	return &other
}

func (c *Client) base() string { return strings.TrimRight(c.URL, "/") }

// http returns the client that makes the calls. It has no state of its own: connections belong to the transport.
func (c *Client) http() *http.Client {
	var h http.Client
	if c.HTTP != nil {
		h = *c.HTTP
	} else {
		h.Transport = usualTransport()
	}
	h.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &h
}

// usualTransport returns the transport of clients that name none. Over HTTP/2 all calls share one connection, so without pings each
// repetition would go into one whose other end has vanished.
var usualTransport = sync.OnceValue(func() http.RoundTripper {
	t, ok := http.DefaultTransport.(*http.Transport)
	if !ok { // somebody replaced it
		return http.DefaultTransport
	}
	t = t.Clone()
	t.HTTP2 = &http.HTTP2Config{SendPingTimeout: 10 * time.Second, PingTimeout: 5 * time.Second}
	return t
})

// header returns the headers that identify the caller.
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
