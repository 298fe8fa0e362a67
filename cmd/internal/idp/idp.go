// Package idp is an OpenID provider on loopback, for the demo and for tests. Anybody can become any person on its page, so use
// it for nothing else.
//
// It does what a provider has to: discovery, PKCE, client_secret_basic, codes that are good once, refresh tokens that change at
// each use and end their family when an old one comes again, userinfo, log-out by the browser and by back channel. The lies that
// a client must not believe are in getwork/cmd/lab/liar, which getwork does not link.
package idp

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	jose "github.com/go-jose/go-jose/v4"
)

// Person is somebody whom one can be.
type Person struct {
	Sub    string // what other systems know them by
	Name   string // preferred_username
	Groups []string
	About  string // shown on the page where one picks them
}

// People are the demo's.
var People = []Person{
	{"0001", "Oliver", []string{"loan-desk"}, "works through loans"},
	{"0002", "Tracy", []string{"loan-desk"}, "works through loans"},
	{"0003", "Mia", []string{"loan-managers"}, "manages the work"},
	{"0004", "Ada", []string{"getwork-admins"}, "manages people and their sessions"},
}

// Grants are the values of --grant that fit People.
var Grants = []string{"manager=loan-managers", "worker=loan-desk", "admin=getwork-admins"}

// Client is a program that may log people in.
type Client struct {
	ID, Secret string
	Redirects  []string // where codes may go
	AfterOut   []string // where a browser may go after log-out
	Messages   []string // where log-out messages go by back channel
}

// Config has the settings of a [Provider].
type Config struct {
	Listen  string // default 127.0.0.1:0
	Clients []Client
	People  []Person // default People
	Asks    bool     // who one is, at each log-in: windows of one browser may be different people
	Now     func() time.Time
	Hooks   func() *Hooks // for tests; it may return nil
}

// Hooks see what a provider is asked, and may change what it answers. Each may be nil. They are called with the provider's lock held,
// but for Before, Discovery and UserInfo; they must not call the provider.
type Hooks struct {
	Before    func(http.ResponseWriter, *http.Request) bool // answers a call itself, if it returns true
	Discovery func(map[string]any)
	Back      func(url.Values)     // the parameters that the browser brings back
	Token     func(map[string]any) // the token endpoint's answer
	Header    func(map[string]any) // of tokens
	Claims    func(map[string]any) // of ID tokens
	UserInfo  func(map[string]any)
	Sign      func(key *jose.JSONWebKey, header, claims map[string]any) string // instead of [Signed]
}

// Provider is an identity provider. It serves until Close.
type Provider struct {
	Config
	Issuer string

	server   *http.Server
	listener net.Listener
	address  string
	calls    sync.Map // path -> *atomic.Int64

	mu       sync.Mutex
	key      *jose.JSONWebKey  // signs
	public   []jose.JSONWebKey // published
	people   []*Person
	clients  map[string]*Client  // by id
	sessions map[string]*session // by sid
	codes    map[string]*grant
	access   map[string]*grant // by access token
	refresh  map[string]*grant // by refresh token, old ones included
}

// session is a person who is logged in here with a browser.
type session struct {
	sid    string
	person *Person
	proved time.Time
	grants []*grant
	over   bool
}

// grant is what a client got for a session: first a code, then tokens.
type grant struct {
	*session
	client                            *Client
	redirect, challenge, nonce, scope string
	codeUntil                         time.Time
	redeemed                          bool
	refresh                           string // the one that is good
	revoked                           bool
}

// Start starts a provider.
func Start(c Config) (*Provider, error) {
	if c.Listen == "" {
		c.Listen = "127.0.0.1:0"
	}
	if c.People == nil {
		c.People = People
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	p := &Provider{Config: c, clients: map[string]*Client{}, sessions: map[string]*session{}, codes: map[string]*grant{}, access: map[string]*grant{}, refresh: map[string]*grant{}}
	for _, one := range c.People {
		p.people = append(p.people, &one)
	}
	for _, one := range c.Clients {
		p.Register(one)
	}
	if err := p.Rotate(); err != nil {
		return nil, err
	}
	if err := p.listen(c.Listen); err != nil {
		return nil, err
	}
	p.Issuer = "http://" + p.address
	return p, nil
}

func (p *Provider) hooks() *Hooks {
	if p.Hooks != nil {
		if h := p.Hooks(); h != nil {
			return h
		}
	}
	return &Hooks{}
}

func (p *Provider) listen(address string) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("identity provider: %w", err)
	}
	p.address = l.Addr().String()
	server := &http.Server{Handler: p.handler(), ReadHeaderTimeout: 5 * time.Second}
	p.mu.Lock()
	p.server, p.listener = server, l
	p.mu.Unlock()
	go func() { _ = server.Serve(l) }() // until Close
	return nil
}

