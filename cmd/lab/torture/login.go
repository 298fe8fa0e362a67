package torture

import (
	"context"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"getwork/cmd/internal/idp"
)

// logIns are what a run has in which people log in: a provider, and one address for all nodes.
type logIns struct {
	idp    *idp.Provider
	public string // the URL that all nodes say they have
	front  *http.Server
	passes map[string]*pass // by holder: a user, or a user and an instance
	users  []string         // their keys, without those of the managers
	flags  []string         // of getwork serve

	trouble trouble
}

const (
	clientID     = "getwork"
	clientSecret = "a secret of the torture, long enough"
	deskGroup    = "desk" // whose members alone may have the task of that name

	// A query may name no volatile function of PostgreSQL where people log in, so naps are a function of the bank's own.
	makeNap = `
create function public.torture_nap(seconds double precision) returns void language plpgsql as $$ begin perform pg_sleep(seconds); end $$`
)

// openLogIns starts the provider, and has the nodes log in as no superuser.
func (s *stage) openLogIns(ctx context.Context) (err error) {
	if err := s.execute(ctx, makeNap); err != nil {
		return err
	}
	if s.login, err = s.server.LoginURL(ctx, "postgres"); err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	l := &logIns{public: "http://" + listener.Addr().String(), passes: map[string]*pass{}}
	s.logIns = l
	l.front = &http.Server{Handler: &httputil.ReverseProxy{Rewrite: s.rewrite, Transport: transport, ErrorLog: log.New(io.Discard, "", 0)}, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = l.front.Serve(listener) }() // until closed
	people := []idp.Person{{Sub: "boss", Name: "boss", Groups: []string{"managers", "admins"}}, {Sub: "feeder", Name: "feeder", Groups: []string{"agents"}}}
	for i := range s.o.Users + s.o.Agents {
		p := newPass(s, i)
		l.passes[p.holder] = p
		l.users = append(l.users, p.holder)
		if p.kind != service {
			for _, sub := range p.subs {
				people = append(people, idp.Person{Sub: sub, Name: p.user, Groups: []string{"workers", deskGroup}})
			}
		}
	}
	for i, one := range []string{"boss", "feeder"} {
		l.passes[one] = &pass{stage: s, user: one, holder: one, subs: []string{one}, kind: session, from: fmt.Sprintf("10.9.9.%d", i+1)}
	}
	l.idp, err = idp.Start(idp.Config{People: people, Clients: []idp.Client{{ID: clientID, Secret: clientSecret,
		Redirects: []string{l.public + "/auth/callback"}, AfterOut: []string{l.public + "/"}, Messages: []string{l.public + "/auth/backchannel"}}}})
	if err != nil {
		return err
	}
	secret := filepath.Join(s.dir, "oidc-secret")
	if err := os.WriteFile(secret, []byte(clientSecret+"\n"), 0o600); err != nil {
		return err
	}
	l.flags = []string{"--auth", "oidc", "--public-url", l.public, "--trusted-proxy", "127.0.0.1/32", "--trust-query-writers",
		"--oidc-issuer", l.idp.Issuer, "--oidc-client-id", clientID, "--oidc-client-secret-file", secret, "--oidc-scopes", "openid profile offline_access",
		"--grant", "manager=managers", "--grant", "agent=agents", "--grant", "worker=workers", "--grant", "admin=admins"}
	return nil
}

// firstLogIn is how long somebody may try to log in before the run, when nothing is broken yet.
const firstLogIn = time.Minute

// logAllIn gives everybody what they show, before anything breaks.
func (s *stage) logAllIn(ctx context.Context) error {
	var g errgroup.Group
	g.SetLimit(8)
	for _, key := range s.logIns.users {
		g.Go(func() error {
			until := time.Now().Add(firstLogIn)
			for p := s.logIns.passes[key]; p.show(ctx).name == ""; {
				if wait(ctx, renews); ctx.Err() != nil {
					return errInterrupted
				}
				if time.Now().After(until) {
					return fmt.Errorf("%s can't log in: %w", key, p.refused)
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// rewrite sends what comes to the public address, such as the provider's messages, to a node that serves.
func (s *stage) rewrite(r *httputil.ProxyRequest) {
	m := s.serving()
	target, err := url.Parse(m.node.URL)
	if err != nil {
		return
	}
	r.SetURL(target)
	r.Out.Host = r.In.Host
}

// serving returns a node that serves, if there is one.
func (s *stage) serving() *member {
	at := slices.IndexFunc(s.members, func(m *member) bool { return m.away.Load() == 0 })
	return s.members[max(0, at)]
}

// close ends the provider.
func (l *logIns) close() {
	if l == nil {
		return
	}
	_ = l.front.Close()
	if l.idp != nil {
		_ = l.idp.Close()
	}
}

// pass returns what a holder shows; nil: the nodes believe names.
func (l *logIns) pass(key string) *pass {
	if l == nil {
		return nil
	}
	return l.passes[key]
}

// flagsOf returns the flags of one node. The last has no LISTEN.
func (l *logIns) flagsOf(s *stage, number int) []string {
	if l == nil {
		return nil
	}
	if number == s.o.Nodes-1 {
		return append(slices.Clone(l.flags), "--no-listen")
	}
	return l.flags
}

// hosted is a transport to nodes that answer only for one host.
type hosted struct{ l *logIns }

func (h hosted) RoundTrip(r *http.Request) (*http.Response, error) {
	if h.l != nil {
		r = r.Clone(r.Context())
		r.Host = strings.TrimPrefix(h.l.public, "http://")
	}
	return transport.RoundTrip(r)
}

// to returns the transport to the nodes.
func (s *stage) to() http.RoundTripper { return hosted{s.logIns} }

// any returns a random node, usually one that serves.
func (s *stage) any() *member {
	m := s.members[rand.IntN(len(s.members))]
	if m.away.Load() > 0 {
		return s.serving()
	}
	return m
}
