package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"getwork/cmd/internal/command"
	"getwork/schema/schematest"
)

// A URL with a password can be read from a file, which overrides the one in the environment.
func TestURLFromFile(t *testing.T) {
	url := schematest.URL(t)
	t.Setenv("DATABASE_URL", "postgres://127.0.0.1:1/nowhere")
	file := filepath.Join(t.TempDir(), "url")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	migrate := func() (int, string) {
		var out, errs bytes.Buffer
		status := run([]string{"migrate", "status", "--database-url-file", file}, &out, &errs)
		return status, out.String() + errs.String()
	}
	write(url + "\n")
	if status, out := migrate(); status != command.ExitDone {
		t.Errorf("status %d: %s", status, out)
	}
	for _, wrong := range []string{"", url + "\n" + url} {
		write(wrong)
		if status, out := migrate(); status != command.ExitUsage || !strings.Contains(out, "one URL") {
			t.Errorf("%q: status %d: %s", wrong, status, out)
		}
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if status, out := migrate(); status != command.ExitUsage || !strings.Contains(out, "--database-url-file") {
		t.Errorf("status %d: %s", status, out)
	}
	var out, errs bytes.Buffer
	if status := run([]string{"serve", "--query-database-url-file", file}, &out, &errs); status != command.ExitUsage || !strings.Contains(errs.String(), "--query-database-url-file") {
		t.Errorf("serve ends with %d: %s", status, &errs)
	}
}
