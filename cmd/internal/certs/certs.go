// Package certs makes certificates for tests.
package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Authority signs certificates.
type Authority struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// Files are a certificate and its key.
type Files struct{ Cert, Key string }

// New returns an authority that nobody else trusts.
func New(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{t: t, key: newKey(t)}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "a test's authority"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	a.cert = a.sign(template, template, a.key, a.key)
	return a
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func (a *Authority) sign(template, parent *x509.Certificate, of, by *ecdsa.PrivateKey) *x509.Certificate {
	a.t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent, of.Public(), by)
	if err != nil {
		a.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return cert
}

// Write writes a certificate for servers and clients into the folder, in place of a former one. It has that serial number,
// and names this machine and the names. Until end it is valid; zero is a
// quarter of a year from now.
func (a *Authority) Write(dir string, serial int64, end time.Time, names ...string) Files {
	a.t.Helper()
	if end.IsZero() {
		end = time.Now().Add(90 * 24 * time.Hour)
	}
	return a.write(dir, x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "a test's"}, NotBefore: end.Add(-91 * 24 * time.Hour), NotAfter: end,
		DNSNames: append([]string{"localhost"}, names...), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})
}

// WriteClient is like [Authority.Write], for a client that has this common name, and these DNS names and no others. It is valid
// for a quarter of a year.
func (a *Authority) WriteClient(dir, commonName string, names ...string) Files {
	a.t.Helper()
	return a.write(dir, x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: commonName}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(90 * 24 * time.Hour),
		DNSNames: names, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

func (a *Authority) write(dir string, template x509.Certificate) Files {
	a.t.Helper()
	key := newKey(a.t)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	cert := a.sign(&template, a.cert, key, a.key)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	f := Files{filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")}
	write(a.t, f.Cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw}), 0o644)
	write(a.t, f.Key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600)
	return f
}

func write(t testing.TB, file string, content []byte, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(file, content, mode); err != nil {
		t.Fatal(err)
	}
}

// PEM returns the authority's own certificate, for programs that are to trust it.
func (a *Authority) PEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

// Trust returns the settings of a client that trusts this authority alone.
func (a *Authority) Trust() *tls.Config {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return &tls.Config{RootCAs: pool}
}

// Client returns a client that trusts this authority, and makes a new connection for each call.
func (a *Authority) Client() *http.Client {
	return &http.Client{Transport: &http.Transport{TLSClientConfig: a.Trust(), DisableKeepAlives: true}}
}