// Close ends the provider: nobody answers at its address.
func (p *Provider) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.listener.Close() // Serve may not have begun
	if err := p.server.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// Reopen serves at the same address again, with everything that the provider knew.
func (p *Provider) Reopen() error { return p.listen(p.address) }

// Rotate takes a new key into use, and publishes it alone.
func (p *Provider) Rotate() error {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	key := &jose.JSONWebKey{Key: private, KeyID: random()[:8], Algorithm: string(jose.ES256), Use: "sig"}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.key, p.public = key, []jose.JSONWebKey{key.Public()}
	return nil
}

// Calls returns how often a path was called.
func (p *Provider) Calls(path string) int64 {
	if n, ok := p.calls.Load(path); ok {
		return n.(*atomic.Int64).Load()
	}
	return 0
}

func (p *Provider) handler() http.Handler {
	m := http.NewServeMux()
	m.HandleFunc("GET /.well-known/openid-configuration", p.discovery)
	m.HandleFunc("GET /jwks", p.keys)
	m.HandleFunc("GET /authorize", p.authorizePage)
	m.HandleFunc("POST /authorize", p.authorized)
	m.HandleFunc("POST /token", p.token)
	m.HandleFunc("GET /userinfo", p.userInfo)
	m.HandleFunc("GET /end_session", p.endSession)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := p.calls.LoadOrStore(r.URL.Path, new(atomic.Int64))
		n.(*atomic.Int64).Add(1)
		if before := p.hooks().Before; before != nil && before(w, r) {
			return
		}
		m.ServeHTTP(w, r)
	})
}

func (p *Provider) discovery(w http.ResponseWriter, _ *http.Request) {
	d := map[string]any{
		"issuer":                                         p.Issuer,
		"authorization_endpoint":                         p.Issuer + "/authorize",
		"token_endpoint":                                 p.Issuer + "/token",
		"userinfo_endpoint":                              p.Issuer + "/userinfo",
		"end_session_endpoint":                           p.Issuer + "/end_session",
		"jwks_uri":                                       p.Issuer + "/jwks",
		"response_types_supported":                       []string{"code"},
		"subject_types_supported":                        []string{"public"},
		"scopes_supported":                               []string{"openid", "profile", "offline_access"},
		"id_token_signing_alg_values_supported":          []string{"ES256", "RS256"},
		"token_endpoint_auth_methods_supported":          []string{"client_secret_basic"},
		"code_challenge_methods_supported":               []string{"S256"},
		"backchannel_logout_supported":                   true,
		"backchannel_logout_session_supported":           true,
		"authorization_response_iss_parameter_supported": true,
	}
	if change := p.hooks().Discovery; change != nil {
		change(d)
	}
	answer(w, http.StatusOK, d)
}

func (p *Provider) keys(w http.ResponseWriter, _ *http.Request) {
	p.mu.Lock()
	set := jose.JSONWebKeySet{Keys: p.public}
	p.mu.Unlock()
	answer(w, http.StatusOK, set)
}

// person returns who has that sub. p.mu is held.
func (p *Provider) person(sub string) *Person {
	for _, person := range p.people {
		if person.Sub == sub {
			return person
		}
	}
	return nil
}

// SetGroups gives a person other groups, which clients hear of at the next log-in or refresh.
func (p *Provider) SetGroups(sub string, groups []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if person := p.person(sub); person != nil {
		person.Groups = groups
	}
}

// Register adds a client, or changes the one with its id: where it serves may be known only after the provider has started.
func (p *Provider) Register(c Client) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if known := p.clients[c.ID]; known != nil {
		*known = c
		return
	}
	p.clients[c.ID] = &c
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

// refuse answers with an error of OAuth.
func refuse(w http.ResponseWriter, status int, code string) {
	answer(w, status, map[string]string{"error": code, "error_description": "a text of the provider, which nobody should log"})
}

// with adds parameters to a URL.
func with(address string, more url.Values) string {
	u, err := url.Parse(address)
	if err != nil {
		return address
	}
	q := u.Query()
	for name, values := range more {
		q[name] = values
	}
	u.RawQuery = q.Encode()
	return u.String()
}

func random() string {
	var b [24]byte
	_, _ = rand.Read(b[:]) // never fails
	return base64.RawURLEncoding.EncodeToString(b[:])
}
