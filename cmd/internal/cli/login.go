package cli

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"

	"getwork/assign/rights"
	"getwork/cmd/internal/command"
	"getwork/cmd/internal/logins"
	"getwork/cmd/internal/serve"
	"getwork/web/identity"
	api "getwork/ws/client"
)

// LoginCmd logs a terminal in with its user's browser.
type LoginCmd struct {
	URL   string `group:"Which node, and who asks:" help:"The node to log in to, at its public address." default:"http://127.0.0.1:8080" placeholder:"URL"`
	Paste bool   `help:"Show a code in the browser that you paste here, if the browser is on another machine than this terminal."`
	Again bool   `help:"Log in again although you are logged in; needed before you make a token with the scope manage, or one for a service."`

	open func(address string) error // opens a browser; nil: the usual one
	in   io.Reader                  // nil: standard input
}

// Help returns the text that --help adds.
func (LoginCmd) Help() string {
	return `Opens your browser. Log in there if you have not yet, check that the page and this terminal show the same characters, and approve the terminal. The commands then send their token to that node's origin, and to no other. It may do what you may, and ends with the browser's session, or with ` + "`getwork logout`" + `.

The token is kept in $XDG_CONFIG_HOME/getwork/tokens.json, which only you can read. --user, --token, --token-file and their variables override it.`
}

// logInWithin is how long somebody may take in the browser.
const logInWithin = 10 * time.Minute

// Run logs in.
func (c LoginCmd) Run(ctx context.Context, s *command.Streams) error {
	client, to, err := nodeAt(c.URL)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, logInWithin)
	defer cancel()
	if err := hasLogIn(ctx, client); err != nil {
		return err
	}
	var secret [32]byte
	_, _ = rand.Read(secret[:])
	verifier := base64.RawURLEncoding.EncodeToString(secret[:])
	sum := sha256.Sum256([]byte(verifier))
	challenge := base64.RawURLEncoding.EncodeToString(sum[:])
	query := url.Values{"challenge": {challenge}, "label": {terminalName()}}
	var once sync.Mutex
	var got *rights.Terminal
	redeem := func(code string) error {
		once.Lock()
		defer once.Unlock()
		if got != nil {
			return errors.New("used already")
		}
		var terminal rights.Terminal
		err := client.Client.Do(ctx, http.MethodPost, "/auth/cli/token", map[string]string{"code": code, "verifier": verifier}, &terminal)
		if err != nil {
			_, _ = fmt.Fprintln(s.Errs, "A code was refused:", client.inWords(ctx, err))
			return err
		}
		got = &terminal
		return nil
	}
	var listener *logins.Listener
	if !c.Paste {
		if listener, err = logins.Listen(); err != nil {
			return err
		}
		query.Set("port", strconv.Itoa(listener.Port))
	}
	address := "/auth/cli?" + query.Encode()
	if c.Again {
		address = "/auth/login?" + url.Values{"again": {"1"}, "return_to": {address}}.Encode()
	}
	address = client.URL + address
	_, _ = fmt.Fprintf(s.Errs, "Open this address, and approve if the page shows %s:\n\n  %s\n\n", identity.Check(challenge), address)
	if c.Paste {
		err = c.paste(ctx, s, redeem)
	} else {
		open := c.open
		if open == nil {
			open = openBrowser
		}
		if open(address) != nil {
			_, _ = fmt.Fprintln(s.Errs, "No browser could be started here. If yours is on another machine, use --paste.")
		}
		err = listener.Await(ctx, redeem)
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return errors.New("nobody approved within ten minutes; run `getwork login` again")
	case err != nil:
		return client.inWords(ctx, err)
	}
	if err := logins.Keep(logins.Origin(to), &logins.LogIn{Token: got.Token, User: got.User, EndsAt: got.EndsAt}); err != nil {
		return fmt.Errorf("keep the token: %w", err)
	}
	_, err = fmt.Fprintf(s.Errs, "You are %s at %s, until %s at most. `getwork logout` ends that.\n", plain(got.User), logins.Origin(to), moment(&got.EndsAt))
	return err
}

