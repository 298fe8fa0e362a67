package identity

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"getwork/assign"
	"getwork/web/grants"
	"getwork/ws"
)

const proxySecret = "0123456789abcdef0123456789abcdef"

// behind starts a node that believes a proxy at these addresses.
func behind(t *testing.T, trusted string, change ...func(*Config)) *station {
	t.Helper()
	var p *Proxy
	n := start(t, func(c *Config) {
		p = &Proxy{Rights: c.Rights, Trusted: []netip.Prefix{netip.MustParsePrefix(trusted)}, Secrets: []string{"the former secret, which also counts", proxySecret},
			UserHeader: "X-Forwarded-User", GroupsHeader: "X-Forwarded-Groups",
			Rules: grants.Rules{Grants: []grants.Grant{{Role: "manager", Group: "chiefs"}, {Role: "worker", Group: "desk"}, {Role: "admin", Group: "it"}}, TaskGroups: "all"}}
		c.Proxy = p.Named
		for _, f := range change {
			f(c)
		}
	})
	own := *n
	own.Server = httptest.NewServer(p.Handler(n.Config.Handler))
	t.Cleanup(func() {
		own.CloseClientConnections()
		own.Close()
	})
	return &own
}

// asked returns the headers of the proxy for a user with these groups, and more.
func asked(user, groups string, more ...string) []string {
	return append([]string{SecretHeader, proxySecret, "X-Forwarded-User", user, "X-Forwarded-Groups", groups}, more...)
}

// everywhere are the ways to come in: a call, the page, an address that is not there, the live channel's handshake, its stream.
var everywhere = []string{"/api/v1/me", "/", "/desk", "/static/page.css", "/openapi.json", "/api/v1/none", "/auth/login", "/api/v1/ws", "/api/v1/events"}

