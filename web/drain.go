package web

import (
	"math/rand/v2"
	"net/http"
	"time"
)

// closing makes kept connections end with their next answer while the node shuts down. Idle connections are cut when
// the listening socket is closed, and a client that is sending just then has to send again. So closing tells as many
// clients as possible before.
func (s *server) closing(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.draining() {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

func (c *Config) draining() bool {
	select {
	case <-c.Draining:
		return true
	default:
		return false
	}
}

// part returns after a random share of DrainOver, or when the client has gone, so that clients do not all reconnect
// elsewhere at once.
func (s *server) part(r *http.Request) {
	if s.DrainOver <= 0 {
		return
	}
	t := time.NewTimer(rand.N(s.DrainOver))
	defer t.Stop()
	select {
	case <-t.C:
	case <-r.Context().Done():
	}
}
