package serve

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"getwork/cmd/internal/certs"
	"getwork/cmd/internal/command"
	"getwork/schema/schematest"
	"getwork/schema/schematest/timeout"
	"getwork/ws"
)

// The node speaks TLS 1.3, and 1.2 with forward secrecy, and over either HTTP/1.1 alone.
func TestTLS(t *testing.T) {
	t.Parallel()
	a := certs.New(t)
	f := a.Write(t.TempDir(), 2, time.Time{})
	n := runs(t, Command{Identity: Identity{TLSCert: f.Cert, TLSKey: f.Key}})
	address := strings.TrimPrefix(n.url, "https://")
	dial := func(change func(*tls.Config)) (tls.ConnectionState, error) {
		t.Helper()
		config := a.Trust()
		change(config)
		c, err := tls.Dial("tcp", address, config)
		if err != nil {
			return tls.ConnectionState{}, err
		}
		defer c.Close()
		return c.ConnectionState(), nil
	}
	for _, version := range []uint16{tls.VersionTLS10, tls.VersionTLS11} {
		if state, err := dial(func(c *tls.Config) { c.MinVersion, c.MaxVersion = version, version }); err == nil {
			t.Errorf("%s is spoken", tls.VersionName(state.Version))
		}
	}
	if state, err := dial(func(*tls.Config) {}); err != nil || state.Version != tls.VersionTLS13 {
		t.Errorf("%s, %v; want TLS 1.3", tls.VersionName(state.Version), err)
	}
	for _, suite := range append(tls.CipherSuites(), tls.InsecureCipherSuites()...) {
		if suite.SupportedVersions[0] == tls.VersionTLS13 {
			continue
		}
		_, err := dial(func(c *tls.Config) { c.MaxVersion, c.CipherSuites = tls.VersionTLS12, []uint16{suite.ID} })
		want := strings.HasPrefix(suite.Name, "TLS_ECDHE_ECDSA_") && !strings.Contains(suite.Name, "_CBC_") && !strings.Contains(suite.Name, "RC4") // the key is no RSA
		if (err == nil) != want {
			t.Errorf("%s: %v, want it spoken: %v", suite.Name, err, want)
		}
	}
	if state, err := dial(func(c *tls.Config) { c.NextProtos = []string{"h2"} }); err == nil {
		t.Errorf("HTTP/2 is offered: %q", state.NegotiatedProtocol)
	}
	if state, err := dial(func(c *tls.Config) { c.NextProtos = []string{"h2", "http/1.1"} }); err != nil || state.NegotiatedProtocol != "http/1.1" {
		t.Errorf("negotiated %q, %v", state.NegotiatedProtocol, err)
	}
	client := a.Client()
	client.Transport.(*http.Transport).ForceAttemptHTTP2 = true
	if r, _ := answer(t, client, "GET", n.url+"/readyz"); r.StatusCode != 200 || r.ProtoMajor != 1 {
		t.Errorf("%s %s", r.Proto, r.Status)
	}
	if r, body := answer(t, plain, "GET", "http://"+address+"/readyz"); r.StatusCode != 400 {
		t.Errorf("without TLS: %d %s", r.StatusCode, body)
	}
	// HTTP/2 without asking for it.
	c, err := tls.Dial("tcp", address, a.Trust())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, _ = io.WriteString(c, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
	if r, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || r.StatusCode < 400 || r.ProtoMajor != 1 {
		t.Errorf("HTTP/2 with prior knowledge: %v, %v", r, err)
	} else {
		r.Body.Close()
	}
}

// A certificate that is replaced on disk is served without a restart. A bad pair is logged once, and the one before is kept.
func TestNewCertificate(t *testing.T) {
	t.Parallel()
	a, dir := certs.New(t), t.TempDir()
	f := a.Write(dir, 10, time.Time{})
	n := runs(t, Command{Identity: Identity{TLSCert: f.Cert, TLSKey: f.Key, CertificateEvery: 10 * time.Millisecond}})
	serial := func() int64 {
		t.Helper()
		c, err := tls.Dial("tcp", strings.TrimPrefix(n.url, "https://"), a.Trust())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		return c.ConnectionState().PeerCertificates[0].SerialNumber.Int64()
	}
	if got := serial(); got != 10 {
		t.Errorf("serial number %d, want 10", got)
	}
	a.Write(dir, 11, time.Time{})
	timeout.Await(t, "the new certificate is served", func() bool { return serial() == 11 })
	spoil := func(why string, do func()) {
		t.Helper()
		before := n.said("can't be used")
		do()
		timeout.Await(t, "the log has it: "+why, func() bool { return n.said("can't be used") > before })
		if got := serial(); got != 11 {
			t.Errorf("%s: serial number %d is served, want the one before", why, got)
		}
	}
	good, err := os.ReadFile(f.Key)
	if err != nil {
		t.Fatal(err)
	}
	other := a.Write(t.TempDir(), 12, time.Time{})
	otherKey, err := os.ReadFile(other.Key)
	if err != nil {
		t.Fatal(err)
	}
	spoil("another's key", func() { replace(t, f.Key, otherKey) })
	spoil("no key at all", func() { replace(t, f.Key, nil) })
	spoil("no file", func() { _ = os.Remove(f.Key) })
	replace(t, f.Key, good)
	ended := a.Write(t.TempDir(), 13, time.Now().Add(-time.Minute))
	spoil("one that has ended", func() {
		// At once, or a read in between finds half of it.
		for _, one := range []string{"cert.pem", "key.pem"} {
			content, err := os.ReadFile(filepath.Join(filepath.Dir(ended.Cert), one))
			if err != nil {
				t.Fatal(err)
			}
			replace(t, filepath.Join(dir, one), content)
		}
		timeout.Await(t, "the log says that it ended", func() bool { return n.said("it ended at") == 1 })
	})
	a.Write(dir, 14, time.Time{})
	timeout.Await(t, "a good pair is served again", func() bool { return serial() == 14 })
}

// replace puts a file in the place of another in one step.
func replace(t *testing.T, file string, content []byte) {
	t.Helper()
	if err := os.WriteFile(file+".new", content, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
}

// Files that are no certificate and its key are refused at once, without a word of what is in them.
func TestNoCertificate(t *testing.T) {
	t.Parallel()
	a := certs.New(t)
	f, other := a.Write(t.TempDir(), 1, time.Time{}), a.Write(t.TempDir(), 2, time.Time{})
	empty := filepath.Join(t.TempDir(), "empty.pem")
	replace(t, empty, []byte("hush"))
	for name, i := range map[string]Identity{
		"no file":        {TLSCert: filepath.Join(t.TempDir(), "none"), TLSKey: f.Key},
		"no key":         {TLSCert: f.Cert, TLSKey: empty},
		"no certificate": {TLSCert: empty, TLSKey: f.Key},
		"another's key":  {TLSCert: f.Cert, TLSKey: other.Key},
	} {
		c, err := checked("127.0.0.1:0", i)
		if err != nil {
			t.Fatal(err)
		}
		c.Schema = "getwork"
		var wrong command.UsageError
		if err := c.Run(t.Context(), &command.Streams{Out: io.Discard, Errs: io.Discard}); !errors.As(err, &wrong) ||
			!strings.Contains(err.Error(), "--tls-cert and --tls-key can't be used") || strings.ContainsAny(err.Error(), "\r\n") || strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What is unsafe, but may be meant, is warned of.
func TestTransportWarnings(t *testing.T) {
	t.Parallel()
	a := certs.New(t)
	f := a.Write(t.TempDir(), 1, time.Now().Add(time.Hour))
	var log strings.Builder
	said := func(i Identity, database string) string {
		t.Helper()
		log.Reset()
		c, err := checked("127.0.0.1:0", i)
		if err != nil {
			t.Fatal(err)
		}
		c.DatabaseURL = database
		n := &node{config: *c, log: slog.New(slog.NewTextHandler(&log, nil))}
		if err := n.openCertificate(); err != nil {
			t.Fatal(err)
		}
		n.warnOfSecrets()
		n.warnOfDatabases()
		return log.String()
	}
	with := Identity{Auth: "token", TLSCert: f.Cert, TLSKey: f.Key, PublicURL: "https://localhost:8443"}
	if got := said(with, ""); strings.Count(got, "\n") != 1 || !strings.Contains(got, "ends soon") {
		t.Errorf("a certificate's last hour: %s", got)
	}
	with.PublicURL = "https://getwork.bank.example"
	if got := said(with, ""); strings.Count(got, "\n") != 2 || !strings.Contains(got, "does not name the host") {
		t.Errorf("another name: %s", got)
	}
	if err := os.Chmod(f.Key, 0o644); err != nil {
		t.Fatal(err)
	}
	if got := said(with, ""); !strings.Contains(got, "of=--tls-key") || !strings.Contains(got, "everybody on this machine") {
		t.Errorf("a key that everybody may read: %s", got)
	}
	for flag, i := range map[string]Identity{"--proxy-secret-file": behindProxy(t), "--oidc-client-secret-file": withLogIn(t)} {
		for _, mode := range []os.FileMode{0o600, 0o604} {
			if err := os.Chmod(i.ProxySecretFile+i.OIDCClientSecretFile, mode); err != nil {
				t.Fatal(err)
			}
			if got := said(i, ""); strings.Contains(got, "of="+flag) != (mode == 0o604) {
				t.Errorf("%s with mode %o: %s", flag, mode, got)
			}
		}
	}
	root := filepath.Join(t.TempDir(), "root.pem")
	replace(t, root, a.PEM())
	for url, warned := range map[string]bool{
		"postgres://a:secret@db.bank.example/x":                                                       true,
		"postgres://a:secret@db.bank.example/x?sslmode=disable":                                       true,
		"postgres://a:secret@db.bank.example/x?sslmode=require":                                       true,
		"postgres://a:secret@db.bank.example/x?sslmode=verify-ca&sslrootcert=" + root:                 true,
		"postgres://a:secret@db.bank.example/x?sslmode=verify-full&sslrootcert=" + root:               false,
		"postgres://a:secret@127.0.0.1/x":                                                             false,
		"postgres://a:secret@localhost/x?sslmode=disable":                                             false,
		"postgres://a:secret@[::1]/x":                                                                 false,
		"postgres:///x?host=/var/run/postgresql":                                                      false,
		"postgres://a:secret@localhost,10.0.0.5/x":                                                    true,
		"postgres://a:secret@127.0.0.1:1,db.bank.example:2/x?sslmode=verify-full&sslrootcert=" + root: false,
	} {
		got := said(Identity{}, url)
		if strings.Contains(got, "nothing proves that this is the database") != warned || strings.Contains(got, "secret") {
			t.Errorf("%s: %q, want a warning: %v", url, got, warned)
		}
	}
}

// Over TLS a client that reads slowly gets the same as one that reads fast, and delays nobody.
func TestSlowReadersOverTLS(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	a := certs.New(t)
	f := a.Write(t.TempDir(), 2, time.Time{})
	n := runs(t, Command{Identity: Identity{TLSCert: f.Cert, TLSKey: f.Key}})
	fast := a.Client()
	call := func(method, path, body string, header ...string) (int, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, n.url+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-Getwork-User", "mia")
		r.Header.Set("X-Getwork-Role", "manager")
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		response, err := fast.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		b, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, string(b)
	}
	if status, body := call("POST", "/api/v1/tasks", `{"name":"verify","query":"select g as item from generate_series(1, 5) g","paused":true}`); status != 201 {
		t.Fatalf("%d %s", status, body)
	}
	// slow sends a call of a user who takes one byte at a time, and returns what comes back.
	slow := func(call string) *bufio.Reader {
		t.Helper()
		c, err := net.Dial("tcp", strings.TrimPrefix(n.url, "https://"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		_ = c.SetDeadline(time.Now().Add(timeout.Scale(time.Minute)))
		config := a.Trust()
		config.ServerName = "localhost"
		secure := tls.Client(c, config)
		head, body, _ := strings.Cut(call, "\n")
		if _, err := io.WriteString(secure, head+" HTTP/1.1\r\nHost: localhost\r\nX-Getwork-User: oliver\r\nConnection: close\r\nPrefer: wait=60\r\nContent-Length: "+
			strconv.Itoa(len(body))+"\r\n\r\n"+body); err != nil {
			t.Fatal(err)
		}
		return bufio.NewReaderSize(oneByOne{secure}, 16)
	}
	page := slow("GET /openapi.json")
	events := slow("GET /api/v1/events?task=verify")
	held := slow("POST /api/v1/tasks/verify/requests\n" + `{"count":2,"linger":"1h"}`)

	ctx, cancel := context.WithTimeout(t.Context(), timeout.Scale(30*time.Second))
	defer cancel()
	socket, err := ws.Dial(ctx, a.Client(), n.url+"/api/v1/ws", http.Header{"X-Getwork-User": {"oliver"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(socket.Close)
	timeout.Await(t, "the slow client's request waits", func() bool {
		_, body := call("GET", "/api/v1/requests", "")
		return strings.Contains(body, "oliver")
	})
	if status, body := call("PATCH", "/api/v1/tasks/verify", `{"paused":false}`, "If-Match", "*"); status != 200 {
		t.Fatalf("%d %s", status, body)
	}
	for told := false; !told; {
		b, err := socket.Read(ctx)
		if err != nil {
			t.Fatal(err)
		}
		told = strings.Contains(string(b), `"state":"assigned"`)
	}
	read := func(in *bufio.Reader) (int, string) {
		t.Helper()
		r, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		if r.Header.Get("Content-Type") == "text/event-stream" { // which Close would read to its end
			var text strings.Builder
			for lines := bufio.NewScanner(r.Body); lines.Scan() && !strings.Contains(lines.Text(), `"state":"assigned"`); {
				text.WriteString(lines.Text())
			}
			return r.StatusCode, text.String()
		}
		defer r.Body.Close()
		b, err := io.ReadAll(r.Body)
		if err != nil {
			t.Fatal(err)
		}
		return r.StatusCode, string(b)
	}
	if status, body := read(held); status != 201 || !strings.Contains(body, `"state":"assigned"`) {
		t.Errorf("held: %d %s", status, body)
	}
	if status, body := read(events); status != 200 || !strings.Contains(body, "event: snapshot") {
		t.Errorf("events: %d %s", status, body)
	}
	if status, body := read(page); status != 200 || !json.Valid([]byte(body)) || len(body) < 50_000 {
		t.Errorf("page: %d, %d bytes", status, len(body))
	}
}

// oneByOne reads a byte at a time.
type oneByOne struct{ io.Reader }

func (o oneByOne) Read(b []byte) (int, error) { return o.Reader.Read(b[:1]) }
