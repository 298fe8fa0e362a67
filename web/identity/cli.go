package identity

import (
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"getwork/assign"
	"getwork/assign/rights"
	"getwork/web"
	"getwork/web/card"
)

// Terminals answers under /auth/cli, where a terminal logs in with its user's browser. See [rights.Registry.ApproveTerminal].
type Terminals struct {
	Rights *rights.Registry
	LogIn  string // the path of the log-in page
	// Problem answers with an error.
	Problem func(http.ResponseWriter, *http.Request, error)
	Log     *slog.Logger
}

// terminalsPerMinute is how many log-ins of terminals one address may approve in a minute, and how many codes it may guess.
const terminalsPerMinute = 10

// Routes returns the addresses.
func (t Terminals) Routes() []web.Route {
	guesses := web.NewAddressLimit(terminalsPerMinute)
	return []web.Route{
		{Method: http.MethodGet, Path: "/auth/cli", Handler: t.handle(t.show)},
		{Method: http.MethodPost, Path: "/auth/cli/approve", Handler: t.handle(t.approve), Limit: web.NewAddressLimit(terminalsPerMinute)},
		{Method: http.MethodPost, Path: "/auth/cli/token", Handler: t.handle(func(w http.ResponseWriter, r *http.Request) error { return t.redeem(w, r, guesses) })},
	}
}

func (t Terminals) handle(f func(http.ResponseWriter, *http.Request) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		if err := f(w, r); err != nil {
			t.Problem(w, r, err)
		}
	})
}

// asking is what a terminal asks. Port 0: its user carries the code by hand.
type asking struct {
	Challenge string `json:"challenge"`
	Port      int    `json:"port"`
	Label     string `json:"label"`
}

// check refuses ports that a user's program can't have.
func (a asking) check() error {
	if a.Port != 0 && (a.Port < 1024 || a.Port > 65535) {
		return assign.RefuseField("port", "a terminal listens on a port from 1024 to 65535; run `getwork login` again")
	}
	return rights.CheckTerminal(a.Challenge, a.Label)
}

// A terminal and the page show the same few characters, so that people can see that they approve their own terminal.
var approval = card.Page(`<h1>{{.Title}}</h1>
      <p>Approve only if you have just typed “getwork login” yourself, and the terminal shows the same characters as this page.</p>
      <dl class="facts">
        <div><dt>It calls itself</dt><dd><bdi>{{.Label}}</bdi></dd></div>
        <div><dt>It will work as</dt><dd><bdi>{{.User}}</bdi></dd></div>
        <div><dt>It shows</dt><dd><strong>{{.Check}}</strong></dd></div>
      </dl>
      {{if .ByHand}}<p class="error">You will get a code to paste into that terminal. With this code anybody can work as you there: give it to nobody.</p>{{end}}
      <p><button id="approve" class="primary" type="button" data-challenge="{{.Challenge}}" data-port="{{.Port}}" data-label="{{.Label}}" disabled>Approve</button></p>
      <p id="said" role="status"></p>
      <p><code id="code" hidden></code></p>`, `
  <script type="module" src="/static/approve.js"></script>`)

// Check returns the characters that the terminal and the page show.
func Check(challenge string) string {
	sum := rights.Challenge("shown " + challenge)
	short := strings.ToUpper(strings.NewReplacer("-", "x", "_", "y").Replace(sum[:8]))
	return short[:4] + "-" + short[4:]
}

// show is the page on which somebody approves a terminal.
func (t Terminals) show(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	a := asking{Challenge: q.Get("challenge"), Label: q.Get("label")}
	if port := q.Get("port"); port != "" {
		n, err := strconv.Atoi(port)
		if err != nil || n == 0 {
			n = -1
		}
		a.Port = n
	}
	if err := a.check(); err != nil {
		return err
	}
	c := web.CallerOf(r)
	if c == nil {
		w.Header().Set("Location", t.LogIn+"?"+url.Values{"return_to": {r.URL.RequestURI()}}.Encode())
		w.WriteHeader(http.StatusSeeOther)
		return nil
	}
	if err := bySession(c); err != nil {
		return err
	}
	setPage(w)
	return approval.Execute(w, struct {
		asking
		Title, User, Check string
		ByHand             bool
	}{a, "Log in a terminal?", c.Holder.User, Check(a.Challenge), a.Port == 0})
}

