package main

import (
	"bytes"
	"io"
	"testing"

	"getwork/cmd/internal/e2e"
)

func TestMain(m *testing.M) { e2e.Main(m) }

// What the parser refuses is said in plain words, and the help that is named is that of the command.
func TestRefusals(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"get", "x", "--count", "abc"}, "--count must be a whole number, not \"abc\"\nTry getwork get --help."},
		{[]string{"get", "x", "--wait", "abc"}, "--wait must be a time such as 30s, 90m or 4h, not \"abc\"\nTry getwork get --help."},
		{[]string{"done", "1", "--outcome", "x"}, "--outcome must be one of \"complete\",\"return\",\"never\",\"fail\", not \"x\"\nTry getwork done --help."},
		{[]string{"task", "show"}, "<name> is missing\nTry getwork task show --help."},
		{[]string{"nothing"}, "unexpected argument nothing\nTry getwork --help."},
	} {
		var said bytes.Buffer
		if status := run(c.args, io.Discard, &said); status != 2 || said.String() != "getwork: "+c.says+"\n" {
			t.Errorf("%q: status %d, %q; want %q", c.args, status, said.String(), c.says)
		}
	}
}
