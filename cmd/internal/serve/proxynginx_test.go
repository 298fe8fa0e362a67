package serve

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"getwork/cmd/internal/certs"
	process "getwork/cmd/internal/node"
	"getwork/schema/schematest/timeout"
)

// freeAddress returns an address on which nobody listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = free.Close()
	return free.Addr().String()
}

// startNginx runs nginx with one server, and returns when it listens.
func startNginx(t *testing.T, listen, server string) {
	t.Helper()
	dir := t.TempDir()
	config := "daemon off;\nmaster_process off;\npid nginx.pid;\nerror_log stderr;\nevents {}\nhttp {\naccess_log off;\n"
	for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		config += kind + "_temp_path " + kind + ";\n"
	}
	config += "server {\nlisten " + listen + ";\n" + server + "\n}\n}\n"
	file := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	c := exec.Command(nginx(t), "-e", "stderr", "-p", dir, "-c", file)
	c.Stderr = t.Output()
	gone := make(chan struct{})
	if err := process.Tie(c, func(error) { close(gone) }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill(); <-gone })
	timeout.Await(t, "nginx listens", func() bool {
		conn, err := net.Dial("tcp", listen)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
}

func nginx(t *testing.T) string {
	t.Helper()
	program, err := exec.LookPath("/usr/sbin/nginx")
	if err != nil {
		t.Skip("no nginx; on Debian: apt-get install nginx-light")
	}
	return program
}

// nginx asks an authenticating service about each call (auth_request), and passes on what that says. What a client says of
// itself in the same headers, or in their twins, does not arrive.
func TestProxyBehindNginx(t *testing.T) {
	t.Parallel()
	nginx(t)
	listen := freeAddress(t)
	i := behindProxy(t)
	i.PublicURL = "http://" + listen
	n := runs(t, Command{Identity: i, Queries: Queries{TrustQueryWriters: true}})
	auth := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { // such as oauth2-proxy
		who, err := r.Cookie("sso")
		if err != nil {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.Header().Set("X-Auth-Request-User", who.Value)
		w.Header().Set("X-Auth-Request-Groups", "desk,loans")
	}))
	t.Cleanup(auth.Close)
	startNginx(t, listen, fmt.Sprintf(`
	location = /sso { internal; proxy_pass %s; proxy_pass_request_body off; proxy_set_header Content-Length ""; }
	location / {
		auth_request /sso;
		auth_request_set $user $upstream_http_x_auth_request_user;
		auth_request_set $groups $upstream_http_x_auth_request_groups;
		proxy_set_header Host $http_host;
		proxy_set_header X-Forwarded-User $user;
		proxy_set_header X-Forwarded-Groups $groups;
		proxy_set_header X-Getwork-Proxy-Secret %s;
		proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
		proxy_set_header Authorization "";
		proxy_pass %s;
	}`, auth.URL, proxySecret, n.url))
	ask := func(headers ...string) (int, string) {
		b := newBrowser(t)
		if len(headers) > 0 && headers[0] == "sso" {
			b.cookies["sso"] = headers[1]
			headers = headers[2:]
		}
		response, body := b.call("GET", "http://"+listen+"/api/v1/me", headers...)
		return response.StatusCode, body
	}
	for _, spoof := range [][]string{nil, {"X-Forwarded-User", "mia"}, {"X_Forwarded_User", "mia"}, {"X-Getwork-Proxy-Secret", "x"}, {"X-Forwarded-Groups", "chiefs"}, {"X_Forwarded_Groups", "chiefs"}} {
		if status, body := ask(spoof...); status != 401 {
			t.Errorf("%q without a log-in: %d %s", spoof, status, body)
		}
		if status, body := ask(append([]string{"sso", "Oliver"}, spoof...)...); status != 200 || !strings.Contains(body, `"user":"Oliver","role":"worker"`) {
			t.Errorf("%q with a log-in: %d %s", spoof, status, body)
		}
	}
}

