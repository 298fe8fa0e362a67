package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"getwork/cmd/internal/command"
)

// asks returns a usage error if a command would have to ask and nobody can answer, or if a name is empty, as in a script whose
// variable is empty.
func asks(yes bool, names ...string) error {
	switch {
	case slices.Contains(names, ""):
		return command.Usage("a name or an id is empty; say whom or what you mean")
	case !yes && !command.IsTerminal(os.Stdin):
		return command.Usage("nobody can be asked: --yes goes on without asking")
	}
	return nil
}

// ask says what is going to happen, and waits for a yes; with yes it does neither. Any other answer is an error with the text
// no.
func ask(ctx context.Context, s *command.Streams, yes bool, what, no string) error {
	if yes {
		return nil
	}
	_, _ = fmt.Fprintf(s.Errs, "%s Go on? [y/N] ", plain(what))
	return confirm(ctx, os.Stdin, no)
}

// confirm waits for a yes, until ctx ends. Any other answer is an error with the text no.
func confirm(ctx context.Context, from io.Reader, no string) error {
	answered := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(from).ReadString('\n')
		answered <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case <-ctx.Done():
		return ErrInterrupted
	case answer := <-answered:
		if answer != "y" && answer != "yes" {
			return errors.New(no)
		}
		return nil
	}
}
