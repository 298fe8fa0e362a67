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

// The program alone says what it can do.
func TestAlone(t *testing.T) {
	t.Parallel()
	var out, errs bytes.Buffer
	status := run(nil, &out, &errs)
	if status != command.ExitDone || errs.Len() > 0 || !bytes.Contains(out.Bytes(), []byte("Get work and let go of it:\n  get ")) {
		t.Errorf("status %d, %q, %q", status, out.String(), errs.String())
	}
}
