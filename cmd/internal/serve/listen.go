package serve

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"getwork/cmd/internal/command"
)

// metricsHandles is what --metrics-listen takes of the process's file handles; few ask there.
const metricsHandles = 256

// listen opens the node's listeners. Nobody is answered before run.
func (n *node) listen() error {
	doors, err := net.Listen("tcp", n.config.Listen)
	if err != nil {
		return fmt.Errorf("listen on %s: %w; choose another with --listen", n.config.Listen, err)
	}
	n.doors = newDoor(doors, handles(), n.config.familiar, n.log)
	if address := n.config.MetricsListen; address != "" {
		doors, err := net.Listen("tcp", address)
		if err != nil {
			_ = n.doors.Close()
			return fmt.Errorf("listen on %s: %w; choose another with --metrics-listen", address, err)
		}
		n.metricsDoors = newDoor(doors, metricsHandles, func(netip.Addr) bool { return false }, n.log)
	}
	// With port 0 the system picks one, which only now is known.
	if o := n.config.origin; o != nil && o.Port() == "0" {
		_, port, _ := net.SplitHostPort(n.doors.Addr().String())
		o.Host = strings.TrimSuffix(o.Host, "0") + port
	}
	return nil
}

// familiar reports whether an address is this machine's or a trusted proxy's.
func (i *Identity) familiar(a netip.Addr) bool {
	return a.IsLoopback() || slices.ContainsFunc(i.proxies, func(p netip.Prefix) bool { return p.Contains(a) })
}

// openCertificate loads the certificate, if there is one.
func (n *node) openCertificate() (err error) {
	i := n.config.Identity
	if i.TLSCert == "" {
		return nil
	}
	host := ""
	if i.origin != nil {
		host = i.origin.Hostname()
	}
	if n.certificate, err = loadCertificate(i.TLSCert, i.TLSKey, host, n.log); err != nil {
		return command.Usage("--tls-cert and --tls-key can't be used: %v", err)
	}
	return nil
}

// serveCalls serves the node's calls until the server is shut down.
func (n *node) serveCalls() error {
	if n.certificate == nil {
		return served(n.server.Serve(n.doors))
	}
	n.server.TLSConfig = n.certificate.config(n.config.clientCAs)
	n.server.Protocols = new(http.Protocols)
	n.server.Protocols.SetHTTP1(true)
	return served(n.server.ServeTLS(n.doors, "", ""))
}

// address returns where the node listens.
func (n *node) address() string {
	if n.certificate == nil {
		return "http://" + n.doors.Addr().String()
	}
	return "https://" + n.doors.Addr().String()
}

// httpServer returns a server with the time-outs of all this node's servers.
func (n *node) httpServer(h http.Handler) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       30 * time.Second,
		WriteTimeout:      3 * time.Minute, // longer than an answer is held; event streams set their own deadline
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(n.log.Handler(), slog.LevelDebug),
	}
}

// served returns an error of a server that did not end on purpose.
func served(err error) error {
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}
