package web

import (
	"math/rand/v2"
	"net/http"
	"time"
)

// closing has kept connections end with their next answer while the node shuts down. Those that are idle when the
// listening socket is closed are cut, and whoever sends something in that moment has to send it again; so as many as can
// be told before are.
func (s *server) closing(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.draining() {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

func (s *server) draining() bool {
	select {
	case <-s.Draining:
		return true
	default:
		return false
	}
}

// part returns after a random share of DrainOver, or when the client has gone, so that those who are sent away do not
// all come back elsewhere in one moment.
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
