package serve

import (
	"crypto/tls"
	"os"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// warnOfReaders warns if others than its owner and group may read a file that holds a secret.
func (n *node) warnOfReaders(flag, file string) {
	if info, err := os.Stat(file); err == nil && info.Mode().Perm()&0o004 != 0 {
		n.log.Warn("everybody on this machine may read a secret; execute chmod o-rwx", "of", flag, "file", file)
	}
}

// warnOfSecrets does so for all files with secrets.
func (n *node) warnOfSecrets() {
	c := n.config
	for _, f := range []struct{ flag, file string }{
		{"--tls-key", c.TLSKey}, {"--oidc-client-secret-file", c.OIDCClientSecretFile}, {"--proxy-secret-file", c.ProxySecretFile},
		{"--database-url-file", c.DatabaseURLFile}, {"--listen-database-url-file", c.ListenDatabaseURLFile}, {"--query-database-url-file", c.QueryDatabaseURLFile},
	} {
		if f.file != "" {
			n.warnOfReaders(f.flag, f.file)
		}
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
