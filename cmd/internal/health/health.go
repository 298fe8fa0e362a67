// Package health has the command that asks a node on this machine whether it lives or is ready, for containers that have no
// other program to ask with.
package health

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"getwork/cmd/internal/command"
)

// Command asks one node. Without --url it finds the node by the settings that `getwork serve` reads from the same environment.
type Command struct {
	URL     string        `help:"The node to ask. Without it the command asks the node of this machine that serves on --listen." placeholder:"URL" call:""`
	Listen  string        `help:"The address that the node serves on, as given to serve (default ${default})." default:"127.0.0.1:8080" placeholder:"ADDR"`
	TLSCert string        `help:"The certificate that the node serves with, as given to serve: ask over TLS." placeholder:"FILE" complete:"file"`
	Live    bool          `help:"Ask only whether the process serves, whatever the database does: for restarts." call:""`
	Timeout time.Duration `help:"How long the answer may take (default ${default})." default:"3s" call:""`
}

// Help returns the text that --help adds.
func (Command) Help() string {
	return `Exits with 0 if the node is ready (or, with --live, alive), and with 1 if it is not, or does not answer in time.

A container's health command is "getwork health", or "getwork health --live" where an unhealthy container is restarted: without the database no node is ready, and a restart doesn't help. The environment of getwork serve is enough for it.`
}

// Run asks, and prints what the node says.
func (c Command) Run(ctx context.Context, s *command.Streams) error {
	address, err := c.address()
	if err != nil {
		return err
	}
	if c.Timeout <= 0 {
		return command.Usage("--timeout must be more than 0, not %s", c.Timeout)
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	said, err := ask(ctx, address, c.URL == "")
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%s does not answer within %s", address, c.Timeout)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(s.Out, said)
	return err
}

// address returns what to ask for.
func (c Command) address() (*url.URL, error) {
	path := "/readyz"
	if c.Live {
		path = "/livez"
	}
	if c.URL != "" {
		u, err := url.Parse(c.URL)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" {
			return nil, command.Usage("--url must be an address such as http://127.0.0.1:8080, not %q", c.URL)
		}
		u.Path = path
		return u, nil
	}
	host, port, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return nil, command.Usage("--listen must be HOST:PORT, such as 127.0.0.1:8080: %v", err)
	}
	if port == "0" {
		return nil, command.Usage("--listen %s lets the system choose a port, so name the node with --url", c.Listen)
	}
	if a, err := netip.ParseAddr(host); host == "" || err == nil && a.IsUnspecified() {
		host = "127.0.0.1"
		if err == nil && a.Is6() {
			host = "::1"
		}
	}
	u := &url.URL{Scheme: "http", Host: net.JoinHostPort(host, port), Path: path}
	if c.TLSCert != "" {
		u.Scheme = "https"
	}
	return u, nil
}

// ask returns the answer's first line, or an error unless the status is 200. here says that the address is this machine's own.
func ask(ctx context.Context, address *url.URL, here bool) (string, error) {
	transport := &http.Transport{DisableKeepAlives: true}
	if a, err := netip.ParseAddr(address.Hostname()); here || err == nil && a.IsLoopback() || address.Hostname() == "localhost" {
		// The node's certificate names its public host, not this address. Nothing secret is sent, and whoever can answer here in the
		// node's place is on this machine.
		transport.TLSClientConfig = &tls.Config{InsecureSkipVerify: true} //nolint:gosec // see above
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address.String(), nil)
	if err != nil {
		return "", err
	}
	client := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	answer, err := client.Do(r)
	if err != nil {
		var call *url.Error
		if errors.As(err, &call) && !call.Timeout() {
			err = call.Err
		}
		return "", fmt.Errorf("%s does not answer: %w", address, err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, 1<<10))
	if err != nil {
		return "", fmt.Errorf("%s does not answer: %w", address, err)
	}
	said, _, _ := strings.Cut(strings.TrimSpace(string(body)), "\n")
	if answer.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s answers with status %d: %s", address, answer.StatusCode, said)
	}
	return said, nil
}
