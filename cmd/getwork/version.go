package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"getwork/cmd/internal/command"
)

// version is set by the linker in releases.
var version = "0.1.0-dev"

// build is what this program was built from.
type build struct {
	version  string
	revision string // the commit; empty if the build does not know it
	changed  bool   // there were changes that were not committed
}

// thisBuild reads what the compiler noted. Between two releases the version ends with the commit's time and name, so that builds can be
// distinguished and a later one is newer. deploy/release does the same.
func thisBuild() build {
	b, at := build{version: version}, ""
	info, _ := debug.ReadBuildInfo()
	if info == nil {
		return b
	}
	for _, setting := range info.Settings {
		switch setting.Key {
		case "vcs.revision":
			b.revision = setting.Value[:min(12, len(setting.Value))]
		case "vcs.time":
			at = strings.NewReplacer("-", "", "T", "", ":", "", "Z", "").Replace(setting.Value)
		case "vcs.modified":
			b.changed = setting.Value == "true"
		}
	}
	if strings.HasSuffix(version, "-dev") && at != "" && b.revision != "" {
		b.version += "." + at + ".g" + b.revision
	}
	return b
}

type versionCmd struct{}

func (versionCmd) Run(s *command.Streams) error {
	b := thisBuild()
	line := "getwork " + b.version
	if b.revision != "" {
		line += " " + b.revision
	}
	if b.changed {
		line += " and changes"
	}
	_, err := fmt.Fprintf(s.Out, "%s %s %s/%s\n", line, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}
