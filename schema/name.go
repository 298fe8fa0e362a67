package schema

import (
	"errors"
	"regexp"
	"strings"
)

// Default is the schema that all SQL in this module is written for.
const Default Name = "getwork"

// qualifier is the schema's name in SQL texts, always followed by a table, view or function.
const qualifier = "getwork."

var namePattern = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,39}$`)

// Name is the name of the PostgreSQL schema that holds getwork's tables. Several names in one database are
// independent installations. Make a Name with [ParseName]; a converted string would be written into SQL
// unchecked.
type Name string

// ParseName checks a name that a user gave. It allows no upper case, so that nobody has to quote the name in
// psql, and leaves room below PostgreSQL's 63 bytes.
func ParseName(s string) (Name, error) {
	if !namePattern.MatchString(s) {
		return "", errors.New("schema name: use 1 to 40 of a-z, 0-9 and _, not beginning with a digit")
	}
	if strings.HasPrefix(s, "pg_") {
		return "", errors.New("schema name: PostgreSQL keeps names that begin with pg_ for itself")
	}
	return Name(s), nil
}

// Quoted returns the name as an SQL identifier, so that a reserved word may be a name.
func (n Name) Quoted() string { return `"` + string(n) + `"` }

// Channel is the channel for LISTEN and NOTIFY. Channels belong to a database and not to a schema, so the
// channel has the schema's name: two installations in one database don't hear each other. LISTEN takes an
// identifier: use [Name.Quoted] there, and this as an argument of pg_notify.
func (n Name) Channel() string { return string(n) }

// SQL returns the query with its schema qualifier, getwork., replaced by this schema's. For [Default] that is
// the query itself, without an allocation. For another name it costs a copy of the text.
//
// Names are written out, and not found through search_path, because search_path is state of a session, and a
// transaction pooler gives every transaction another one.
func (n Name) SQL(query string) string {
	if n == Default {
		return query
	}
	var b strings.Builder
	b.Grow(len(query) + 64)
	for start := 0; ; {
		i := strings.Index(query[start:], qualifier)
		if i < 0 {
			b.WriteString(query[start:])
			return b.String()
		}
		i += start
		b.WriteString(query[start:i])
		if i > 0 && inWord(query[i-1]) {
			b.WriteString(qualifier)
		} else {
			b.WriteString(n.Quoted())
			b.WriteByte('.')
		}
		start = i + len(qualifier)
	}
}

// inWord reports whether the byte before the qualifier makes it the end of something else: a longer name, a name
// inside another schema, a quoted identifier.
func inWord(c byte) bool {
	switch {
	case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c >= 0x80:
		return true
	}
	return c == '_' || c == '$' || c == '.' || c == '"'
}
