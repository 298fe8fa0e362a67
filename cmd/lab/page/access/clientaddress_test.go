package access

import (
	"net"
	"net/http"
	"strings"
	"testing"

	"getwork/cmd/internal/e2e"
)

// callFrom makes a task with a call that leaves from an address of this machine, and returns its status. It claims to have
// come by way of others.
func callFrom(t *testing.T, address, url, task string, header http.Header) int {
	t.Helper()
	transport := &http.Transport{DialContext: (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}).DialContext}
	defer transport.CloseIdleConnections()
	r, err := http.NewRequestWithContext(t.Context(), "POST", url+"/api/v1/tasks", strings.NewReader(`{"name":"`+task+`","query":null}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header = header.Clone()
	r.Header.Set("X-Getwork-User", "mia")
	r.Header.Set("X-Getwork-Role", "manager")
	response, err := transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	return response.StatusCode
}

// Behind the proxies of docs/proxy.md the audit has the address that the proxy saw, whatever the client writes. A client
// that reaches the node itself is believed nothing.
func TestClientAddressBehindProxies(t *testing.T) {
	t.Parallel()
	s := e2e.NewSite(t, 1, "", "--trusted-proxy", "127.0.0.1")
	audited := func(task string) string {
		t.Helper()
		all := e2e.Column[string](s, `select host(address) from getwork.audit where act = 'task.create' and object = $1`, task)
		if len(all) != 1 {
			t.Fatalf("addresses in the audit for %s: %q", task, all)
		}
		return all[0]
	}
	spoofed := []http.Header{
		{},
		{"X-Forwarded-For": {"203.0.113.7"}},
		{"X-Forwarded-For": {"203.0.113.7, 127.0.0.1"}},
		{"X-Forwarded-For": {"203.0.113.7", "127.0.0.1"}},
		{"X-Forwarded-For": {"127.0.0.1"}},
		{"X-Forwarded-For": {"nonsense"}},
		{"X_Forwarded_For": {"203.0.113.7"}, "X-Real-Ip": {"203.0.113.7"}, "Forwarded": {"for=203.0.113.7"}},
	}
	behind := map[string]string{"direct": s.Nodes[0].URL}
	for name, start := range proxies {
		behind[name] = start(t, []string{s.Nodes[0].URL}, nil)
	}
	for name, url := range behind {
		for i, header := range spoofed {
			task := name + "-" + string(rune('a'+i))
			if status := callFrom(t, "127.0.0.2", url, task, header); status != http.StatusCreated {
				t.Fatalf("%s: %d", task, status)
			}
			if got := audited(task); got != "127.0.0.2" {
				t.Errorf("%s with %v: the client's address is %s, want 127.0.0.2", name, header, got)
			}
		}
	}
}
