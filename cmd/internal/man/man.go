// Package man writes getwork's manual page from its own help, so that the page can't say anything else.
package man

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"

	"github.com/alecthomas/kong"

	"getwork/cmd/internal/command"
)

// Command prints the manual page, getwork(1), for the packages.
type Command struct {
	Date string `help:"The page's date, such as 2026-12-31." default:""`
}

// Run prints the page.
func (c Command) Run(app *kong.Kong, s *command.Streams) error {
	return Write(s.Out, app.Model, c.Date)
}

// often is how many commands must have a flag before the page describes it once, for all of them.
const often = 5

// Write writes the page of all commands that are not hidden. It is plain man(7), which groff and mandoc both read.
func Write(w io.Writer, app *kong.Application, date string) error {
	p := &page{common: map[string]bool{}}
	all := leaves(app.Node, nil)
	count := map[string]int{}
	for _, n := range all {
		for _, f := range own(n) {
			count[key(f)]++
		}
	}
	p.line(`.TH GETWORK 1 "%s" "%s" "User Commands"`, quoted(date), quoted(app.Vars()["version"]))
	p.line(".SH NAME")
	p.line(`getwork \- hand out work to many people at once, from PostgreSQL`)
	p.line(".SH SYNOPSIS")
	p.line(".B getwork")
	p.line(`.I command`)
	p.line(`[\fIflags\fR]`)
	p.line(".SH DESCRIPTION")
	p.text(app.Help)
	p.line(".SH COMMANDS")
	var common []*kong.Flag
	for _, n := range all {
		for _, f := range own(n) {
			if count[key(f)] >= often && !p.common[key(f)] {
				p.common[key(f)] = true
				common = append(common, f)
			}
		}
	}
	for _, n := range all {
		p.command(n)
	}
	p.line(".SH COMMON FLAGS")
	p.line("These stand with several commands; each command's")
	p.line(`.B \-\-help`)
	p.line("lists those that it has.")
	for _, f := range common {
		p.flag(f)
	}
	p.line(".SH EXIT STATUS")
	for _, row := range [][2]string{{"0", "The command is done."}, {"1", "It failed."}, {"2", "It was called in a wrong way."}} {
		p.line(".TP\n.B %s\n%s", row[0], row[1])
	}
	p.line(".SH FILES")
	p.line(".TP\n.I /etc/getwork/getwork.env\nThe settings of a node that the packages' systemd unit starts.")
	_, err := w.Write(p.Bytes())
	return err
}

// page is the text so far.
type page struct {
	bytes.Buffer
	common map[string]bool // flags that are described once
}

func (p *page) line(format string, args ...any) { _, _ = fmt.Fprintf(p, format+"\n", args...) }

// text writes a help text. Blank lines separate paragraphs, and indented lines stay as they are.
func (p *page) text(help string) {
	literal, blank := false, true // no break before the first paragraph
	for line := range strings.Lines(help) {
		line = strings.TrimRightFunc(line, unicode.IsSpace)
		switch indented := strings.HasPrefix(line, " "); {
		case line == "":
			if !blank && !literal {
				p.line(".PP")
			}
			blank = true
			continue
		case indented && !literal:
			p.line(".nf")
			literal = true
		case !indented && literal:
			p.line(".fi\n.PP")
			literal = false
		}
		blank = false
		p.line("%s", escaped(line))
	}
	if literal {
		p.line(".fi")
	}
}

func (p *page) command(n *kong.Node) {
	p.line(`.SS "%s"`, quoted(escaped(n.FullPath()+arguments(n))))
	p.text(n.Help)
	if n.Detail != "" {
		p.line(".PP")
		p.text(n.Detail)
	}
	for _, a := range n.Positional {
		p.line(".TP\n.I %s", escaped(a.Name))
		p.text(a.Help)
	}
	for _, f := range own(n) {
		if !p.common[key(f)] {
			p.flag(f)
		}
	}
}

func (p *page) flag(f *kong.Flag) {
	name := `\fB` + escaped("--"+f.Name) + `\fR`
	if f.Short != 0 {
		name = `\fB` + escaped("-"+string(f.Short)) + `\fR, ` + name
	}
	if !f.IsBool() && !f.IsCounter() {
		name += `=\fI` + escaped(f.FormatPlaceHolder()) + `\fR`
	}
	p.line(".TP\n%s", name)
	p.text(f.Help)
	if len(f.Envs) > 0 {
		p.line(`Also in the environment: \%%%s.`, strings.Join(f.Envs, `, \%`))
	}
}

// leaves returns the commands that can be called, in the order of the help.
func leaves(n *kong.Node, found []*kong.Node) []*kong.Node {
	for _, child := range n.Children {
		switch {
		case child.Hidden:
		case len(child.Children) == 0:
			found = append(found, child)
		default:
			found = leaves(child, found)
		}
	}
	return found
}

// own returns the flags of a command and of its parents below the program.
func own(n *kong.Node) []*kong.Flag {
	var all []*kong.Flag
	for ; n.Parent != nil; n = n.Parent {
		all = append(all, n.Flags...)
	}
	return slices.DeleteFunc(all, func(f *kong.Flag) bool { return f.Hidden })
}

// key is the same for flags that one description serves.
func key(f *kong.Flag) string { return f.Name + "\n" + f.Help }

// arguments are a command's, as in the synopsis of its help.
func arguments(n *kong.Node) string {
	var all strings.Builder
	for _, a := range n.Positional {
		all.WriteString(" " + a.Summary())
	}
	return all.String()
}

// escaped keeps a text from being read as a request or as an escape, and hyphens from becoming dashes.
func escaped(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text)
	if strings.HasPrefix(text, ".") || strings.HasPrefix(text, "'") {
		text = `\&` + text
	}
	return text
}

// quoted is a text within a request's quotes.
func quoted(text string) string { return strings.ReplaceAll(text, `"`, `\(dq`) }
