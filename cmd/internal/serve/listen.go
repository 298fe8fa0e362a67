package serve

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync/atomic"
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

const (
	// certificateEvery is how often the files of a certificate are looked at.
	certificateEvery = time.Minute

	// endsSoon is how long before a certificate's end the log warns of it, once a day.
	endsSoon = 14 * 24 * time.Hour
)

// certificate is the node's own, which may be replaced on disk while the node runs.
type certificate struct {
	certFile, keyFile string
	host              string // that the certificate should name; empty: any
	log               *slog.Logger

	current atomic.Pointer[tls.Certificate]

	// For look alone, which one goroutine calls.
	served [sha256.Size]byte // of the files' content
	told   string            // what the log said last of a bad pair
	warned time.Time
}

// loadCertificate returns the certificate in two files, or what is wrong with them.
func loadCertificate(certFile, keyFile, host string, log *slog.Logger) (*certificate, error) {
	c := &certificate{certFile: certFile, keyFile: keyFile, host: host, log: log}
	pair, sum, err := c.read()
	if err != nil {
		return nil, err
	}
	c.serve(pair, sum)
	return c, nil
}

func (c *certificate) read() (pair tls.Certificate, sum [sha256.Size]byte, err error) {
	cert, err := os.ReadFile(c.certFile)
	if err != nil {
		return pair, sum, err
	}
	key, err := os.ReadFile(c.keyFile)
	if err != nil {
		return pair, sum, err
	}
	sum = sha256.Sum256(bytes.Join([][]byte{cert, key}, []byte{0}))
	if sum == c.served {
		return pair, sum, nil
	}
	if pair, err = tls.X509KeyPair(cert, key); err != nil {
		return pair, sum, fmt.Errorf("%s and %s: %w", c.certFile, c.keyFile, err)
	}
	return pair, sum, nil
}

func (c *certificate) serve(pair tls.Certificate, sum [sha256.Size]byte) {
	c.current.Store(&pair)
	c.served, c.told, c.warned = sum, "", time.Time{}
	if c.host != "" {
		if err := pair.Leaf.VerifyHostname(c.host); err != nil {
			c.log.Warn("the certificate of --tls-cert does not name the host of --public-url; browsers refuse it", "error", err)
		}
	}
	c.warn()
}

// warn warns once a day of a certificate that has ended or ends soon.
func (c *certificate) warn() {
	end := c.current.Load().Leaf.NotAfter
	if time.Until(end) < endsSoon && time.Since(c.warned) > 24*time.Hour {
		c.log.Warn("the certificate of --tls-cert ends soon, or has ended; replace the files, and it is loaded within a minute", "at", end)
		c.warned = time.Now()
	}
}

// look loads the files again if they have changed. A bad pair is logged once, and the former one is kept: the files may be
// written just now, one after the other.
func (c *certificate) look() {
	pair, sum, err := c.read()
	switch {
	case err == nil && sum == c.served:
		c.warn()
		return
	case err == nil:
		err = current(pair.Leaf)
	}
	if err != nil {
		if say := fmt.Sprintf("%x %v", sum, err); say != c.told {
			c.log.Error("the new certificate of --tls-cert can't be used, so the former one is kept", "error", err)
			c.told = say
		}
		return
	}
	c.serve(pair, sum)
	c.log.Info("a new certificate is served", "until", pair.Leaf.NotAfter, "serial", pair.Leaf.SerialNumber.Text(16))
}

// current returns an error if a certificate has ended or not begun.
func current(leaf *x509.Certificate) error {
	switch now := time.Now(); {
	case now.After(leaf.NotAfter):
		return fmt.Errorf("it ended at %s", leaf.NotAfter)
	case now.Before(leaf.NotBefore):
		return fmt.Errorf("it begins at %s", leaf.NotBefore)
	}
	return nil
}

// Run reads the files until ctx ends.
func (c *certificate) Run(ctx context.Context, every time.Duration) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			c.look()
		}
	}
}

// authorities reads the certificates of those who may sign; nil if there is no file.
func authorities(flag, file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, command.Usage("%s: %v", flag, err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, command.Usage("%s %s has no certificate in PEM", flag, file)
	}
	return pool, nil
}

// config returns how the node speaks TLS. A client may show a certificate, which one of these authorities must have signed;
// nil: nobody is asked for one. People and programs that call with a token show none. The node offers no HTTP/2: the live channel needs
// HTTP/1.1, and a client that resets streams faster than they can be served has no way in. A proxy in front may speak it.
func (c *certificate) config(clientCAs *x509.CertPool) *tls.Config {
	config := &tls.Config{
		MinVersion: tls.VersionTLS12,
		// For TLS 1.2: with forward secrecy, and ciphers that authenticate what they encrypt.
		CipherSuites: []uint16{
			tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
			tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
			tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
		},
		NextProtos:     []string{"http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.current.Load(), nil },
	}
	if clientCAs != nil {
		config.ClientAuth, config.ClientCAs = tls.VerifyClientCertIfGiven, clientCAs
	}
	return config
}
