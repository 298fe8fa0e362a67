package hook

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"getwork/assign"
	"getwork/schema/schematest"
)

func TestAddresses(t *testing.T) {
	t.Parallel()
	allow := prefixes("127.0.0.2/32", "10.1.0.0/16")
	for address, want := range map[string]bool{
		"93.184.216.34": true, "10.0.0.1": true, "172.16.0.1": true, "192.168.1.1": true, "100.64.0.1": true, "2606:2800:220:1::1": true, "fd12:3456::1": true, "64:ff9b::5db8:d822": true,
		"127.0.0.1": false, "127.255.0.1": false, "127.0.0.2": true, "0.0.0.0": false, "169.254.169.254": false, "100.100.100.200": false, "168.63.129.16": false, "192.0.0.192": false,
		"224.0.0.1": false, "255.255.255.255": false, "::": false, "::1": false, "::ffff:127.0.0.1": false, "::ffff:169.254.169.254": false, "::ffff:127.0.0.2": true, "::127.0.0.1": false,
		"fe80::1": false, "fe80::1%eth0": false, "fec0::1": false, "fd00:ec2::254": false, "fd20:ce::254": false, "fd00:c1::a9fe:a9fe": false, "fd00:42::42": false, "::ffff:a9fe:a9fe": false, "64:ff9b::7f00:1": false, "64:ff9b::a9fe:a9fe": false, "64:ff9b:1::7f00:1": false, "::ffff:0:7f00:1": false,
		"2002:7f00:1::": false, "2001:0:1::1": false, "ff02::1": false,
	} {
		if err := checkAddress(allow, netip.MustParseAddr(address), false); (err == nil) != want {
			t.Errorf("%s: %v", address, err)
		}
	}
	for address, want := range map[string]bool{"93.184.216.34": false, "10.1.2.3": true, "127.0.0.1": false, "127.0.0.2": true} {
		if err := checkAddress(allow, netip.MustParseAddr(address), true); (err == nil) != want {
			t.Errorf("http to %s: %v", address, err)
		}
	}
}

func TestURLs(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"https://receiver.example/a?b=c": "", "https://10.0.0.1:8443/": "", "https://[2606:2800::1]/": "", "https://localhost/": "", // names are looked at when they are dialled
		"": "such as", "receiver.example": "such as", "ftp://receiver.example/": "such as", "https:///a": "such as", "https:a": "such as", "https://a b/": "such as", "https://a/\n": "such as",
		"http://receiver.example/": "begins with https", "https://u:p@receiver.example/": "no user", "https://a/#": "no fragment", "https://a/#b": "no fragment",
		"https://127.0.0.1/": "loopback", "https://[::ffff:169.254.169.254]/": "loopback", "https://a/" + strings.Repeat("x", 2000): "at most",
	} {
		err := checkURL(nil, text)
		if want == "" && err != nil || want != "" && (!assign.IsRefusal(err, assign.Invalid) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	if err := checkURL(prefixes("10.0.0.0/8"), "http://receiver.example/"); err != nil {
		t.Errorf("http where it is allowed: %v", err)
	}
}

// The address is checked when it is dialled, so a name that is resolved to another one after it was looked at is refused; a
// redirect is not followed, and its answer is thrown away.
func TestRefusedWhenDialled(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	reached := 0
	inside := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		reached++
		_, _ = w.Write([]byte("the metadata's secret"))
	}))
	defer inside.Close()
	_, port, err := net.SplitHostPort(inside.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	for _, url := range []string{"https://localhost:" + port, "https://127.0.0.1:" + port, "https://[::ffff:127.0.0.1]:" + port, "http://localhost:" + port} {
		got := newClient(prefixes("10.0.0.0/8")).post(t.Context(), event{url: url, message: "m", body: []byte("{}")})
		if !strings.Contains(got.failed, "refused: ") || strings.Contains(got.failed, url) {
			t.Errorf("%s: %q", url, got.failed)
		}
	}
	if reached > 0 {
		t.Errorf("loopback was reached %d times", reached)
	}
	away := newDesk(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, inside.URL, http.StatusTemporaryRedirect)
	})
	w, _ := away.hook()
	away.assign("a")
	away.once()
	all, err := away.Deliveries(context.Background(), w.ID, "", 0, 1, anybody)
	if err != nil || len(all) != 1 || *all[0].Status != 307 || !strings.Contains(*all[0].Error, "redirects are not followed") {
		t.Errorf("after a redirect: %+v, %v", all, err)
	}
	if reached > 0 {
		t.Error("a redirect was followed")
	}
}
