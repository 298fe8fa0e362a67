package client

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"getwork/assign"
)

// A redrive of very many events goes on until a call brings back the last ones.
func TestRedriveOfVeryMany(t *testing.T) {
	t.Parallel()
	left := 2*assign.RedriveBatch + 7
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n := min(left, assign.RedriveBatch)
		left -= n
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"count":%d}`, n)
	}))
	defer server.Close()
	c := &Client{URL: server.URL + "/", User: "Mia"}
	if n, err := c.RedriveWebhook(t.Context(), 1, nil); n != 2*assign.RedriveBatch+7 || left != 0 || err != nil {
		t.Errorf("redriven: %d, %v; %d are left", n, err, left)
	}
}
