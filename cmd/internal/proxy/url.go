package proxy

import (
	"fmt"
	"net"
	"net/url"
)

// URL returns a database's URL, postgres://…, with the proxy's address: the same user, database and settings. It drops
// a host among the settings, as for a Unix socket. It returns an error if the URL is not one of PostgreSQL.
func (p *Proxy) URL(database string) (string, error) {
	u, err := url.Parse(database)
	if err != nil {
		return "", fmt.Errorf("proxy: the database's URL: %w", err)
	}
	if u.Scheme != "postgres" && u.Scheme != "postgresql" {
		return "", fmt.Errorf("proxy: the database's URL must begin with postgres://")
	}
	settings := u.Query()
	settings.Del("host")
	settings.Del("port")
	u.RawQuery = settings.Encode()
	u.Host = p.Addr()
	return u.String(), nil
}

// Target returns where a database's URL leads, in the form that [Start] takes. It returns an error if the URL is
// invalid.
func Target(database string) (string, error) {
	u, err := url.Parse(database)
	if err != nil {
		return "", fmt.Errorf("proxy: the database's URL: %w", err)
	}
	host, port := u.Hostname(), u.Port()
	if h := u.Query().Get("host"); h != "" {
		host = h
	}
	if p := u.Query().Get("port"); p != "" {
		port = p
	}
	if port == "" {
		port = "5432"
	}
	if len(host) > 0 && host[0] == '/' {
		return host + "/.s.PGSQL." + port, nil
	}
	return net.JoinHostPort(host, port), nil
}
