package identity

import (
	"log/slog"
	"net/http"
	"net/netip"
	"strings"

	"getwork/assign"
	"getwork/assign/rights"
	"getwork/web"
)

// Config says which credentials are taken.
type Config struct {
	Rights  *rights.Registry
	Address func(*http.Request) netip.Addr // the client's address
	// Failed limits the invalid credentials of one address; nil: no limit.
	Failed *web.AddressLimit
	// Untimely limits the lines in the log about one address's access tokens whose time is over or has not come; nil: no limit.
	Untimely *web.AddressLimit
	Log      *slog.Logger

	// Cookie reads the session's cookie; nil: there is no log-in.
	Cookie func(*http.Request) string
	// JWT verifies a JSON web token; nil: there are none.
	JWT func(r *http.Request, token string) (rights.Rights, error)
	// Proxy reads what a trusted proxy says; nil: there is none.
	Proxy func(*http.Request) (*rights.Rights, error)
	// Count counts an attempt, for the metrics; nil: nobody counts.
	Count func(method, outcome string)
}

// devHeaders name the user under --auth dev alone. Under another mode they are refused: whoever sends them believes that they
// count.
var devHeaders = []string{"X-Getwork-User", "X-Getwork-Role", "X-Getwork-Groups"}

// Identify returns the function that identifies a request's caller. Where a path needs no caller, one with a bad credential is nobody
// (nil), as one without any is.
func (c Config) Identify() web.Identify {
	return func(r *http.Request) (*web.Caller, error) {
		caller, err := c.identify(r)
		if err != nil && !c.needed(r) {
			return nil, nil // the page must open for somebody whose cookie is old, so that they can log in
		}
		return caller, err
	}
}

// needed reports whether a path is only for authenticated callers. Behind a proxy that names everybody every path is, apart
// from the probes of load balancers, because there is no log-in page to show.
func (c Config) needed(r *http.Request) bool {
	if c.Proxy != nil {
		return r.URL.Path != "/livez" && r.URL.Path != "/readyz"
	}
	return strings.HasPrefix(r.URL.Path, "/api/")
}

func (c Config) identify(r *http.Request) (*web.Caller, error) {
	for _, name := range devHeaders {
		if _, sent := r.Header[name]; sent {
			return nil, assign.RefuseField(name, "only a server with --auth dev accepts %s; leave it out, and send a token: Authorization: Bearer gw_…", name)
		}
	}
	for _, name := range []string{"token", "access_token"} {
		if r.URL.RawQuery != "" && r.URL.Query().Has(name) {
			return nil, assign.RefuseField(name, "a token does not belong in an address, where logs and histories keep it: end this token, and send another as Authorization: Bearer gw_…")
		}
	}
	by, got, err := c.credential(r)
	if err != nil {
		if by == "proxy" && !c.needed(r) {
			return nil, err // a load balancer probes past the proxy: that is no log-in
		}
		return nil, c.failed(r, by, err)
	}
	if got == nil {
		return nil, nil
	}
	instance := r.Header.Get("X-Getwork-Instance")
	if err := assign.CheckInstance(instance); err != nil {
		return nil, err
	}
	c.count(by, "ok")
	c.Rights.Used(got, c.Address(r), r.Method != http.MethodGet && r.Method != http.MethodHead)
	return &web.Caller{
		Holder: assign.Holder{User: got.User, Instance: instance}, Role: got.Role, Admin: got.Admin, Groups: got.Groups,
		By: by, Credential: string(got.Credential), Principal: got.Principal, EndsAt: got.EndsAt, IdleAt: got.IdleAt,
		Scopes: got.Scopes, Tasks: got.Tasks, Wall: got.Wall, Rights: got,
	}, nil
}

// credential takes the request's one credential: the Authorization header; or else what the proxy says, if there is one; or else the
// session's cookie. got is nil if there is none.
func (c Config) credential(r *http.Request) (by string, got *rights.Rights, err error) {
	if sent := r.Header.Values("Authorization"); len(sent) > 0 {
		if len(sent) > 1 {
			return "bearer", nil, assign.RefuseField("Authorization", "send one Authorization header, not %d", len(sent))
		}
		return c.bearer(r, sent[0])
	}
	if c.Proxy != nil {
		got, err = c.Proxy(r)
		return "proxy", got, err
	}
	if c.Cookie != nil {
		if cookie := c.Cookie(r); cookie != "" {
			found, err := c.Rights.Session(r.Context(), cookie)
			return "session", &found, err
		}
	}
	return "", nil, nil
}

func (c Config) bearer(r *http.Request, header string) (by string, got *rights.Rights, err error) {
	scheme, text, _ := strings.Cut(header, " ")
	text = strings.TrimSpace(text)
	var found rights.Rights
	switch {
	case !strings.EqualFold(scheme, "Bearer") || text == "":
		return "bearer", nil, notValid("send Authorization: Bearer and a token")
	case rights.IsToken(text):
		found, err = c.Rights.Token(r.Context(), text)
		return "token", &found, err
	case c.JWT != nil && strings.Count(text, ".") == 2:
		found, err = c.JWT(r, text)
		return "jwt", &found, err
	}
	return "bearer", nil, notValid("this is no token of getwork: one begins with gw_")
}

func notValid(detail string) error {
	return &rights.Rejection{Why: rights.WhyUnknown, Refusal: assign.Refuse(assign.Unauthenticated, "%s", detail)}
}

// failed logs and counts a credential that is no good, and refuses an address that sends too many. It names the user only if
// the secret was theirs.
func (c Config) failed(r *http.Request, by string, err error) error {
	rejection := rights.RejectionOf(err)
	if rejection == nil {
		return err
	}
	c.count(by, rejection.Why)
	from := c.Address(r)
	user := rejection.User
	if user == "" {
		user = "-"
	}
	switch {
	case untimely(rejection.Why) && c.Untimely != nil:
		if allowed, _ := c.Untimely.Allow(from, 1); !allowed {
			return err
		}
	case guessed(rejection.Why) && c.Failed != nil:
		if allowed, after := c.Failed.Allow(from, 1); !allowed {
			limited := assign.Refuse(assign.RateLimited, "too many credentials from this address were not valid; wait a minute")
			limited.After = after
			return limited
		}
	}
	c.Log.Info("auth", "outcome", "refused", "method", by, "user", user, "reason", rejection.Why, "address", from.String())
	return err
}

// guessed reports whether a credential with this fault may be one of many that somebody tries out. Of access tokens these are not:
// one whose time is over, or has not come, because all programs at an address may renew theirs at that moment, and a program that
// is answered 429 waits instead; and one whose signature was verified before its name or groups were read.
func guessed(why string) bool {
	switch why {
	case rights.WhyUnknown, rights.WhyWrong:
		return true
	}
	return !untimely(why) && strings.HasPrefix(why, "jwt-") && !strings.HasPrefix(why, "jwt-name-") && !strings.HasPrefix(why, "jwt-groups")
}

// untimely reports whether an access token is refused because its time is over, or has not come. Nobody verifies the signature of such a
// token, so anybody can forge many. They cost no query and no fetch of keys, but without a limit their lines would fill the log.
func untimely(why string) bool { return why == "jwt-expired" || why == "jwt-not-yet" }

func (c Config) count(method, outcome string) {
	if c.Count != nil {
		c.Count(method, outcome)
	}
}
