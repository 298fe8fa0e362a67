package identity

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"getwork/assign"
	"getwork/assign/pg"
	"getwork/assign/rights"
	"getwork/web/identity/oidc"
)

// LogIns keeps the sessions of people who log in at an OpenID provider.
type LogIns struct {
	Provider *oidc.Provider
	Rights   *rights.Watch
	Max      time.Duration // the longest life of a session
	Stale    time.Duration // how long a session outlives a provider that does not answer
	Look     time.Duration // how often it reads which sessions to refresh; default 5 s
	Log      *slog.Logger
}

// Cookie returns the session's cookie of a request, or nothing.
func (l *LogIns) Cookie(r *http.Request) string {
	c, err := r.Cookie(l.Provider.SessionCookie())
	if err != nil {
		return ""
	}
	return c.Value
}

func entryOf(in *oidc.Login) rights.Entry {
	return rights.Entry{Iss: in.Iss, Sub: in.Sub, Name: in.Name, Role: assign.Role(in.Role), Admin: in.Admin, Groups: in.Groups}
}

// Begin implements [oidc.Sessions].
func (l *LogIns) Begin(ctx context.Context, in *oidc.Login, former string, address netip.Addr, agent string) (oidc.Session, error) {
	begun, err := l.Rights.Begin(ctx, rights.LogIn{
		Entry: entryOf(in), SID: in.SID, AuthAt: in.AuthTime, IssuedAt: in.IssuedAt, Max: l.Max, Address: address, Agent: agent, Former: former,
		Seal: func(id []byte) (refresh, hint []byte, err error) {
			if in.Refresh != "" {
				if refresh, err = l.Provider.Seal(id, in.Refresh); err != nil {
					return nil, nil, err
				}
			}
			if in.IDToken != "" {
				hint, err = l.Provider.SealHint(id, in.IDToken)
			}
			return refresh, hint, err
		},
	})
	return oidc.Session{Cookie: begun.Cookie, User: begun.User, Ends: begun.Ends}, err
}

// Ungranted implements [oidc.Sessions].
func (l *LogIns) Ungranted(ctx context.Context, sub string) error {
	return l.Rights.Ungranted(ctx, l.Provider.Source.Issuer, sub, nil)
}

// End implements [oidc.Sessions]. Cookies that somebody made up begin no transaction: they are looked up first, as those of every
// call are, few of them in a second. Whatever else is wrong with a session, whoever has its cookie may end it.
func (l *LogIns) End(ctx context.Context, cookie string) (hint string, err error) {
	if _, err := l.Rights.Session(ctx, cookie); err != nil {
		rejection := rights.RejectionOf(err)
		switch {
		case rejection == nil || rejection.Why == rights.WhyOverload:
			return "", err
		case rejection.Why == rights.WhyUnknown || rejection.Why == rights.WhyEnded:
			return "", nil
		}
	}
	ended, err := l.Rights.End(ctx, rights.Ending{By: "log-out", Cookie: cookie})
	if err != nil || len(ended) == 0 || ended[0].Hint == nil {
		return "", err
	}
	return l.Provider.OpenHint(ended[0].ID, ended[0].Hint), nil
}

// EndAll implements [oidc.Sessions].
func (l *LogIns) EndAll(ctx context.Context, over oidc.LogOut) (ended int, err error) {
	all, err := l.Rights.End(ctx, rights.Ending{By: "provider", Iss: over.Iss, SID: over.SID, Sub: over.Sub, Once: &over.Once, Until: over.Until, IssuedAt: over.IssuedAt})
	return len(all), err
}

// refreshMost is about how many sessions a node asks the provider at a time.
const refreshMost = 2

// Run asks the provider again about the sessions that are in use here, until ctx ends. It returns nil.
func (l *LogIns) Run(ctx context.Context) error {
	ctx = pg.AsOwn(ctx)
	tick := time.NewTicker(cmp.Or(l.Look, 5*time.Second))
	defer tick.Stop()
	var limit pg.LogLimiter
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		for {
			n, err := l.refreshSome(ctx)
			if err != nil && ctx.Err() == nil {
				if facts := limit.About(err); facts != nil {
					l.Log.Warn("refresh sessions; it is tried again", facts...)
				}
			}
			if n < refreshMost || err != nil {
				break
			}
		}
	}
}

// refreshSome claims a few sessions and asks about them, all at once. No connection is held while the provider thinks.
func (l *LogIns) refreshSome(ctx context.Context) (n int, err error) {
	claims, err := l.Rights.ClaimRefresh(ctx, refreshMost)
	if err != nil {
		return 0, err
	}
	var asking sync.WaitGroup
	for _, c := range claims {
		asking.Go(func() { l.refresh(ctx, c) })
	}
	asking.Wait()
	return len(claims), nil
}

// refresh asks about one session, and stores or ends it. A refresh token that the provider has changed is stored whatever else
// it said, and also when the node ends meanwhile: the old one would be taken for a thief's.
func (l *LogIns) refresh(ctx context.Context, c rights.Claim) {
	ctx = context.WithoutCancel(ctx)
	said, err := l.Provider.Refresh(ctx, c.Sealed, c.ID, c.Sub)
	write := func(ctx context.Context) error { return l.Rights.Unrefreshed(ctx, c, said.Sealed) }
	var f *oidc.Failure
	switch {
	case err == nil:
		write = func(ctx context.Context) error { return l.Rights.Refreshed(ctx, c, said.Sealed, entryOf(said.Login)) }
	case errors.As(err, &f):
		l.Log.Info("auth", "outcome", "refused", "method", "refresh", "user", "-", "reason", f.Reason, "session", c.PublicID)
		switch {
		case f.Sub != "":
			write = func(ctx context.Context) error {
				if err := l.Rights.Ungranted(ctx, l.Provider.Source.Issuer, f.Sub, &c); err != nil {
					return err
				}
				return l.Rights.Unrefreshed(ctx, c, said.Sealed) // if the session goes on, because its user has logged in since
			}
		case f.Ends || c.Age > l.Stale:
			write = func(ctx context.Context) error {
				_, err := l.Rights.End(ctx, rights.Ending{By: "refresh", Claim: &c})
				return err
			}
		}
	}
	l.store(ctx, c, write)
}

const (
	storeTry  = 10 * time.Second       // one try; longer than a statement waits for a lock
	storeRest = 100 * time.Millisecond // before the second try; longer each time
)

// store writes what the provider said. It tries again for a minute, or for what is left of --drain-timeout at a shutdown, because nobody
// can ask a second time: the provider has changed the refresh token, and if the old one came again, it would end the session. The claim
// lasts longer than that, so no other node shows the old token meanwhile. A try may have committed although it failed, another node may
// have claimed the session since, or the user may have got another role by a new log-in. The next try finds that, and changes nothing.
func (l *LogIns) store(ctx context.Context, c rights.Claim, write func(context.Context) error) {
	ctx, cancel := pg.Detached(ctx)
	defer cancel()
	var limit pg.LogLimiter
	for rest := storeRest; ; rest = min(2*rest, time.Second) {
		within, tried := context.WithTimeout(ctx, storeTry)
		err := write(within)
		tried()
		if err == nil {
			return
		}
		if facts := limit.Again("store", err); facts != nil {
			l.Log.Warn("store what the identity provider said of a session; it is tried again", append(facts, "session", c.PublicID)...)
		}
		select {
		case <-time.After(rest):
		case <-ctx.Done():
			l.Log.Warn("what the identity provider said of a session is lost; its user may have to log in again", "session", c.PublicID, "error", err)
			return
		}
	}
}
