package liar

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	jose "github.com/go-jose/go-jose/v4"

	"getwork/assign"
	"getwork/cmd/internal/idp"
	"getwork/web"
	"getwork/web/identity"
	"getwork/web/identity/oidc"
)

// program is what an access token of a good program says.
func program(change func(map[string]any)) map[string]any {
	c := map[string]any{"sub": "batch-7", "aud": "https://work.example", "groups": []string{"loan-desk", "getwork-admins"}}
	if change != nil {
		change(c)
	}
	return c
}

func (d *desk) judge(change func(*oidc.JWTConfig)) *oidc.JWT {
	d.Helper()
	c := oidc.JWTConfig{Source: d.source, Audience: "https://work.example", NameClaim: path(d.T, "sub"), GroupsClaim: path(d.T, "groups"), Rules: rules(d.T)}
	if change != nil {
		change(&c)
	}
	j, err := oidc.NewJWT(c)
	if err != nil {
		d.Fatal(err)
	}
	return j
}

// Each wrong access token is refused with its reason, whatever its signature; only good ones are somebody.
func TestJWT(t *testing.T) {
	t.Parallel()
	d := open(t, options{})
	j := d.judge(nil)
	good := func() string { return d.idp.Sign("at+jwt", program(nil)) }
	l, err := j.Verify(t.Context(), good())
	if err != nil || l.Iss != d.idp.Issuer || l.Sub != "batch-7" || l.Name != "batch-7" || l.Role != "worker" || l.Admin || !slices.Equal(l.Groups, []string{"getwork-admins", "loan-desk"}) || time.Until(l.EndsAt) > 5*time.Minute || time.Until(l.EndsAt) < 4*time.Minute {
		t.Fatalf("%+v %v", l, err)
	}
	put1 := func(name string, value any) func(map[string]any) {
		return func(c map[string]any) { c[name] = value }
	}
	moved := func(name string, by time.Duration) func(map[string]any) { return put1(name, time.Now().Add(by).Unix()) }
	header := func(name string, value any) Wrong {
		return Wrong{Header: func(h map[string]any) { put(h, name, value) }}
	}
	fetched := d.idp.Calls("/jwks")
	for name, tt := range map[string]struct {
		typ    string
		change func(map[string]any)
		lie    Wrong
		reason string
	}{
		"no typ":           {"", nil, Wrong{}, "jwt-typ"},
		"typ JWT":          {"JWT", nil, Wrong{}, "jwt-typ"},
		"typ is a number":  {"", nil, header("typ", 7), "jwt-form"},
		"logout token":     {"logout+jwt", nil, Wrong{}, "jwt-typ"},
		"nonce":            {"at+jwt", put1("nonce", "n"), Wrong{}, "jwt-id-token"},
		"at_hash":          {"at+jwt", put1("at_hash", "n"), Wrong{}, "jwt-id-token"},
		"iss":              {"at+jwt", put1("iss", "https://evil.example"), Wrong{}, "jwt-issuer"},
		"aud":              {"at+jwt", put1("aud", "getwork"), Wrong{}, "jwt-audience"},
		"aud is an object": {"at+jwt", put1("aud", map[string]any{"https://work.example": 1}), Wrong{}, "jwt-audience"},
		"aud missing":      {"at+jwt", put1("aud", nil), Wrong{}, "jwt-audience"},
		"exp past":         {"at+jwt", func(c map[string]any) { moved("exp", -31*time.Second)(c); moved("iat", -time.Minute)(c) }, Wrong{}, "jwt-expired"},
		"exp null":         {"at+jwt", put1("exp", nil), Wrong{}, "jwt-times"},
		"exp is text":      {"at+jwt", put1("exp", "9999999999"), Wrong{}, "jwt-times"},
		"exp before iat":   {"at+jwt", func(c map[string]any) { moved("exp", -20*time.Second)(c); moved("iat", -10*time.Second)(c) }, Wrong{}, "jwt-too-long"},
		"lives too long":   {"at+jwt", moved("exp", 2*time.Hour+time.Minute), Wrong{}, "jwt-too-long"},
		"iat null":         {"at+jwt", put1("iat", nil), Wrong{}, "jwt-times"},
		"iat ahead":        {"at+jwt", moved("iat", 40*time.Second), Wrong{}, "jwt-not-yet"},
		"nbf ahead":        {"at+jwt", moved("nbf", 40*time.Second), Wrong{}, "jwt-not-yet"},
		"sub empty":        {"at+jwt", put1("sub", ""), Wrong{}, "jwt-subject"},
		"sub is a list":    {"at+jwt", put1("sub", []string{"a"}), Wrong{}, "jwt-subject"},
		"jku":              {"at+jwt", nil, header("jku", "https://evil.example/keys"), "jwt-header"},
		"x5u":              {"at+jwt", nil, header("x5u", "https://evil.example/keys"), "jwt-header"},
		"jwk":              {"at+jwt", nil, Wrong{Sign: embedded}, "jwt-header"},
		"crit": {"at+jwt", nil, Wrong{Sign: func(key *jose.JSONWebKey, h, c map[string]any) string {
			h["crit"] = []string{"exp"}
			return plain(h, c) + ".AAAA"
		}}, "jwt-header"},
		"kid is a list": {"at+jwt", nil, Wrong{Sign: func(key *jose.JSONWebKey, h, c map[string]any) string {
			h["kid"] = []string{"a"}
			return plain(h, c) + ".AAAA"
		}}, "jwt-header"},
		"alg none":           {"at+jwt", nil, Wrong{Sign: func(key *jose.JSONWebKey, h, c map[string]any) string { return unsigned(key, h, c) + "AAAA" }}, "jwt-algorithm"},
		"alg none, unsigned": {"at+jwt", nil, Wrong{Sign: unsigned}, "jwt-form"},
		"HS256, public key":  {"at+jwt", nil, Wrong{Sign: confused}, "jwt-algorithm"},
		"claims changed": {"at+jwt", nil, Wrong{Sign: func(key *jose.JSONWebKey, h, c map[string]any) string {
			s := idp.Signed(key, h, c)
			c["groups"] = "loan-managers"
			return plain(h, c) + s[strings.LastIndex(s, "."):]
		}}, "jwt-signature"},
		"no groups":          {"at+jwt", put1("groups", nil), Wrong{}, "jwt-groups-missing"},
		"groups elsewhere":   {"at+jwt", elsewhere, Wrong{}, "jwt-groups-elsewhere"},
		"groups are numbers": {"at+jwt", put1("groups", []int{1}), Wrong{}, "jwt-groups-form"},
		"too many groups":    {"at+jwt", put1("groups", many(201)), Wrong{}, "jwt-groups"},
		"only an admin":      {"at+jwt", put1("groups", "getwork-admins"), Wrong{}, "no-grant"},
		"no grant":           {"at+jwt", put1("groups", []string{}), Wrong{}, "no-grant"},
	} {
		d.idp.Set(tt.lie)
		raw := d.idp.Sign(tt.typ, program(tt.change))
		d.idp.Set(Wrong{})
		for range 2 { // refusals are not remembered as something else
			l, err := j.Verify(t.Context(), raw)
			var f *oidc.Failure
			if !errors.As(err, &f) || f.Reason != tt.reason || l != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			kind := assign.Unauthenticated
			if tt.reason == "no-grant" {
				kind = assign.Forbidden
			}
			if !assign.IsRefusal(err, kind) || strings.Contains(err.Error(), "evil") || strings.Contains(f.Refusal.Detail, "batch-7") {
				t.Errorf("%s: %v, %v", name, err, f.Refusal)
			}
		}
	}
	for name, raw := range map[string]string{"large": "a.b." + strings.Repeat("c", 16<<10), "two parts": "a.b", "empty": "..", "JSON": `{"payload":"e30"}`, "newline": good() + "\n", "padded": strings.Replace(good(), ".", "=.", 1)} {
		if _, err := j.Verify(t.Context(), raw); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	if n := d.idp.Calls("/jwks"); n != fetched {
		t.Errorf("keys were fetched %d times", n-fetched)
	}
	for name, tt := range map[string]struct {
		typ    string
		change func(map[string]any)
	}{
		"application/at+jwt": {"application/at+jwt", nil}, "capitals": {"AT+JWT", nil},
		"aud is a list": {"at+jwt", put1("aud", []string{"other", "https://work.example"})}, "exp within the leeway": {"at+jwt", func(c map[string]any) { moved("exp", -20*time.Second)(c); moved("iat", -time.Minute)(c) }},
		"iat within the leeway": {"at+jwt", moved("iat", 20*time.Second)},
	} {
		if _, err := j.Verify(t.Context(), d.idp.Sign(tt.typ, program(tt.change))); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := d.judge(func(c *oidc.JWTConfig) { c.Algorithms = []string{"RS256"} }).Verify(t.Context(), good()); err == nil {
		t.Error("an algorithm that is not in --jwt-algs is accepted")
	}
	loose := d.judge(func(c *oidc.JWTConfig) { c.Typ = "JWT" })
	for typ, ok := range map[string]bool{"": true, "JWT": true, "jwt": true, "at+jwt": false, "logout+jwt": false} {
		if _, err := loose.Verify(t.Context(), d.idp.Sign(typ, program(nil))); (err == nil) != ok {
			t.Errorf("with --jwt-typ JWT, the type %q: %v", typ, err)
		}
	}
	for _, bad := range [][]string{{}, {"none"}, {"HS256"}, {"RS256", "HS512"}, {"rs256"}} {
		if oidc.CheckAlgorithms(bad) == nil {
			t.Errorf("--jwt-algs %v is accepted", bad)
		}
	}
}

// A program whose good token has expired reads that each time, however many programs at its address are, and so is one whose token
// names no groups. Neither is a guess. Tokens that nobody signed are guesses, unless their time is over; but then they don't fill the log.
func TestGoodTokensAreNoGuesses(t *testing.T) {
	t.Parallel()
	d := open(t, options{})
	programs := &identity.Programs{JWT: d.judge(func(c *oidc.JWTConfig) { c.NameClaim = path(t, "name") })}
	var said bytes.Buffer
	counted := 0
	identify := identity.Config{Log: slog.New(slog.NewTextHandler(&said, nil)), Failed: web.NewAddressLimit(30), Untimely: web.NewAddressLimit(30),
		JWT: programs.Judge, Count: func(string, string) { counted++ },
		Address: func(*http.Request) netip.Addr { return netip.MustParseAddr("192.0.2.1") }}.Identify()
	call := func(raw string) (limited, refused int) {
		t.Helper()
		r := httptest.NewRequestWithContext(t.Context(), "GET", "/api/v1/me", nil)
		r.Header.Set("Authorization", "Bearer "+raw)
		for range 50 {
			switch _, err := identify(r); {
			case assign.IsRefusal(err, assign.Unauthenticated):
				refused++
			case assign.IsRefusal(err, assign.RateLimited):
				limited++
			default:
				t.Fatal(err)
			}
		}
		return limited, refused
	}
	sign := func(claims map[string]any) string {
		return d.idp.Sign("at+jwt", program(func(c map[string]any) { c["name"] = "batch"; maps.Copy(c, claims) }))
	}
	fetched := d.idp.Calls("/jwks")
	past, ahead := time.Now().Add(-time.Hour).Unix(), time.Now().Add(time.Minute).Unix()
	for name, claims := range map[string]map[string]any{
		"expired":       {"iat": past, "exp": past + 60},
		"not yet":       {"nbf": ahead},
		"no groups":     {"groups": nil},
		"another group": {"groups": many(201)},
		"no name":       {"name": nil},
	} {
		if limited, refused := call(sign(claims)); limited != 0 || refused != 50 {
			t.Errorf("%s: of 50 calls %d were refused, and %d limited", name, refused, limited)
		}
	}
	if limited, refused := call(swapped(sign(map[string]any{"iat": past, "exp": past + 60}))); limited != 0 || refused != 50 {
		t.Errorf("forged and expired: of 50 calls %d were refused, and %d limited", refused, limited)
	}
	untimely := strings.Count(said.String(), "reason=jwt-expired") + strings.Count(said.String(), "reason=jwt-not-yet")
	if untimely < 30 || untimely > 35 || counted != 6*50 {
		t.Errorf("%d lines about 150 tokens whose time is over or has not come, want 30; %d calls counted, want 300", untimely, counted)
	}
	if limited, _ := call(swapped(d.idp.Sign("at+jwt", program(nil)))); limited < 15 || limited > 20 {
		t.Errorf("%d of 50 guesses were limited, want 20", limited)
	}
	if n := d.idp.Calls("/jwks"); n != fetched {
		t.Errorf("keys were fetched %d times", n-fetched)
	}
}

// Whatever kids strangers make up, a node asks for keys once a minute, and a key that the issuer has taken into use is known
// within that minute.
func TestForgedKids(t *testing.T) {
	t.Parallel()
	d := open(t, options{})
	d.clock.stop()
	j := d.judge(nil)
	b := d.browser()
	before := d.idp.Calls("/jwks")
	made := 0
	kid := func() string { made++; return fmt.Sprint("forged-", made) }
	forge := func(n int) {
		t.Helper()
		for i := range n {
			now := d.clock.now().Unix()
			raw := plain(map[string]any{"alg": "ES256", "typ": "at+jwt", "kid": kid()}, program(func(c map[string]any) { c["iss"], c["iat"], c["exp"] = d.idp.Issuer, now, now+60 })) + ".AAAA"
			if i%100 == 0 { // by the other door, too, and with a signature
				d.idp.Set(Wrong{Header: func(h map[string]any) { h["kid"] = kid() }})
				b.call("POST", "/auth/backchannel", "logout_token="+d.idp.LogoutToken("getwork", "0001", nil), "Content-Type", "application/x-www-form-urlencoded")
				raw = d.idp.Sign("at+jwt", program(nil))
				d.idp.Set(Wrong{})
			}
			if _, err := j.Verify(t.Context(), raw); err == nil {
				t.Fatal("a forged token is accepted")
			}
		}
	}
	forge(2000)
	if n := d.idp.Calls("/jwks") - before; n != 0 {
		t.Errorf("within a minute of the start, %d fetches", n)
	}
	for range 4 {
		d.clock.forward(30 * time.Second)
		forge(1000)
		d.clock.forward(30 * time.Second)
		var wait sync.WaitGroup
		now := d.clock.now().Unix()
		for range 4 { // beside each other, at the moment when one may fetch
			raw := plain(map[string]any{"alg": "ES256", "typ": "at+jwt", "kid": kid()}, program(func(c map[string]any) { c["iss"], c["iat"], c["exp"] = d.idp.Issuer, now, now+60 })) + ".AAAA"
			wait.Go(func() {
				for range 250 {
					if _, err := j.Verify(t.Context(), raw); err == nil {
						t.Error("a forged token is accepted")
					}
				}
			})
		}
		wait.Wait()
	}
	if n := d.idp.Calls("/jwks") - before; n != 4 {
		t.Errorf("10,000 forged kids in 4 minutes made %d fetches", n)
	}
	if err := d.idp.Rotate(); err != nil {
		t.Fatal(err)
	}
	raw := d.idp.Sign("at+jwt", program(nil))
	if _, err := j.Verify(t.Context(), raw); err == nil {
		t.Error("the new key is known at once, so somebody may fetch at any time")
	}
	d.clock.forward(time.Minute)
	if _, err := j.Verify(t.Context(), raw); err != nil {
		t.Errorf("a minute after the rotation: %v", err)
	}
	// The keys can't be read: that is not the caller's fault.
	d.idp.Set(at("/jwks", func(w http.ResponseWriter, _ *http.Request) { refuse(w, 500, "server_error") }))
	d.clock.forward(time.Minute)
	forged := strings.Replace(raw, raw[:strings.Index(raw, ".")], strings.Split(plain(map[string]any{"alg": "ES256", "typ": "at+jwt", "kid": "new"}, nil), ".")[0], 1)
	if _, err := j.Verify(t.Context(), forged); !assign.IsRefusal(err, assign.Unavailable) {
		t.Errorf("while the keys can't be read: %v", err)
	}
	if _, err := j.Verify(t.Context(), d.idp.Sign("at+jwt", map[string]any{"sub": "b", "aud": "https://work.example", "groups": "loan-desk"})); err != nil {
		t.Errorf("a known key: %v", err)
	}
}

// A verified token is believed for a minute, never past its end, and then judged again.
func TestJWTKept(t *testing.T) {
	t.Parallel()
	d := open(t, options{})
	d.clock.stop()
	j := d.judge(nil)
	raw := d.idp.Sign("at+jwt", program(func(c map[string]any) { c["exp"] = d.clock.now().Add(90 * time.Second).Unix() }))
	verify := func() *oidc.Login {
		l, err := j.Verify(t.Context(), raw)
		if err != nil {
			return nil
		}
		return l
	}
	l := verify()
	if l == nil {
		t.Fatal("refused")
	}
	l.Groups[0], l.Role = "changed", "manager"
	if l := verify(); l == nil || l.Groups[0] == "changed" || l.Role != "worker" {
		t.Errorf("what one caller changes, another sees: %+v", l)
	}
	if err := d.idp.Rotate(); err != nil { // the key is withdrawn
		t.Fatal(err)
	}
	d.clock.forward(59 * time.Second)
	d.browser().logIn("0001") // and the node knows
	if verify() == nil {
		t.Error("it is not kept for a minute")
	}
	d.clock.forward(2 * time.Second)
	if verify() != nil {
		t.Error("it is kept for longer than a minute")
	}
	short := d.idp.Sign("at+jwt", program(func(c map[string]any) { c["exp"] = d.clock.now().Add(10 * time.Second).Unix() }))
	if _, err := j.Verify(t.Context(), short); err != nil {
		t.Fatal(err)
	}
	d.clock.forward(41 * time.Second)
	if _, err := j.Verify(t.Context(), short); err == nil {
		t.Error("it is kept past its end")
	}
}
