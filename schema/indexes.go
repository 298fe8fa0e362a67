package schema

import (
	_ "embed"
	"strings"
)

// indexes has the definitions of all indexes that the migrations make, one a line, as pg_get_indexdef writes them
// but with single blanks. A test
// compares it with a migrated database.
//
//go:embed indexes.txt
var indexes string

// Index is an index of getwork's tables.
type Index struct {
	Name       string // without the schema's
	Definition string // the statement that makes it
}

// Indexes returns the indexes that a schema of the newest version has, those of primary keys and other constraints included.
func Indexes(n Name) []Index {
	var all []Index
	for line := range strings.Lines(indexes) {
		line = strings.TrimSpace(line)
		_, name, _ := strings.Cut(line, " INDEX ")
		name, _, _ = strings.Cut(name, " ")
		all = append(all, Index{Name: name, Definition: n.SQL(line)})
	}
	return all
}
