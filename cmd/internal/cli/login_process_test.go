package cli

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"getwork/assign/rights"
	"getwork/cmd/internal/cluster"
	"getwork/cmd/internal/e2e"
	"getwork/cmd/internal/logins"
)

// Terminals that log in to several nodes in one moment keep a token each.
func TestLoginsAtOnce(t *testing.T) {
	t.Parallel()
	const n = 12
	var asked atomic.Int32
	all := make(chan struct{}) // nobody has a token before everybody has asked
	goOn := sync.OnceFunc(func() { close(all) })
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1) == n {
			goOn()
		}
		<-all
		_ = json.NewEncoder(w).Encode(rights.Terminal{Token: "gw_" + r.Host, ID: "abcdefghijkl", User: "mia", EndsAt: time.Now().Add(time.Hour)})
	})
	dir := t.TempDir()
	c := e2e.Terminal{T: t, Binary: cluster.Binary(t), Env: []string{"XDG_CONFIG_HOME=" + dir}, Stdin: pretended + "\n"}
	var origins []string
	var ends sync.WaitGroup
	for range n {
		server := httptest.NewServer(handler)
		t.Cleanup(server.Close)
		origins = append(origins, server.URL)
		ends.Go(func() {
			command, out, errs := c.Command("login", "--paste", "--url", server.URL)
			if err := command.Run(); err != nil {
				goOn() // without it
				t.Errorf("%v: %s%s", err, out, errs)
			}
		})
	}
	ends.Wait()
	b, err := os.ReadFile(filepath.Join(dir, "getwork", "tokens.json"))
	if err != nil {
		t.Fatal(err)
	}
	var kept map[string]logins.LogIn
	if err := json.Unmarshal(b, &kept); err != nil {
		t.Fatal(err)
	}
	for _, origin := range origins {
		if kept[origin].Token != "gw_"+origin[len("http://"):] {
			t.Errorf("the token of %s is lost: %d of %d are there", origin, len(kept), n)
		}
	}
}