// Only the proxy's word counts, and only one word, wherever a request goes.
func TestProxyHeaders(t *testing.T) {
	t.Parallel()
	n := behind(t, "127.0.0.0/8")
	token, _ := n.service(t, "robot", assign.RoleManager)
	for what, c := range map[string]struct {
		headers []string
		status  int
	}{
		"no secret":                {[]string{"X-Forwarded-User", "mia", "X-Forwarded-Groups", "chiefs"}, 401},
		"a wrong secret":           {[]string{SecretHeader, proxySecret + "x", "X-Forwarded-User", "mia", "X-Forwarded-Groups", "chiefs"}, 401},
		"the secret twice":         {asked("mia", "chiefs", SecretHeader, proxySecret), 401},
		"a twin of the secret":     {[]string{"X_Getwork_Proxy_Secret", proxySecret, "X-Forwarded-User", "mia", "X-Forwarded-Groups", "chiefs"}, 401},
		"an empty secret":          {[]string{SecretHeader, "", "X-Forwarded-User", "mia"}, 401},
		"XFF claims to be it":      {[]string{"X-Forwarded-For", "127.0.0.1", "X-Real-IP", "127.0.0.1", "X-Forwarded-User", "mia", "X-Forwarded-Groups", "chiefs"}, 401},
		"no user":                  {[]string{SecretHeader, proxySecret, "X-Forwarded-Groups", "chiefs"}, 401},
		"an empty user":            {asked("", "chiefs"), 401},
		"two users":                {asked("mia", "chiefs", "X-Forwarded-User", "bob"), 400},
		"the same user twice":      {asked("mia", "chiefs", "x-forwarded-user", "mia"), 400},
		"two groups headers":       {asked("mia", "chiefs", "X-Forwarded-Groups", "it"), 400},
		"a twin of the user":       {asked("mia", "chiefs", "X_Forwarded_User", "bob"), 400},
		"half a twin of the user":  {asked("mia", "chiefs", "X-Forwarded_User", "bob"), 400},
		"a twin with dots":         {asked("mia", "chiefs", "X.Forwarded.User", "bob"), 400},
		"a twin of the groups":     {asked("mia", "desk", "X_FORWARDED_GROUPS", "chiefs"), 400},
		"a twin and no user":       {[]string{SecretHeader, proxySecret, "X_Forwarded_User", "mia", "X-Forwarded-Groups", "chiefs"}, 400},
		"no groups":                {[]string{SecretHeader, proxySecret, "X-Forwarded-User", "mia"}, 403},
		"groups without a grant":   {asked("mia", "Chiefs,chiefs2"), 403},
		"a name that can't be one": {asked("mi\u0430", "chiefs"), 403},
		"a name that is no text":   {asked("mi\xff", "chiefs"), 403},
		"a service's name":         {asked("Robot", "chiefs"), 403},
		"too many groups":          {asked("mia", strings.Repeat("g,", 1)+many(201)), 403},
		"dev's header":             {asked("mia", "chiefs", "X-Getwork-User", "mia"), 400},
		"a bad token beside":       {asked("mia", "chiefs", "Authorization", "Bearer gw_x"), 401},
	} {
		for _, path := range everywhere {
			status, answer := n.call(t, "GET", path, "", c.headers...)
			if status != c.status {
				t.Errorf("%s at %s: %d %s, want %d", what, path, status, answer, c.status)
				break // a stream that is let in does not end
			}
			if strings.Contains(answer, proxySecret) {
				t.Errorf("%s at %s: the answer has the secret", what, path)
			}
		}
	}
	if strings.Contains(n.log.String(), proxySecret) {
		t.Error("the log has the secret")
	}
	for path, want := range map[string]int{"/": 200, "/openapi.json": 200, "/api/v1/me": 200, "/api/v1/none": 404, "/auth/login": 404, "/auth/callback": 404, "/auth/logout": 404} {
		if status, answer := n.call(t, "GET", path, "", asked("Zoë", "desk, it ,,desk")...); status != want {
			t.Errorf("%s: %d %s, want %d", path, status, answer, want)
		}
	}
	if status, _ := n.call(t, "POST", "/auth/backchannel", "", asked("Zoë", "desk")...); status != 404 {
		t.Errorf("/auth/backchannel: %d", status)
	}
	_, answer := n.call(t, "GET", "/api/v1/me", "", asked("Zoë", "desk, it ,,desk")...)
	me := decode[map[string]any](t, answer)
	if me["user"] != "Zoë" || me["role"] != "worker" || me["admin"] != true || me["by"] != "proxy" || me["ends_at"] != nil || me["log_out"] != false || len(me["groups"].([]any)) != 2 {
		t.Errorf("me %s", answer)
	}
	if status, _ := n.call(t, "GET", "/api/v1/me", "", "Authorization", "Bearer "+token); status != 200 {
		t.Errorf("a token without the proxy: %d", status)
	}
	if status, _ := n.call(t, "GET", "/api/v1/me", "", SecretHeader, "the former secret, which also counts", "X-Forwarded-User", "ann", "X-Forwarded-Groups", "desk"); status != 200 {
		t.Errorf("the former secret: %d", status)
	}
	for _, probe := range []string{"/livez", "/readyz"} {
		if status, _ := n.call(t, "GET", probe, ""); status != 200 {
			t.Errorf("%s for a load balancer: %d", probe, status)
		}
	}
	// The proxy's cookie comes along with whatever another site's page makes a browser send.
	if status, _ := n.call(t, "POST", "/api/v1/tasks", `{"name":"x"}`, asked("Zoë", "chiefs", "Origin", "https://evil.example")...); status != 403 {
		t.Errorf("a call from another site's page: %d", status)
	}
	// A token of theirs may not manage: nobody here knows when they proved who they are.
	status, answer := n.call(t, "POST", "/api/v1/tokens", `{"label":"x","scopes":["manage"]}`, asked("Zoë", "chiefs")...)
	if status != 401 || strings.Contains(answer, "log_in") {
		t.Errorf("a token that manages: %d %s", status, answer)
	}
}

// A load balancer's probe comes without the proxy, each few seconds. It is no log-in that was refused.
func TestProbesBehindAProxy(t *testing.T) {
	t.Parallel()
	var counted []string
	n := behind(t, "192.0.2.0/24", func(c *Config) {
		c.Count = func(method, outcome string) { counted = append(counted, method+" "+outcome) }
	})
	for _, probe := range []string{"/livez", "/readyz"} {
		if status, answer := n.call(t, "GET", probe, ""); status != 200 {
			t.Errorf("%s: %d %s", probe, status, answer)
		}
	}
	if log := n.log.String(); len(counted) != 0 || strings.Contains(log, "msg=auth ") {
		t.Errorf("the probes are counted as %q, and the log is\n%s", counted, log)
	}
	n.call(t, "GET", "/api/v1/me", "")
	if log := n.log.String(); len(counted) != 1 || counted[0] != "proxy peer" || strings.Count(log, "msg=auth ") != 1 || !strings.Contains(log, "reason=peer") {
		t.Errorf("a call is counted as %q, and the log is\n%s", counted, log)
	}
}

