package main

import (
	"fmt"
	"log/slog"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"getwork/assign"
	"getwork/notify"
	"getwork/schema"
)

// version is set by the linker for a release.
var version = "0.1.0-dev"

type versionCmd struct{}

func (versionCmd) Run(s *streams) error {
	revision := ""
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, setting := range info.Settings {
			if setting.Key == "vcs.revision" {
				revision = " " + setting.Value[:min(12, len(setting.Value))]
			}
		}
	}
	_, err := fmt.Fprintf(s.out, "getwork %s%s %s %s/%s\n", version, revision, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	if open := holes(); err == nil && open != "" {
		_, err = fmt.Fprintf(s.out, "holes: %s\n", open)
	}
	return err
}

// holes names the defences that this build has switched off, for tests that must see it fail; see assign/holes.go.
func holes() string {
	open := slices.Concat(assign.Holes(), notify.Holes(), schema.Holes())
	slices.Sort(open)
	return strings.Join(open, ", ")
}

// tellHoles says so where a node is started: nobody should serve with one unawares.
func tellHoles(log *slog.Logger) {
	if open := holes(); open != "" {
		log.Error("this build has defences switched off; it is for tests only", "holes", open)
	}
}
