package cli

import (
	"net/netip"
	"net/url"
	"strings"

	"getwork/cmd/internal/command"
	"getwork/cmd/internal/logins"
)

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