// hasLogIn refuses a node where no browser logs in: nobody could approve there.
func hasLogIn(ctx context.Context, client *Client) error {
	var p *api.Problem
	err := client.Client.Do(ctx, http.MethodGet, "/api/v1/me", nil, nil)
	if !errors.As(err, &p) || p.Type != "/problems/unauthenticated" || p.LogIn == "/auth/login" {
		return nil // another fault shows below
	}
	if p.LogIn == "/" {
		return fmt.Errorf("nobody logs in at %s, which runs with --auth dev: say who you are with --user", client.URL)
	}
	return fmt.Errorf("nobody logs in at %s by a browser: show a token, with --token-file or the variable GETWORK_TOKEN", client.URL)
}

// paste reads the code that its user carries.
func (c LoginCmd) paste(ctx context.Context, s *command.Streams, redeem func(string) error) error {
	_, _ = fmt.Fprint(s.Errs, "Give the code to nobody, whoever asks: whoever has it in their terminal can work as you.\nThe code: ")
	in := c.in
	if in == nil {
		in = os.Stdin
	}
	typed := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(in).ReadString('\n')
		typed <- strings.TrimSpace(line)
	}()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case code := <-typed:
		if !logins.CodeForm.MatchString(code) {
			return errors.New("this is not a code; run `getwork login --paste` again")
		}
		return redeem(code)
	}
}

// nodeAt returns a client that has no token yet.
func nodeAt(address string) (*Client, *url.URL, error) {
	client, err := Remote{URL: address, User: "nobody"}.Connect("worker")
	if err != nil {
		return nil, nil, err
	}
	client.User, client.Role = "", ""
	to, err := url.Parse(client.URL)
	if err != nil {
		return nil, nil, command.AsUsage(err)
	}
	if to.Path != "" {
		return nil, nil, command.Usage("--url must end after the host and port, not have a path: %s", to.Path)
	}
	return client, to, confidential(to)
}

// terminalName is what this terminal calls itself.
func terminalName() string {
	name := strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, serve.Operator())
	return strings.ToValidUTF8(name[:min(len(name), 100)], "")
}

// openBrowser starts the user's browser, and does not wait for it.
func openBrowser(address string) error {
	program, args := os.Getenv("BROWSER"), []string{address}
	switch {
	case program != "":
	case runtime.GOOS == "darwin":
		program = "open"
	case runtime.GOOS == "windows":
		program, args = "rundll32", []string{"url.dll,FileProtocolHandler", address}
	case os.Getenv("DISPLAY") == "" && os.Getenv("WAYLAND_DISPLAY") == "":
		return errors.New("there is no display")
	default:
		program = "xdg-open"
	}
	command := exec.Command(program, args...)
	command.Env, _ = withoutSecrets(os.Environ(), nil)
	if err := command.Start(); err != nil {
		return err
	}
	go func() { _ = command.Wait() }()
	return nil
}

// LogoutCmd ends the token of `getwork login`.
type LogoutCmd struct {
	URL    string `group:"Which node, and who asks:" help:"The node to log out of." default:"http://127.0.0.1:8080" placeholder:"URL"`
	Forget bool   `help:"Only remove the token from this machine: the node is gone, or can't be reached."`
}

// Help returns the text that --help adds.
func (LogoutCmd) Help() string {
	return "The browser stays logged in. Requests that wait under the token are cancelled."
}

// Run ends the token on the node, and then removes it here.
func (c LogoutCmd) Run(ctx context.Context, s *command.Streams) error {
	client, to, err := nodeAt(c.URL)
	if err != nil {
		return err
	}
	origin := logins.Origin(to)
	l, known, err := logins.Of(origin)
	switch {
	case err != nil:
		return err
	case !known:
		_, err = fmt.Fprintf(s.Errs, "You are not logged in at %s.\n", origin)
		return err
	}
	client.Token = l.Token
	if !c.Forget && len(l.Token) > 16 {
		_, err := client.Do(ctx, Call{Method: http.MethodDelete, Path: "/tokens/" + l.Token[3:15]}, nil)
		if err != nil && !IsRefused(err, http.StatusUnauthorized) { // it has ended already
			return fmt.Errorf("%w\nthe token is kept, so that you can try again; --forget only removes it here", err)
		}
	}
	if err := logins.Keep(origin, nil); err != nil {
		return err
	}
	_, err = fmt.Fprintf(s.Errs, "Logged out of %s.\n", origin)
	return err
}
