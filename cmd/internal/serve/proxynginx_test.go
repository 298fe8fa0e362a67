package serve

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	process "getwork/cmd/internal/node"
	"getwork/schema/schematest/timeout"
)

// nginx asks an authenticating service about each call (auth_request), and passes on what that says. What a client says of
// itself in the same headers, or in their twins, does not arrive.
func TestProxyBehindNginx(t *testing.T) {
	t.Parallel()
	nginx, err := exec.LookPath("/usr/sbin/nginx")
	if err != nil {
		t.Skip("no nginx; on Debian: apt-get install nginx-light")
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listen := free.Addr().String()
	_ = free.Close()
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
	dir := t.TempDir()
	config := "daemon off;\nmaster_process off;\npid nginx.pid;\nerror_log stderr;\nevents {}\nhttp {\naccess_log off;\n"
	for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		config += kind + "_temp_path " + kind + ";\n"
	}
	config += fmt.Sprintf(`server {
	listen %s;
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
	}
}
}
`, listen, auth.URL, proxySecret, n.url)
	file := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	c := exec.Command(nginx, "-e", "stderr", "-p", dir, "-c", file)
	c.Stderr = t.Output()
	c.SysProcAttr = process.Attributes()
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	ask := func(headers ...string) (int, string) {
		b := newBrowser(t)
		if len(headers) > 0 && headers[0] == "sso" {
			b.cookies["sso"] = headers[1]
			headers = headers[2:]
		}
		response, body := b.call("GET", "http://"+listen+"/api/v1/me", headers...)
		return response.StatusCode, body
	}
	timeout.Await(t, "nginx listens", func() bool {
		conn, err := net.Dial("tcp", listen)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
	for _, spoof := range [][]string{nil, {"X-Forwarded-User", "mia"}, {"X_Forwarded_User", "mia"}, {"X-Getwork-Proxy-Secret", "x"}, {"X-Forwarded-Groups", "chiefs"}, {"X_Forwarded_Groups", "chiefs"}} {
		if status, body := ask(spoof...); status != 401 {
			t.Errorf("%q without a log-in: %d %s", spoof, status, body)
		}
		if status, body := ask(append([]string{"sso", "Oliver"}, spoof...)...); status != 200 || !strings.Contains(body, `"user":"Oliver","role":"worker"`) {
			t.Errorf("%q with a log-in: %d %s", spoof, status, body)
		}
	}
}
