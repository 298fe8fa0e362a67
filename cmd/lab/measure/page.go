package measure

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"getwork/cmd/internal/bench"
)

// Page is a Markdown file with a report in it.
type Page struct{ path, before, after string }

// ReadPage reads a folder's benchmarks.md. It returns an error unless the file has the two lines between which the
// report belongs.
func ReadPage(folder string) (p Page, err error) {
	const begin, end = "<!-- table -->\n", "<!-- /table -->"
	p.path = filepath.Join(folder, "benchmarks.md")
	text, err := os.ReadFile(p.path)
	if err != nil {
		return p, fmt.Errorf("%w: name a folder that has a benchmarks.md, such as docs", err)
	}
	before, rest, begun := strings.Cut(string(text), begin)
	_, after, ended := strings.Cut(rest, end)
	if !begun || !ended {
		return p, fmt.Errorf("%s has no lines %q and %q, between which the table belongs", p.path, strings.TrimSpace(begin), end)
	}
	p.before, p.after = before+begin, end+after
	return p, nil
}

// Write replaces the report in the page's file.
func (p Page) Write(r *bench.Report) error {
	return os.WriteFile(p.path, []byte(p.before+r.Table()+p.after), 0o644)
}