// setPage sets the headers of a page that asks for a click. No other page may show it in a frame, where a click could be led astray.
func setPage(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; font-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'")
}

// bySession refuses callers without a browser's session. Otherwise a stolen token could make other tokens.
func bySession(c *web.Caller) error {
	switch {
	case c == nil:
		return assign.Refuse(assign.Unauthenticated, "log in first")
	case c.By != "session" || c.Rights == nil || c.Wall:
		return assign.Refuse(assign.Forbidden, "only somebody who has logged in with a browser can log in a terminal")
	}
	return nil
}

func (t Terminals) approve(w http.ResponseWriter, r *http.Request) error {
	c := web.CallerOf(r)
	if err := bySession(c); err != nil {
		return err
	}
	var a asking
	if err := read(w, r, &a); err != nil {
		return err
	}
	if err := a.check(); err != nil {
		return err
	}
	code, err := t.Rights.ApproveTerminal(r.Context(), c.Rights, a.Challenge, a.Label)
	if err != nil {
		return err
	}
	if a.Port == 0 {
		return write(w, map[string]string{"code": code})
	}
	next := url.URL{Scheme: "http", Host: "127.0.0.1:" + strconv.Itoa(a.Port), Path: "/", RawQuery: url.Values{"code": {code}}.Encode()}
	return write(w, map[string]string{"next": next.String()})
}

// redeem gives a terminal its token. Only invalid codes count as guesses; after too many, codes are not looked up for a while.
func (t Terminals) redeem(w http.ResponseWriter, r *http.Request, guesses *web.AddressLimit) error {
	var body struct {
		Code     string `json:"code"`
		Verifier string `json:"verifier"`
	}
	if err := read(w, r, &body); err != nil {
		return err
	}
	from := web.ClientAddress(r)
	if allowed, after := guesses.Allow(from, 0); !allowed {
		return tooManyCodes(after)
	}
	got, err := t.Rights.RedeemCode(r.Context(), body.Code, body.Verifier)
	if rejection := rights.RejectionOf(err); rejection != nil {
		if rejection.Why == rights.WhyUnknown {
			if allowed, after := guesses.Allow(from, 1); !allowed { // others came meanwhile
				return tooManyCodes(after)
			}
		}
		t.Log.Info("auth", "outcome", "refused", "method", "cli", "user", "-", "reason", rejection.Why, "address", from.String())
	}
	if err != nil {
		return err
	}
	t.Log.Info("auth", "outcome", "ok", "method", "cli", "user", got.User, "token", got.ID, "address", from.String())
	return write(w, got)
}

func tooManyCodes(after time.Duration) error {
	limited := assign.Refuse(assign.RateLimited, "too many codes from this address were not valid; wait a minute")
	limited.After = after
	return limited
}

// read decodes a body that must be JSON: another site's page can send such a type only if this one agrees.
func read(w http.ResponseWriter, r *http.Request, v any) error {
	if kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";"); !strings.EqualFold(strings.TrimSpace(kind), "application/json") {
		return assign.RefuseField("Content-Type", "send JSON, with Content-Type: application/json")
	}
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, 4<<10))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return assign.Refuse(assign.Invalid, "the body is not JSON with the fields of this call; run `getwork login` again")
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return assign.Refuse(assign.Invalid, "the body has more than one JSON value")
	}
	return nil
}

func write(w http.ResponseWriter, v any) error {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // the client may have gone
	return nil
}
