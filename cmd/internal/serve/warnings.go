package serve

import (
	"context"
	"crypto/tls"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"getwork/assign/rights"
	"getwork/schema"
)

// warnOfReaders warns if others than its owner and group may read a file that holds a secret.
func (n *node) warnOfReaders(flag, file string) {
	if info, err := os.Stat(file); err == nil && info.Mode().Perm()&0o004 != 0 {
		n.log.Warn("everybody on this machine may read a secret; execute chmod o-rwx", "of", flag, "file", file)
	}
}

// warnOfSecrets does so for all files with secrets.
func (n *node) warnOfSecrets() {
	for flag, file := range n.config.Secrets() {
		n.warnOfReaders(flag, file)
	}
}

const selectUsers = `select count(*) from getwork.principal`

// warnOfUsers warns if this node believes every name in a database whose other nodes ask for proof.
func (n *node) warnOfUsers(ctx context.Context, name schema.Name) {
	if n.config.Auth != "dev" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	conn, err := n.connect(ctx, n.config.DatabaseURL, "getwork start", n.config.Pooled)
	if err != nil {
		return // whoever needs the database reports it
	}
	defer conn.Close(ctx)
	var users int
	if err := conn.QueryRow(ctx, name.SQL(selectUsers)).Scan(&users); err == nil && users > 0 {
		n.log.Warn("this node believes every name that it is told, and the database has users who log in: whoever reaches it can work as any of them; give it the --auth of the other nodes", "auth", "dev", "users", users)
	}
}

// warnOfDatabases warns of connections to databases on other machines whose other end is not proven. Somebody on the way
// could read the password and everything else, or answer in the database's place.
func (n *node) warnOfDatabases() {
	c := n.config
	for _, to := range []struct{ flag, url string }{
		{"--database-url", c.DatabaseURL}, {"--listen-database-url", c.ListenDatabaseURL}, {"--query-database-url", c.QueryDatabaseURL},
	} {
		if host := unproven(to.url); host != "" {
			n.log.Warn("nothing proves that this is the database: set sslmode=verify-full in the URL, with sslrootcert unless the system knows who signed its certificate", "of", to.flag, "host", host)
		}
	}
}

// unproven returns a host of a database's URL that is not this machine and may be connected to with less than
// sslmode=verify-full, or an empty string.
func unproven(address string) string {
	if address == "" {
		return ""
	}
	c, err := pgconn.ParseConfig(address)
	if err != nil {
		return "" // whoever connects reports it
	}
	look := func(host string, t *tls.Config) string {
		if strings.HasPrefix(host, "/") || loopback(host) || t != nil && !t.InsecureSkipVerify {
			return ""
		}
		return host
	}
	if host := look(c.Host, c.TLSConfig); host != "" {
		return host
	}
	for _, f := range c.Fallbacks {
		if host := look(f.Host, f.TLSConfig); host != "" {
			return host
		}
	}
	return ""
}

const (
	// Only what people came in with counts: services and tokens made on the database have no groups of a provider. Where nobody
	// has come in yet, nothing can be said.
	selectUnheard = `
select g.name
from unnest($1::text[]) with ordinality as g (name, n)
where exists (select from getwork.principal where iss = $2)
  and not exists (select from getwork.principal where iss = $2 and groups @> array[g.name])
order by g.n`

	selectEndingTokens = `
select t.id, t.label, p.name, t.expires_at
from getwork.token t join getwork.principal p on p.id = t.principal
where t.kind <> 'cli' and t.ended_at is null and not t.admin
  and t.expires_at between clock_timestamp() and clock_timestamp() + interval '14 days'
order by t.expires_at
limit 20`
)

// warnOfRights warns of groups in --grant that nobody who has come in was in, which may be misspelt, and of tokens that end soon.
// With --task-groups PREFIX the database does not have all groups, so nothing is said of them.
func (n *node) warnOfRights(ctx context.Context, sql func(string) string) error {
	if n.rights == nil {
		return nil
	}
	issuer := map[string]string{"oidc": n.config.OIDCIssuer, "proxy": rights.ProxyIssuer}[n.config.Auth]
	if issuer != "" && n.config.TaskGroups == "all" {
		var groups []string
		for _, g := range n.config.rules.Grants {
			groups = append(groups, g.Group)
		}
		rows, err := n.pools.Own.Query(ctx, sql(selectUnheard), groups, issuer)
		if err != nil {
			return err
		}
		unheard, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return err
		}
		for _, group := range unheard {
			n.log.Warn("nobody who has come in so far was in a group of --grant; write it as the provider does, byte by byte", "group", group)
		}
	}
	rows, err := n.pools.Own.Query(ctx, sql(selectEndingTokens))
	if err != nil {
		return err
	}
	var id, label, user string
	var ends time.Time
	_, err = pgx.ForEachRow(rows, []any{&id, &label, &user, &ends}, func() error {
		n.log.Warn("a token ends within 14 days; make another one in time", "token", id, "label", label, "user", user, "at", ends)
		return nil
	})
	return err
}
