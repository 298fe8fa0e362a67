package main

import (
	"bytes"
	"regexp"
	"testing"

	"getwork/cmd/internal/command"
)

// The version is one line, with the revision if the build knows it.
func TestVersion(t *testing.T) {
	var out, errs bytes.Buffer
	if status := run([]string{"version"}, &out, &errs); status != command.ExitDone {
		t.Fatalf("status %d: %s", status, &errs)
	}
	want := `^getwork \S+( [0-9a-f]{12})? go\S+ \w+/\w+\n$`
	if !regexp.MustCompile(want).MatchString(out.String()) {
		t.Errorf("%q does not match %s", &out, want)
	}
}
