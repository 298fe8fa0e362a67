package serve

import (
	"context"
	"crypto/x509"
	"fmt"
	"log/slog"
	"regexp"

	"github.com/jackc/pgx/v5"

	"getwork/cmd/internal/command"
	"getwork/schema"
	"getwork/web/identity/oidc"
)

// This file has what `getwork doctor` asks in the same way as a node does, without being one.

// Danger is a right that a login must not have.
type Danger struct{ Login, What, Mend string } // Mend is the SQL that removes the right

// LoginDangers returns the rights of a URL's login that no ranking query may have.
func (c *Command) LoginDangers(ctx context.Context, url string) ([]Danger, error) {
	return (&node{config: *c}).dangers(ctx, url, selectDangers)
}

// ReaderDangers returns what a query login may do in getwork's schema but must not.
func (c *Command) ReaderDangers(ctx context.Context, url string, name schema.Name) ([]Danger, error) {
	return (&node{config: *c}).dangers(ctx, url, selectReadable, string(name))
}

// Unproven returns the host of a database's URL if nothing proves that the database is there; see warnOfDatabases.
func Unproven(url string) string { return unproven(url) }

// NoConnection returns an error that says why a database can't be reached, and what to do.
func NoConnection(err error) error { return noConnection(err) }

// DirectURL returns the URL for what needs a session of its own: LISTEN and migrations.
func (c *Command) DirectURL() string { return (&node{config: *c}).directURL() }

// Connect opens a connection as the node's pools do; pooled: without settings of the session.
func (c *Command) Connect(ctx context.Context, url, name string, pooled bool) (*pgx.Conn, error) {
	return (&node{config: *c}).connect(ctx, url, name, pooled)
}

// ConnectDirectly opens a connection as the listener does.
func (c *Command) ConnectDirectly(ctx context.Context) (*pgx.Conn, error) {
	return (&node{config: *c}).connectDirectly(ctx)
}

// ConnectQueries opens a connection to the query database as the node's pool does; pooled: as Connect.
func (c *Command) ConnectQueries(ctx context.Context, name string, pooled bool) (*pgx.Conn, error) {
	return (&node{config: *c}).connectQueries(ctx, name, pooled)
}

// SharesSessions reports whether connections go through a transaction pooler.
func SharesSessions(ctx context.Context, connect func(context.Context) (*pgx.Conn, error)) (bool, error) {
	return sharesSessions(ctx, connect)
}

// RefusedParameters reports whether a pooler refused a connection because of its settings.
func RefusedParameters(err error) bool { return refusedParameters(err) }

// Handles returns how many files this process may open.
func Handles() int { return handles() }

// Issuers returns the identity provider and the issuer of access tokens, as far as there are any. An issuer that is both is
// returned once.
func (c *Command) Issuers(log *slog.Logger) ([]*oidc.Source, error) {
	var sources []*oidc.Source
	for _, one := range []struct{ flag, issuer string }{{"--oidc-issuer", c.OIDCIssuer}, {"--jwt-issuer", c.JWTIssuer}} {
		if one.issuer == "" || len(sources) > 0 && sources[0].Issuer == one.issuer {
			continue
		}
		source, err := oidc.NewSource(oidc.SourceConfig{Issuer: one.issuer, Roots: c.roots, Log: log})
		if err != nil {
			return nil, command.AsUsage(fmt.Errorf("%s: %w", one.flag, err))
		}
		sources = append(sources, source)
	}
	return sources, nil
}

// Certificate returns the node's certificate, and the host that it should name; nil: the node serves no TLS.
func (c *Command) Certificate() (cert *x509.Certificate, host string, err error) {
	if c.TLSCert == "" {
		return nil, "", nil
	}
	if c.origin != nil {
		host = c.origin.Hostname()
	}
	loaded, err := loadCertificate(c.TLSCert, c.TLSKey, host, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, host, err
	}
	return loaded.current.Load().Leaf, host, nil
}

// Secrets returns the files that hold secrets, by their flags.
func (c *Command) Secrets() map[string]string {
	files := map[string]string{
		"--tls-key": c.TLSKey, "--oidc-client-secret-file": c.OIDCClientSecretFile, "--proxy-secret-file": c.ProxySecretFile,
		"--database-url-file": c.DatabaseURLFile, "--listen-database-url-file": c.ListenDatabaseURLFile, "--query-database-url-file": c.QueryDatabaseURLFile,
	}
	for flag, file := range files {
		if file == "" {
			delete(files, flag)
		}
	}
	return files
}

// sessionName returns the application_name of a node's connections. It names the node and its version, so that
// pg_stat_activity shows which nodes live, without a table of them that could be out of date.
func sessionName(id, version string) string {
	if version == "" {
		return "getwork " + id
	}
	return "getwork " + id + " " + version
}

var sessionNames = regexp.MustCompile(`^getwork (n[0-9a-f]{12})(?: (.+))?$`)

// ParseSessionName returns the node and its version from the application_name of a session. The version is empty if the node
// does not say it.
func ParseSessionName(name string) (node, version string, ok bool) {
	parts := sessionNames.FindStringSubmatch(name)
	if parts == nil {
		return "", "", false
	}
	return parts[1], parts[2], true
}
