package schema

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"regexp"
	"strings"

	"github.com/jackc/tern/v2/migrate"
)

//go:embed migrations/*.sql
var embedded embed.FS

// files are the migrations; tests of this package add some.
var files fs.FS = embedded

// separator divides a file into its up and down parts, as tern writes it.
const separator = "---- create above / drop below ----"

// schemaPattern finds the schema's name where no dot follows: in create schema, grant … on schema, comment on
// schema.
var schemaPattern = regexp.MustCompile(`(?i)(\bschema\s+(?:if\s+(?:not\s+)?exists\s+)?)getwork\b`)

// migration is one numbered file, its SQL written for one schema.
type migration struct{ name, up, down string }

// load reads the embedded files in their order. It parses them itself, without tern's templates: a file runs as
// it is, except for the schema's name.
func load(n Name) ([]migration, error) {
	dir, err := fs.Sub(files, "migrations")
	if err != nil {
		return nil, fmt.Errorf("migrations: %w", err)
	}
	names, err := migrate.FindMigrations(dir)
	if err != nil {
		return nil, fmt.Errorf("migrations: %w", err)
	}
	all := make([]migration, 0, len(names))
	for _, name := range names {
		text, err := fs.ReadFile(dir, name)
		if err != nil {
			return nil, fmt.Errorf("migrations: %w", err)
		}
		up, down, _ := strings.Cut(string(text), separator)
		all = append(all, migration{name: name, up: n.rewrite(up), down: n.rewrite(down)})
	}
	return all, nil
}

// rewrite is [Name.SQL] for a migration, in which the schema's name also occurs without a dot.
func (n Name) rewrite(text string) string {
	text = strings.TrimSpace(text)
	if n == Default {
		return text
	}
	return schemaPattern.ReplaceAllString(n.SQL(text), "${1}"+n.Quoted())
}

// Hash identifies the migrations that this program knows: 64 hexadecimal digits over their names and texts.
// A database made with the same hash has the same tables; tests name their templates by it.
func Hash() (string, error) {
	all, err := load(Default)
	if err != nil {
		return "", err
	}
	h := sha256.New()
	for _, m := range all {
		_, _ = fmt.Fprintf(h, "%s\x00%s\x00%s\x00", m.name, m.up, m.down)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
