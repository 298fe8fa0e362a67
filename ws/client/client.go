package client

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
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

// check returns what is wrong with the client, whatever it calls.
func (c *Client) check() error {
	if err := checkURL(c.URL); err != nil {
		return err
	}
	return checkHeader(c.header())
}

// checkURL refuses an address that no call can be made to. net/http would say so as if the server were away, and calls would be
// repeated for ever.
func checkURL(address string) error {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return errors.New("the client's URL is not the address of a node; set one such as http://127.0.0.1:8080")
	}
	return nil
}

// fields are those of a Client, and the option, whose values are sent as headers.
var fields = map[string]string{"Authorization": "Token", "X-Getwork-Instance": "Instance", "X-Getwork-User": "User", "X-Getwork-Role": "Role",
	"X-Getwork-Groups": "Groups", keyHeader: "Key"}

// checkHeader refuses values that HTTP can't carry, for the reason that [checkURL] has. It names the field and not the value,
// which may be secret.
func checkHeader(h http.Header) error {
	for name, values := range h {
		for _, value := range values {
			if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
				return fmt.Errorf("the client's %s contains a line break or another control character, which HTTP can't send; "+
					"remove it (text that was read from a file often ends with a line break)", cmp.Or(fields[name], "header "+name))
			}
		}
	}
	return nil
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