func many(n int) string {
	var all []string
	for i := range n {
		all = append(all, "desk"+strings.Repeat("x", i))
	}
	for i := range all {
		all[i] = all[i][:min(len(all[i]), 100)] + string(rune('a'+i%26)) + string(rune('a'+i/26))
	}
	return "desk," + strings.Join(all, ",")
}

// From elsewhere nothing helps, not even the secret.
func TestProxyFromElsewhere(t *testing.T) {
	t.Parallel()
	n := behind(t, "192.0.2.0/24")
	for _, path := range everywhere {
		for _, more := range [][]string{nil, {"X-Forwarded-For", "192.0.2.1"}, {"X-Forwarded-User", "bob"}, {"X_Forwarded_User", "bob"}} {
			if status, answer := n.call(t, "GET", path, "", asked("mia", "chiefs", more...)...); status != 401 {
				t.Fatalf("%s: %d %s", path, status, answer)
			}
		}
	}
	var rows int
	if err := n.db.QueryRow(t.Context(), "select count(*) from getwork.principal").Scan(&rows); err != nil || rows != 0 {
		t.Errorf("%d principals %v", rows, err)
	}
}

// The live channel and the stream are the user's whom the proxy names, and end once when that user's groups change.
func TestProxyLive(t *testing.T) {
	t.Parallel()
	n := behind(t, "127.0.0.0/8")
	headers := http.Header{}
	all := asked("mia", "chiefs")
	for i := 0; i < len(all); i += 2 {
		headers.Set(all[i], all[i+1])
	}
	c, err := ws.Dial(t.Context(), nil, n.URL+"/api/v1/ws", headers)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if hello, err := c.Read(t.Context()); err != nil || !strings.Contains(string(hello), `"mia"`) {
		t.Fatalf("%s %v", hello, err)
	}
	r, err := http.NewRequestWithContext(t.Context(), "GET", n.URL+"/api/v1/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header = headers.Clone()
	stream, err := n.Client().Do(r)
	if err != nil || stream.StatusCode != 200 {
		t.Fatalf("%v %v", stream, err)
	}
	defer stream.Body.Close()
	if status, answer := n.call(t, "GET", "/api/v1/me", "", asked("mia", "chiefs,more")...); status != 200 {
		t.Fatal(status, answer)
	}
	for {
		if _, err := c.Read(t.Context()); err != nil {
			if code := ws.CloseStatus(err); code != 1012 {
				t.Errorf("the socket was closed with %d: %v", code, err)
			}
			break
		}
	}
	last := ""
	for lines := bufio.NewScanner(stream.Body); lines.Scan(); {
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			last = data
		}
	}
	if !strings.Contains(last, "/problems/unavailable") {
		t.Errorf("the stream ended with %s", last)
	}
}

// A client certificate proves the proxy as the secret does, if it has the name, and no wildcard or likeness of it.
func TestProxyCertificate(t *testing.T) {
	t.Parallel()
	p := &Proxy{ClientName: "spiffe://bank/proxy"}
	state := func(names, uris []string, verified bool) *tls.ConnectionState {
		c := &x509.Certificate{DNSNames: names}
		for _, text := range uris {
			u, err := url.Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			c.URIs = append(c.URIs, u)
		}
		s := &tls.ConnectionState{PeerCertificates: []*x509.Certificate{c}}
		if verified {
			s.VerifiedChains = [][]*x509.Certificate{{c}}
		}
		return s
	}
	if !p.certified(state(nil, []string{"spiffe://bank/proxy"}, true)) || p.certified(state(nil, []string{"spiffe://bank/proxy"}, false)) || p.certified(nil) ||
		p.certified(state(nil, []string{"spiffe://bank/proxy2"}, true)) {
		t.Error("a URI")
	}
	p.ClientName = "proxy.bank.example"
	if !p.certified(state([]string{"x", "Proxy.bank.example"}, nil, true)) || p.certified(state([]string{"*.bank.example"}, nil, true)) || p.certified(state(nil, nil, true)) {
		t.Error("a DNS name")
	}
	p.ClientName = ""
	if p.certified(state([]string{""}, nil, true)) {
		t.Error("no name")
	}
}
