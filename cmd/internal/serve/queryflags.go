package serve

import (
	"getwork/assign"
	"getwork/cmd/internal/command"
)

// Queries has the settings that say who may write queries, and how far they are trusted.
type Queries struct {
	QueryAuthors      string `help:"The group whose managers may write, preview and restore queries. By default all managers may." placeholder:"GROUP"`
	TrustQueryWriters bool   `help:"Let queries use the login of --database-url, though --auth is not dev: whoever may write queries can then read and change all that getwork keeps, sessions and tokens included."`
}

// checkQueries returns a usage error if a query could reach what its writer may not. A role is no boundary, because a query can
// leave it, so queries need a login of their own. What that login may do is looked at later, in the database.
func (q *Queries) checkQueries(auth, queryURL string) error {
	if q.QueryAuthors != "" && assign.CheckGroup(q.QueryAuthors) != nil {
		return command.Usage("--query-authors must be one group, of 1 to 128 bytes without commas, control characters and blanks around it; not %q", q.QueryAuthors)
	}
	if auth != "dev" && queryURL == "" && !q.TrustQueryWriters {
		return command.Usage("with --auth %s, queries need a login of their own: give --query-database-url (it may lead to the same database), or --trust-query-writers if whoever writes queries may read and change all that getwork keeps", auth)
	}
	return nil
}
