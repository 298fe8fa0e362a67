package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"getwork/cmd/internal/command"
)

// version is set by the linker in releases.
var version = "0.1.0-dev"

type versionCmd struct{}

func (versionCmd) Run(s *command.Streams) error {
	revision := ""
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, setting := range info.Settings {
			switch {
			case setting.Key == "vcs.revision":
				revision = " " + setting.Value[:min(12, len(setting.Value))]
			case setting.Key == "vcs.modified" && setting.Value == "true":
				revision += " and changes"
			}
		}
	}
	_, err := fmt.Fprintf(s.Out, "getwork %s%s %s %s/%s\n", version, revision, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}
