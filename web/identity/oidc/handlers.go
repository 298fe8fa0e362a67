package oidc

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"time"
	"unicode"

	"getwork/assign"
)

// Sessions keeps who is logged in.
type Sessions interface {
	// Begin begins a session, and ends the browser's former one, so that nobody can prepare a browser with a session of theirs.
	// former is that one's cookie, or empty. A refusal says why somebody may not come in: blocked, or their name is taken.
	Begin(ctx context.Context, login *Login, former string, address netip.Addr, agent string) (Session, error)

	// Ungranted ends all that an account has: the provider has let it log in, and gives it no role any more.
	Ungranted(ctx context.Context, sub string) error

	// End ends a session by its cookie, and returns what Provider.OpenHint opened; empty if there is none. A cookie of no session
	// is no error.
	End(ctx context.Context, cookie string) (hint string, err error)

	// EndAll ends the sessions that a provider's message is about, in the transaction that inserts its Once. It returns how many;
	// 0 for a replay.
	EndAll(ctx context.Context, over LogOut) (ended int, err error)
}

// Session is a session that began.
type Session struct {
	Cookie string // its secret
	User   string // as it is known here, which need not be what the provider calls them
	Ends   time.Time
}

// Handlers answers under /auth.
type Handlers struct {
	Provider *Provider
	Sessions Sessions
	Address  func(*http.Request) netip.Addr // the client's
	// Problem answers with an error that is no refusal, such as the database's, and logs it.
	Problem func(http.ResponseWriter, *http.Request, error)
	Count   func(method, outcome string) // for the metrics; nil: nobody counts
	Log     *slog.Logger

	// BadMessages takes n from what an address may send of log-out messages that are no good, and reports whether there was so much
	// left, or how long it will be until there is. With n = 0 it only asks whether there is any. nil: no limit.
	BadMessages func(from netip.Addr, n int) (allowed bool, after time.Duration)
}

// Route is an address of the log-in.
type Route struct {
	Method, Path string
	Handler      http.Handler
}

// Routes returns the addresses. The guard against other sites' pages must leave out /auth/backchannel, which the provider's
// server calls.
func (h *Handlers) Routes() []Route {
	return []Route{
		{http.MethodGet, "/auth/login", h.here(h.logIn)},
		{http.MethodGet, "/auth/callback", h.here(h.callback)},
		{http.MethodPost, "/auth/logout", h.here(h.logOut)},
		{http.MethodPost, "/auth/backchannel", h.here(h.backchannel)},
	}
}

// here sets what every answer has, and answers only at the public URL's host: a cookie for another host would not come back.
func (h *Handlers) here(next func(http.ResponseWriter, *http.Request)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("Referrer-Policy", "no-referrer") // an address may have a code
		if !strings.EqualFold(r.Host, h.Provider.public.Host) {
			h.Problem(w, r, assign.Refuse(assign.Misdirected, "log-in is at %s", h.Provider.public))
			return
		}
		next(w, r)
	})
}

func (h *Handlers) logIn(w http.ResponseWriter, r *http.Request) {
	d, err := h.Provider.Start(r)
	if err != nil {
		h.refused(w, r, err, returnTo(r.URL.Query().Get("return_to")))
		return
	}
	for _, c := range d.Cookies {
		http.SetCookie(w, c)
	}
	redirect(w, d.URL)
}

func (h *Handlers) callback(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		h.Problem(w, r, assign.Refuse(assign.MethodNotAllowed, "use GET at this address"))
		return
	}
	a, err := h.Provider.Callback(r)
	if a.Cookie != nil {
		http.SetCookie(w, a.Cookie)
	}
	var f *Failure
	if errors.As(err, &f) && f.Sub != "" {
		if lost := h.Sessions.Ungranted(r.Context(), f.Sub); lost != nil {
			err = lost
		}
	}
	if err != nil {
		h.refused(w, r, err, a.ReturnTo)
		return
	}
	s, err := h.Sessions.Begin(r.Context(), a.Login, h.cookie(r), h.Address(r), cut(r.UserAgent(), 200))
	if err != nil {
		h.refused(w, r, err, a.ReturnTo)
		return
	}
	h.note(r, "ok", s.User)
	http.SetCookie(w, h.Provider.NewSessionCookie(s.Cookie, s.Ends))
	redirect(w, a.ReturnTo)
}

