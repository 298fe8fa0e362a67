package web

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// IdentityFigures are shown at /metrics where people and programs log in. A nil function shows nothing.
type IdentityFigures struct {
	Attempts *Attempts
	Sessions func() int64         // that are alive, on all nodes
	Lag      func() time.Duration // since the database last answered what has ended
	Up       func() bool          // whether all issuers answer
	Fetches  func() int64         // how often their keys were asked for
}

// Attempts counts how credentials were judged.
type Attempts struct{ counts *prometheus.CounterVec }

// NewAttempts returns a count that begins at 0.
func NewAttempts() *Attempts {
	return &Attempts{prometheus.NewCounterVec(prometheus.CounterOpts{Name: "getwork_auth_total",
		Help: "Credentials that this node judged, and log-ins, by method (session, token, jwt, proxy, bearer: none of these; oidc: a log-in or a message of the provider) and by outcome: ok, log-out, or why not."},
		[]string{"method", "outcome"})}
}

// Count counts one. Both words are of fixed sets: what a client sends must not make labels.
func (a *Attempts) Count(method, outcome string) { a.counts.WithLabelValues(method, outcome).Inc() }

// register registers the figures that there are.
func (f *IdentityFigures) register(to *prometheus.Registry) {
	if f == nil {
		return
	}
	if f.Attempts != nil {
		to.MustRegister(f.Attempts.counts)
	}
	if f.Sessions != nil {
		to.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "getwork_sessions",
			Help: "Sessions of browsers that are alive, on all nodes, as of a minute ago."}, func() float64 { return float64(f.Sessions()) }))
	}
	if f.Lag != nil {
		to.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "getwork_rights_lag_seconds",
			Help: "How long ago this node last read which rights have ended; about 1. From 30 on it closes its live channels."}, func() float64 { return f.Lag().Seconds() }))
	}
	if f.Up != nil {
		to.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "getwork_idp_up",
			Help: "1 while the identity provider, and the issuer of access tokens, answered when they were last asked."}, func() float64 {
			if f.Up() {
				return 1
			}
			return 0
		}))
	}
	if f.Fetches != nil {
		to.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "getwork_jwks_fetches_total",
			Help: "How often this node asked them for their keys: each 5 minutes, and at most once a minute more because of a strange token."}, func() float64 { return float64(f.Fetches()) }))
	}
}