// A proxy proves itself by a client certificate: of that authority, and with that name as subjectAltName. People and programs
// behind no proxy show none, and come in with a token as ever.
func TestProxyCertificate(t *testing.T) {
	t.Parallel()
	a, clients, others, dir := certs.New(t), certs.New(t), certs.New(t), t.TempDir()
	server := a.Write(dir, 2, time.Time{}, "getwork.bank.example")
	file := func(name string, content []byte) string {
		replace(t, filepath.Join(dir, name), content)
		return filepath.Join(dir, name)
	}
	i := behindProxy(t)
	i.PublicURL, i.TLSCert, i.TLSKey = "https://getwork.bank.example", server.Cert, server.Key
	i.ProxySecretFile, i.ProxyClientCA, i.ProxyClientName = "", file("clients.pem", clients.PEM()), "proxy.bank.example"
	n := runs(t, Command{Identity: i, Queries: Queries{TrustQueryWriters: true}})
	shown := map[string]struct {
		certs.Files
		direct, nginx int
	}{
		"right":         {clients.WriteClient(t.TempDir(), "a proxy", "proxy.bank.example"), 200, 200},
		"none":          {certs.Files{}, 401, 401},
		"name-in-cn":    {clients.WriteClient(t.TempDir(), "proxy.bank.example"), 401, 401},
		"other-name":    {clients.WriteClient(t.TempDir(), "proxy.bank.example", "printer.bank.example"), 401, 401},
		"wildcard":      {clients.WriteClient(t.TempDir(), "a proxy", "*.bank.example"), 401, 401},
		"other-ca":      {others.WriteClient(t.TempDir(), "a proxy", "proxy.bank.example"), 0, 502}, // TLS refuses it
		"the-servers":   {a.Write(t.TempDir(), 3, time.Time{}, "proxy.bank.example"), 0, 502},
		"right-as-well": {clients.WriteClient(t.TempDir(), "another", "printer.bank.example", "Proxy.bank.example"), 200, 200},
	}
	direct := func(from string, f certs.Files) (int, string) {
		config := a.Trust()
		config.ServerName = "getwork.bank.example"
		if f.Cert != "" {
			pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
			if err != nil {
				t.Fatal(err)
			}
			// Whatever authorities the server names: a client that obeys would keep a wrong certificate to itself.
			config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
		}
		dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		c := &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true, DialContext: dialer.DialContext}, Timeout: plain.Timeout}
		r, err := http.NewRequestWithContext(t.Context(), "GET", n.url+"/api/v1/me", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = "getwork.bank.example"
		r.Header = http.Header{"X-Forwarded-User": {"Oliver"}, "X-Forwarded-Groups": {"desk"}}
		response, err := c.Do(r)
		if err != nil {
			return 0, err.Error()
		}
		defer response.Body.Close()
		return response.StatusCode, response.Status
	}
	for name, tt := range shown {
		if status, said := direct("127.0.0.1", tt.Files); status != tt.direct {
			t.Errorf("%s: %d %s, want %d", name, status, said, tt.direct)
		} else if status == 0 && !strings.Contains(said, "tls: ") {
			t.Errorf("%s: %s, want TLS to refuse it", name, said)
		}
	}
	if status, said := direct("127.0.0.2", shown["right"].Files); status != 401 {
		t.Errorf("from another network: %d %s, want 401", status, said)
	}

	var config strings.Builder
	fmt.Fprintf(&config, `proxy_set_header Host getwork.bank.example;
	proxy_set_header X-Forwarded-User $http_x_sso_user;
	proxy_set_header X-Forwarded-Groups desk;
	proxy_ssl_verify on;
	proxy_ssl_trusted_certificate %s;
	proxy_ssl_name getwork.bank.example;
	proxy_ssl_session_reuse off;
`, file("server-ca.pem", a.PEM()))
	to, err := url.Parse(n.url)
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range shown {
		show := ""
		if tt.Cert != "" {
			show = fmt.Sprintf("proxy_ssl_certificate %s; proxy_ssl_certificate_key %s;", tt.Cert, tt.Key)
		}
		fmt.Fprintf(&config, "location /%s/ { %s proxy_pass https://%s/; }\n", name, show, to.Host)
	}
	nginx(t)
	listen := freeAddress(t)
	startNginx(t, listen, config.String())
	for name, tt := range shown {
		r, body := answer(t, plain, "GET", "http://"+listen+"/"+name+"/api/v1/me", "X-SSO-User", "Oliver")
		if r.StatusCode != tt.nginx || tt.nginx == 200 && !strings.Contains(body, `"user":"Oliver","role":"worker"`) {
			t.Errorf("nginx with %s: %d %s, want %d", name, r.StatusCode, body, tt.nginx)
		}
	}
}
