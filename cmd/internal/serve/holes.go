package serve

import (
	"log/slog"
	"slices"
	"strings"

	"getwork/assign"
	"getwork/notify"
	"getwork/schema"
)

// Holes names the defences that this build has switched off, for tests that must see it fail; see assign/holes.go.
func Holes() string {
	open := slices.Concat(assign.Holes(), notify.Holes(), schema.Holes())
	slices.Sort(open)
	return strings.Join(open, ", ")
}

// tellHoles says so where a node is started: nobody should serve with one unawares.
func tellHoles(log *slog.Logger) {
	if open := Holes(); open != "" {
		log.Error("this build has defences switched off; it is for tests only", "holes", open)
	}
}
