package web

import (
	"net/http"

	"getwork/assign"
)

// Route is an address of the log-in, for people who are not known yet.
type Route struct {
	Method, Path string
	Handler      http.Handler
	Limit        *AddressLimit // how often it may be asked for from one address; nil: always
}

// entered bounds how often an address may ask.
func (s *server) entered(route Route) http.Handler {
	return s.handle(func(w http.ResponseWriter, r *http.Request) error {
		if route.Limit != nil {
			if allowed, after := route.Limit.Allow(ClientAddress(r), 1); !allowed {
				limited := assign.Refuse(assign.RateLimited, "too many log-ins from this address; wait a minute")
				limited.After = after
				return limited
			}
		}
		route.Handler.ServeHTTP(w, r)
		return nil
	})
}
