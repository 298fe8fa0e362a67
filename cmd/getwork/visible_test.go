package main

import (
	"bytes"
	"testing"

	"getwork/cmd/internal/command"
)

// An error that contains data can't control the terminal.
func TestErrorsAreVisible(t *testing.T) {
	t.Parallel()
	var out, errs bytes.Buffer
	if status := run([]string{"pipeline", "--user", "a", "--url", "http://127.0.0.1:1/\x1b[31m"}, &out, &errs); status == command.ExitDone || bytes.ContainsRune(errs.Bytes(), '\x1b') {
		t.Errorf("status %d, %q", status, errs.String())
	}
}
