package client

import (
	"fmt"
	"io"
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

// A list of none sends nothing again; only nil means all.
func TestRedriveOfNone(t *testing.T) {
	t.Parallel()
	var body []byte
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ = io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprint(w, `{"count":0}`)
	}))
	defer server.Close()
	c := &Client{URL: server.URL, User: "Mia"}
	for _, tt := range []struct {
		deliveries []int64
		want       string
	}{{nil, `{}`}, {[]int64{}, `{"deliveries":[]}`}, {[]int64{7}, `{"deliveries":["7"]}`}} {
		if _, err := c.RedriveWebhook(t.Context(), 1, tt.deliveries); err != nil || string(body) != tt.want {
			t.Errorf("%v: sent %s, %v, want %s", tt.deliveries, body, err, tt.want)
		}
	}
}
