package proxy

import (
	"fmt"
	"net"
	"net/url"
)

// URL is a database's URL, postgres://…, by way of the proxy: the same user, database and settings at another address. A
// host among its settings, as for a Unix socket, is left out.
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

// Target is where a database's URL leads, as [Start] takes it.
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
