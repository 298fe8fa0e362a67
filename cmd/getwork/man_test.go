package main

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	"getwork/cmd/internal/e2e"
)

// The manual page has every command and every setting of a node, and its text can't be read as requests of roff.
func TestManualPage(t *testing.T) {
	var out, errs, help bytes.Buffer
	if status := run(e2e.Text("__man", "--date", "2026-12-31"), &out, &errs); status != 0 {
		t.Fatal(status, &errs)
	}
	page := out.String()
	if !strings.HasPrefix(page, `.TH GETWORK 1 "2026-12-31" "getwork `) {
		t.Errorf("the page begins with %.80q", page)
	}
	for _, command := range e2e.Text("serve", `task create`, `work release`, `token create`, `migrate up`, `health`) {
		if !strings.Contains(page, "\n.SS \"getwork "+command) {
			t.Errorf("getwork %s is missing", command)
		}
	}
	run(e2e.Text("serve", "--help"), &help, &errs)
	flags := regexp.MustCompile(`(?m)^ +--([a-z-]+)`).FindAllStringSubmatch(help.String(), -1)
	if len(flags) < 40 {
		t.Fatalf("only %d flags are found", len(flags))
	}
	for _, flag := range flags {
		if !strings.Contains(page, `\fB\-\-`+strings.ReplaceAll(flag[1], "-", `\-`)+`\fR`) {
			t.Errorf("--%s is missing", flag[1])
		}
	}
	if strings.Contains(page, "__") {
		t.Error("it has hidden commands")
	}
	request := regexp.MustCompile(`^\.(TH|SH|SS|TP|PP|B|I|nf|fi)\b`)
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, "'") || strings.HasPrefix(line, ".") && !request.MatchString(line) {
			t.Errorf("%q would be read as a request", line)
		}
	}
}
