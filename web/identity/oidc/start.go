package oidc

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"golang.org/x/oauth2"
)

// logIn is a log-in under way. It is in a sealed cookie and nowhere else, so that strangers cause no row, and any node can end
// what another began.
type logIn struct {
	State    string `json:"s"`
	Nonce    string `json:"n"`
	Verifier string `json:"v"`
	ReturnTo string `json:"r"`
	Began    int64  `json:"t"`
	Again    bool   `json:"a,omitempty"` // the person must prove anew who they are
}

func (l *logIn) began() time.Time { return time.Unix(l.Began, 0) }

// Departure is where a browser goes to log in, and the cookies that it gets first.
type Departure struct {
	URL     string
	Cookies []*http.Cookie
}

// Start begins a log-in. return_to in the query is where the browser goes afterwards; again=1 has the provider ask the person
// anew.
func (p *Provider) Start(r *http.Request) (Departure, error) {
	m, err := p.Source.metadata()
	if err != nil {
		return Departure{}, err
	}
	q := r.URL.Query()
	l := logIn{State: random(), Nonce: random(), Verifier: oauth2.GenerateVerifier(), ReturnTo: returnTo(q.Get("return_to")), Began: p.now().Unix(), Again: q.Get("again") == "1"}
	text, err := json.Marshal(l)
	if err != nil {
		return Departure{}, err
	}
	sealed, err := p.sealer.seal(sealsLogIn, p.belongs(), string(text))
	if err != nil {
		return Departure{}, err
	}
	cookie := newCookie(p.cookies.logInCookie(l.State), base64.RawURLEncoding.EncodeToString(sealed), int(logInWithin.Seconds()))
	options := []oauth2.AuthCodeOption{oauth2.SetAuthURLParam("nonce", l.Nonce), oauth2.S256ChallengeOption(l.Verifier)}
	if l.Again {
		options = append(options, oauth2.SetAuthURLParam("max_age", "0"), oauth2.SetAuthURLParam("prompt", "login"))
	}
	return Departure{
		URL:     p.client(m).AuthCodeURL(l.State, options...),
		Cookies: append(p.crowded(r, len(cookie.Name)+len(cookie.Value)), cookie),
	}, nil
}

// openLogIn opens a log-in's cookie.
func (p *Provider) openLogIn(value string) (*logIn, error) {
	sealed, err := base64.RawURLEncoding.DecodeString(value)
	if err != nil {
		return nil, errSealed
	}
	text, err := p.sealer.open(sealsLogIn, p.belongs(), sealed)
	if err != nil {
		return nil, err
	}
	var l logIn
	if err := json.Unmarshal([]byte(text), &l); err != nil || len(l.State) != 43 {
		return nil, errors.New("a log-in's cookie has another form")
	}
	return &l, nil
}

// random returns 32 random bytes as text.
func random() string {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails
	return base64.RawURLEncoding.EncodeToString(b[:])
}
