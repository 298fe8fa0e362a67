package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"getwork/cmd/internal/otlp"
)

var update = flag.Bool("update", false, "write docs/configuration.md")

const configurationFile = "../../docs/configuration.md"

// docs/configuration.md lists the settings of a node as the program has them. After a change of a flag, write it by
//
//	go test ./cmd/getwork -run TestConfiguration -update
func TestConfiguration(t *testing.T) {
	t.Parallel()
	var c commandLine
	parser, err := kong.New(&c, flags, kong.Vars{"version": ""})
	if err != nil {
		t.Fatal(err)
	}
	want := configuration(parser.Model)
	if *update {
		if err := os.WriteFile(configurationFile, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(configurationFile)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Error("docs/configuration.md is not what the program's flags say; write it with -update")
	}
}

// configuration returns the page.
func configuration(model *kong.Application) string {
	var b strings.Builder
	b.WriteString(`# Configuration

The settings of a node, ` + "`getwork serve`" + `. Each is a flag and a variable of the environment; a flag beats a variable. Secrets are read from
files, never from flags. This page is generated from the program.

| flag | variable | meaning |
| --- | --- | --- |
`)
	for _, command := range model.Children {
		if command.Name != "serve" {
			continue
		}
		for _, f := range command.Flags {
			if f.Name == "help" || f.Hidden {
				continue
			}
			name := "--" + f.Name
			if !f.IsBool() {
				name += "=" + f.FormatPlaceHolder()
			}
			fmt.Fprintf(&b, "| `%s` | `%s` | %s |\n", strings.ReplaceAll(name, "|", `\|`), strings.Join(f.Envs, "` or `"), strings.ReplaceAll(f.Help, "|", `\|`))
		}
	}
	b.WriteString(`
## Traces

OpenTelemetry's standard variables say whether and where a node sends traces; there are no flags for them.
[watch.md](watch.md#traces) says what is sent. OpenTelemetry's other variables for OTLP over HTTP (certificates, compression,
time-outs), for batches (` + "`OTEL_BSP_…`" + `) and for limits of spans hold, too.

| variable | meaning |
| --- | --- |
`)
	for _, v := range otlp.Variables {
		fmt.Fprintf(&b, "| `%s` | %s |\n", v.Name, v.Meaning)
	}
	return b.String()
}