// logOut ends the browser's session, and says where it goes next. It answers the same to a browser without a session.
func (h *Handlers) logOut(w http.ResponseWriter, r *http.Request) {
	hint := ""
	if cookie := h.cookie(r); cookie != "" {
		var err error
		if hint, err = h.Sessions.End(r.Context(), cookie); err != nil {
			h.Problem(w, r, err) // the cookie stays: its session may be alive
			return
		}
	}
	http.SetCookie(w, h.Provider.NewSessionCookie("", time.Time{}))
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]string{"next": h.Provider.LogoutURL(hint)})
}

// backchannel takes a provider's message. All of them come from a few addresses, and a morning's log-outs may come at once: only what
// is no good counts.
func (h *Handlers) backchannel(w http.ResponseWriter, r *http.Request) {
	if h.tooMany(w, r, 0) {
		return
	}
	over, err := h.Provider.Backchannel(w, r)
	if err == nil {
		var ended int
		if ended, err = h.Sessions.EndAll(r.Context(), over); err == nil {
			h.note(r, "log-out", "-", "sessions", ended)
			return
		}
	}
	bad := assign.IsRefusal(err, assign.Invalid) || assign.IsRefusal(err, assign.TooLarge)
	if bad && h.tooMany(w, r, 1) { // others came meanwhile
		return
	}
	h.refused(w, r, err, "/")
}

// tooMany takes n from what the address may send of log-out messages that are no good. If there is not so much left, it answers so, and
// logs what it drops.
func (h *Handlers) tooMany(w http.ResponseWriter, r *http.Request, n int) bool {
	if h.BadMessages == nil {
		return false
	}
	allowed, after := h.BadMessages(h.Address(r), n)
	if allowed {
		return false
	}
	limited := assign.Refuse(assign.RateLimited, "too many log-out messages from this address were not valid; wait a minute")
	limited.After = after
	h.note(r, "refused", "-", "reason", "logout-limit")
	h.Problem(w, r, limited)
	return true
}

// cookie returns the session's cookie, or nothing.
func (h *Handlers) cookie(r *http.Request) string {
	c, err := r.Cookie(h.Provider.SessionCookie())
	if err != nil {
		return ""
	}
	return c.Value
}

// refused answers somebody who does not come in. A person gets a page with a link to try again: going there by itself, a
// browser with a session at the provider would go round for ever.
func (h *Handlers) refused(w http.ResponseWriter, r *http.Request, err error, returnTo string) {
	var refusal *assign.Refusal
	if !errors.As(err, &refusal) {
		h.Problem(w, r, err)
		return
	}
	facts := []any{"reason", string(refusal.Kind)}
	var f *Failure
	if errors.As(err, &f) {
		facts = f.Facts()
	}
	h.note(r, "refused", "-", facts...)
	p := refusal.Problem()
	if p.Status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "10")
	}
	if !strings.Contains(strings.Join(r.Header.Values("Accept"), ","), "text/html") {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(p.Status)
		_ = json.NewEncoder(w).Encode(p)
		return
	}
	page(w, p, returnTo)
}

// note writes the one line of an attempt, and counts it.
func (h *Handlers) note(r *http.Request, outcome, user string, facts ...any) {
	h.Log.Info("auth", append([]any{"outcome", outcome, "method", "oidc", "user", user, "address", h.Address(r).String()}, facts...)...)
	if h.Count != nil {
		h.Count("oidc", outcome)
	}
}

// redirect sends a browser elsewhere by GET. http.Redirect would clean the path, and an item's key may have any.
func redirect(w http.ResponseWriter, to string) {
	w.Header().Set("Location", ascii(to))
	w.WriteHeader(http.StatusSeeOther)
}

// ascii writes everything that does not belong in a header percent-encoded, as browsers do.
func ascii(s string) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; c > ' ' && c < 0x7f && c != '"' && c != '<' && c != '>' {
			b.WriteByte(c)
		} else {
			b.Write([]byte{'%', hex[c>>4], hex[c&15]})
		}
	}
	return b.String()
}

// cut returns the beginning of a text, without what can't be stored or shown.
func cut(s string, most int) string {
	runes := []rune(strings.Map(func(c rune) rune {
		if unicode.IsControl(c) {
			return -1
		}
		return c
	}, strings.ToValidUTF8(s, "?")))
	return string(runes[:min(len(runes), most)])
}
