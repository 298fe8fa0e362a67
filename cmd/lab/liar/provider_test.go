package liar

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	jose "github.com/go-jose/go-jose/v4"
	"go.uber.org/goleak"

	"getwork/cmd/internal/idp"
	"getwork/web/identity/oidc"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(closing{m})
}

// closing closes connections that tests left idle.
type closing struct{ *testing.M }

func (c closing) Run() int {
	defer http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	return c.M.Run()
}

// A provider that is away when a node starts keeps nobody from starting it, and is found when it comes back.
func TestAway(t *testing.T) {
	t.Parallel()
	d := open(t, options{away: true, before: func(p *Provider) { p.Close() }})
	b := d.browser()
	d.await("a line in the log", func() bool { return strings.Contains(d.log.String(), "can't be used now") })
	r := b.get("/auth/login?return_to=/floor")
	if r.StatusCode != 503 || r.Header.Get("Retry-After") != "10" || !strings.Contains(r.text, "/auth/login?return_to=%2Ffloor") || !strings.Contains(d.log.String(), "reason=discovery") {
		t.Errorf("%d %s\n%s", r.StatusCode, r.text, d.log)
	}
	if d.source.Up() {
		t.Error("it is up")
	}
	if err := d.idp.Reopen(); err != nil {
		t.Fatal(err)
	}
	d.await("discovery", d.source.Up)
	if r := b.logIn("0001"); r.StatusCode != http.StatusSeeOther {
		t.Errorf("%d: %s", r.StatusCode, d.log)
	}
	if log := d.log.String(); strings.Count(log, "can't be used now") != 1 || !strings.Contains(log, "the identity provider answers") {
		t.Errorf("the log has:\n%s", log)
	}
	// It goes away again between the start of a log-in and its end.
	callback := b.back(b.leave(""), "0001")
	d.log.Take()
	d.idp.Close()
	delete(b.cookies, d.provider.SessionCookie())
	b.refused(b.get(callback), 1, "token-endpoint", hidden(callback)...)
	if d.source.Up() {
		t.Error("it is up")
	}
}

// A discovery document that can't be trusted is not used at all.
func TestDiscoveryRefused(t *testing.T) {
	t.Parallel()
	set := func(name string, value any) Wrong {
		return Wrong{Discovery: func(m map[string]any) { put(m, name, value) }}
	}
	for name, tt := range map[string]struct {
		wrong Wrong
		says  string
	}{
		"issuer with a slash more": {Wrong{Discovery: func(m map[string]any) { m["issuer"] = m["issuer"].(string) + "/" }}, "byte for byte"},
		"issuer missing":           {set("issuer", nil), "byte for byte"},
		"issuer in capitals":       {Wrong{Discovery: func(m map[string]any) { m["issuer"] = strings.ToUpper(m["issuer"].(string)) }}, "byte for byte"},
		"token endpoint missing":   {set("token_endpoint", nil), "token_endpoint"},
		"token endpoint on http":   {set("token_endpoint", "http://login.example/token"), "token_endpoint"},
		"authorization on http":    {set("authorization_endpoint", "http://login.example/a"), "authorization_endpoint"},
		"authorization is script":  {set("authorization_endpoint", "javascript:alert(1)"), "authorization_endpoint"},
		"keys on http":             {set("jwks_uri", "http://10.0.0.1/keys"), "jwks_uri"},
		"keys in a file":           {set("jwks_uri", "file:///etc/passwd"), "jwks_uri"},
		"userinfo on http":         {set("userinfo_endpoint", "http://login.example/u"), "userinfo_endpoint"},
		"userinfo with a password": {set("userinfo_endpoint", "https://a:b@login.example/u"), "userinfo_endpoint"},
		"end_session is a path":    {set("end_session_endpoint", "/out"), "end_session_endpoint"},
		"only HS256":               {set("id_token_signing_alg_values_supported", []string{"HS256", "none"}), "signs with none of"},
		"algorithms are text":      {set("id_token_signing_alg_values_supported", "RS256"), "unknown form"},
		"HTML":                     {at("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<!doctype html>") }), "not JSON"},
		"huge":                     {at("/.well-known/openid-configuration", huge), "1 MiB"},
		"500":                      {at("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) { refuse(w, 500, "server_error") }), "status 500"},
		"redirect":                 {at("/.well-known/openid-configuration", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/elsewhere", 302) }), "status 302"},
		"slow":                     {at("/.well-known/openid-configuration", hang), "in time"},
		"no keys":                  {at("/jwks", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"keys":[]}`) }), "keys"},
		"only a symmetric key": {at("/jwks", func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, `{"keys":[{"kty":"oct","kid":"a","k":"AAAA"}]}`)
		}), "keys"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := open(t, options{away: true, before: func(p *Provider) { p.Set(tt.wrong) }, source: func(c *oidc.SourceConfig) {
				if name == "slow" {
					c.Within = 200 * time.Millisecond
				}
			}})
			d.await("a line in the log", func() bool { return strings.Contains(d.log.String(), "can't be used now") })
			if log := d.log.String(); !strings.Contains(log, tt.says) || strings.Contains(log, "a text of the provider") {
				t.Errorf("the log has:\n%s", log)
			}
			if strings.Contains(name, "key") && !strings.Contains(name, "keys ") {
				return // there is a log-in, which ends at the signature
			}
			if r := d.browser().get("/auth/login"); r.StatusCode != 503 {
				t.Errorf("log-in is answered with %d", r.StatusCode)
			}
			if d.idp.Calls("/elsewhere") > 0 {
				t.Error("a redirect was followed")
			}
		})
	}
	for _, issuer := range []string{"", "login.example", "http://login.example", "https://a:b@login.example", "https://login.example?x", "https://login.example#x", "https://login.example?", "ftp://login.example", "https:login.example"} {
		if _, err := oidc.NewSource(oidc.SourceConfig{Issuer: issuer}); err == nil {
			t.Errorf("the issuer %q is accepted", issuer)
		}
	}
}

// A log-in is over in time whatever the provider does.
func TestSlowProvider(t *testing.T) {
	t.Parallel()
	d := open(t, options{source: func(c *oidc.SourceConfig) { c.Within = 200 * time.Millisecond }})
	b := d.browser()
	callback := b.back(b.leave(""), "0001")
	d.idp.Set(at("/token", func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(200)
		w.(http.Flusher).Flush()
		hang(w, r)
	}))
	d.log.Take()
	b.refused(b.get(callback), 0, "token-endpoint", hidden(callback)...)
}

// A key that the provider has just taken into use is fetched at once for a log-in; one that it has withdrawn is forgotten.
func TestKeysRotate(t *testing.T) {
	t.Parallel()
	d := open(t, options{})
	var old *jose.JSONWebKey
	d.idp.Set(Wrong{Sign: func(key *jose.JSONWebKey, h, c map[string]any) string {
		old = key
		return idp.Signed(key, h, c)
	}})
	if r := d.browser().logIn("0001"); r.StatusCode != http.StatusSeeOther {
		t.Fatal(r.StatusCode)
	}
	d.idp.Set(Wrong{})
	if err := d.idp.Rotate(); err != nil {
		t.Fatal(err)
	}
	var wait sync.WaitGroup
	for range 20 { // all at once: one fetch
		wait.Go(func() {
			if r := d.browser().logIn("0001"); r.StatusCode != http.StatusSeeOther {
				t.Errorf("after the rotation: %d", r.StatusCode)
			}
		})
	}
	wait.Wait()
	if n := d.idp.Calls("/jwks"); n != 2 || n != d.source.Fetches() {
		t.Errorf("the keys were fetched %d times", n)
	}
	d.idp.Set(Wrong{Sign: func(_ *jose.JSONWebKey, h, c map[string]any) string {
		h["kid"] = old.KeyID
		return idp.Signed(old, h, c)
	}})
	d.log.Take()
	d.browser().logIn("0001")
	if log := d.log.Take(); !strings.Contains(log, "reason=signature") {
		t.Errorf("a withdrawn key: %s", log)
	}
}

// Refreshing: rights follow the provider, and a session ends when it says so, not when it is away.
func TestRefresh(t *testing.T) {
	t.Parallel()
	d := open(t, options{})
	d.browser().logIn("0001")
	sealed, err := d.provider.Seal(id(""), d.last().Refresh)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(sealed), d.last().Refresh) {
		t.Fatal("it is not sealed")
	}
	renew := func(wrong Wrong) (oidc.Renewal, *oidc.Failure) {
		t.Helper()
		d.idp.Set(wrong)
		defer d.idp.Set(Wrong{})
		r, err := d.provider.Refresh(t.Context(), sealed, id(""), "0001")
		if r.Sealed != nil {
			sealed = r.Sealed
		}
		var f *oidc.Failure
		if err != nil && !errors.As(err, &f) {
			t.Fatal(err)
		}
		if (f == nil) != (r.Login != nil) {
			t.Errorf("%+v with %v", r.Login, f)
		}
		return r, f
	}
	if r, f := renew(Wrong{}); f != nil || r.Login.Role != "worker" || r.Login.Sub != "0001" || r.Sealed == nil {
		t.Fatalf("%+v %v", r.Login, f)
	}
	if r, f := renew(claim("groups", []string{"loan-managers", "x"})); f != nil || r.Login.Role != "manager" || !slices.Equal(r.Login.Groups, []string{"loan-managers", "x"}) {
		t.Errorf("%+v %v", r.Login, f)
	}
	noToken := Wrong{Token: func(b map[string]any) { delete(b, "id_token") }}
	if r, f := renew(noToken); f != nil || r.Login.Role != "worker" {
		t.Errorf("without an ID token: %+v %v", r.Login, f)
	}
	if _, f := renew(claim("preferred_username", nil)); f != nil {
		t.Errorf("without a name: %v", f)
	}
	for name, tt := range map[string]struct {
		wrong  Wrong
		reason string
		ends   bool
	}{
		"another sub":           {claim("sub", "0003"), "subject", true},
		"another sub, userinfo": {both(Wrong{Token: noToken.Token, UserInfo: func(i map[string]any) { i["sub"] = "0003" }}, Wrong{}), "userinfo-subject", true},
		"no groups":             {noGroups(func(i map[string]any) { delete(i, "groups") }), "groups-missing", true},
		"groups elsewhere":      {Wrong{Claims: elsewhere}, "groups-elsewhere", true},
		"no grant":              {claim("groups", []string{}), "no-grant", true},
		"userinfo 500":          {Wrongs["userinfo 500"].Wrong, "userinfo", false},
		"kid unknown":           {Wrongs["kid unknown"].Wrong, "signature", false},
		"iss":                   {claim("iss", "https://evil.example"), "issuer", false},
		"500":                   {Wrongs["token endpoint 500"].Wrong, "token-endpoint", false},
		"invalid_client":        {Wrongs["invalid_client"].Wrong, "token-endpoint", false},
		"hangs up":              {Wrongs["token endpoint hangs up"].Wrong, "token-endpoint", false},
	} {
		if _, f := renew(tt.wrong); f == nil || f.Reason != tt.reason || f.Ends != tt.ends {
			t.Errorf("%s: %v, ends %v", name, f, f != nil && f.Ends)
		}
	}
	if _, f := renew(Wrong{}); f != nil {
		t.Fatalf("after all that: %v", f)
	}
	if _, err := d.provider.Refresh(t.Context(), sealed, id(strings.Repeat("cd", 32)), "0001"); err == nil || !strings.Contains(err.Error(), "refresh-sealed") {
		t.Errorf("another session's token: %v", err)
	}
	d.idp.Close()
	if _, f := renew(Wrong{}); f == nil || f.Ends {
		t.Errorf("while the provider is away: %v", f)
	}
	if err := d.idp.Reopen(); err != nil {
		t.Fatal(err)
	}
	// An old token ends the family, for the thief and for the owner.
	stolen := sealed
	renew(Wrong{})
	for range 2 {
		if _, err := d.provider.Refresh(t.Context(), stolen, id(""), "0001"); err == nil || !strings.Contains(err.Error(), "invalid_grant") {
			t.Errorf("an old token: %v", err)
		}
	}
	if _, f := renew(Wrong{}); f == nil || !f.Ends || f.Code != "invalid_grant" {
		t.Errorf("after the theft: %v", f)
	}
}

// A refresh is over in time, and what the provider gave before it began to hang is not lost.
func TestRefreshHangs(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/token", "/jwks", "/userinfo"} {
		d := open(t, options{})
		d.browser().logIn("0001")
		sealed, err := d.provider.Seal(id(""), d.last().Refresh)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.idp.Rotate(); err != nil {
			t.Fatal(err)
		}
		d.idp.Set(both(noGroups(nil), at(path, hang)))
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		began := time.Now()
		r, err := d.provider.Refresh(ctx, sealed, id(""), "0001")
		cancel()
		if took := time.Since(began); took > 4*time.Second { // a call may take five
			t.Errorf("%s hangs: it takes %v", path, took)
		}
		var f *oidc.Failure
		if !errors.As(err, &f) || f.Ends || (r.Sealed == nil) != (path == "/token") {
			t.Errorf("%s hangs: %v, a new token %v", path, err, r.Sealed != nil)
		}
		if path != "/token" {
			d.idp.Set(Wrong{})
			d.clock.forward(time.Minute)
			if r, err := d.provider.Refresh(t.Context(), r.Sealed, id(""), "0001"); err != nil || r.Login.Role != "worker" {
				t.Errorf("after %s hung: %v", path, err)
			}
		}
	}
}

// A node that ends while it refreshes does not lose the token that the provider has just given.
func TestRefreshInterrupted(t *testing.T) {
	t.Parallel()
	d := open(t, options{})
	d.browser().logIn("0001")
	sealed, err := d.provider.Seal(id(""), d.last().Refresh)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	d.idp.Set(Wrong{Before: func(_ http.ResponseWriter, r *http.Request) bool { cancel(); return false }})
	r, err := d.provider.Refresh(ctx, sealed, id(""), "0001")
	if err != nil || r.Sealed == nil {
		t.Fatalf("%v, a new token %v", err, r.Sealed != nil)
	}
	if _, err := d.provider.Refresh(t.Context(), r.Sealed, id(""), "0001"); err != nil {
		t.Errorf("the next time: %v", err)
	}
}

// Log-out by the person.
func TestLogOut(t *testing.T) {
	t.Parallel()
	d := open(t, options{})
	b := d.browser()
	b.logIn("0001")
	token := d.last().IDToken
	for _, want := range []url.Values{
		{"client_id": {"getwork"}, "post_logout_redirect_uri": {d.url + "/"}, "id_token_hint": {token}},
		{"client_id": {"getwork"}, "post_logout_redirect_uri": {d.url + "/"}}, // without a session
	} {
		r := b.call("POST", "/auth/logout", "")
		var body struct{ Next string }
		if err := json.Unmarshal([]byte(r.text), &body); err != nil || r.StatusCode != 200 {
			t.Fatalf("%d %s", r.StatusCode, r.text)
		}
		u, err := url.Parse(body.Next)
		if err != nil || u.Query().Encode() != want.Encode() || !strings.HasPrefix(body.Next, d.idp.Issuer+"/end_session?") {
			t.Errorf("next is %s", body.Next)
		}
		if len(b.cookies) != 0 || len(d.alive) != 0 {
			t.Errorf("%v %v", b.cookies, d.alive)
		}
		if r := b.get(body.Next); r.StatusCode != 303 || r.Header.Get("Location") != d.url+"/" {
			t.Errorf("the provider answers %d: %s", r.StatusCode, r.text)
		}
	}
	b.logIn("0001")
	d.sessions.fails = context.DeadlineExceeded
	if r := b.call("POST", "/auth/logout", ""); r.StatusCode != 503 || len(b.cookies) != 1 {
		t.Errorf("while the database is away: %d, %v", r.StatusCode, b.cookies)
	}
	sealed, err := d.provider.SealHint(id(""), token)
	if err != nil || d.provider.OpenHint(id(""), sealed) != token || d.provider.OpenHint(id("00"), sealed) != "" {
		t.Error("the hint is not sealed")
	}
	if u := d.provider.LogoutURL(strings.Repeat("x", 8<<10)); len(u) > 4<<10 {
		t.Errorf("the address has %d bytes", len(u))
	}
}

// However many people log out at once, the provider's messages are taken. Only those that are no good count, and after too many the
// log says what is dropped.
func TestBackchannelLimit(t *testing.T) {
	t.Parallel()
	const most = 2
	var bad atomic.Int32
	d := open(t, options{badMessages: func(_ netip.Addr, n int) (bool, time.Duration) {
		if bad.Load() >= most {
			return false, time.Minute
		}
		bad.Add(int32(n))
		return true, 0
	}})
	b := d.browser()
	send := func(token string) int {
		t.Helper()
		return b.call("POST", "/auth/backchannel", url.Values{"logout_token": {token}}.Encode(), "Content-Type", "application/x-www-form-urlencoded").StatusCode
	}
	for i := range 2 * most {
		if status := send(d.idp.LogoutToken("getwork", "0001", nil)); status != 200 {
			t.Errorf("message %d: %d", i, status)
		}
	}
	for i := range most {
		if status := send("x"); status != 400 {
			t.Errorf("bad message %d: %d", i, status)
		}
	}
	d.log.Take()
	for _, token := range []string{"x", d.idp.LogoutToken("getwork", "0001", nil)} {
		if status := send(token); status != 429 {
			t.Errorf("after too many: %d", status)
		}
		if log := d.log.Take(); strings.Count(log, "\n") != 1 || !strings.Contains(log, "outcome=refused") || !strings.Contains(log, "reason=logout-limit") {
			t.Errorf("the log has %q", log)
		}
	}
}

// Messages of the provider that sessions are over.
func TestBackchannel(t *testing.T) {
	const event = "http://schemas.openid.net/event/backchannel-logout"
	t.Parallel()
	d := open(t, options{})
	b := d.browser()
	message := func(change func(map[string]any), lie Wrong) reply {
		t.Helper()
		d.log.Take()
		d.idp.Set(lie)
		defer d.idp.Set(Wrong{})
		return b.call("POST", "/auth/backchannel", url.Values{"logout_token": {d.idp.LogoutToken("getwork", "0001", change)}}.Encode(), "Content-Type", "application/x-www-form-urlencoded", "Accept", "*/*")
	}
	b.logIn("0001")
	d.browser().logIn("0002")
	put1 := func(name string, value any) func(map[string]any) {
		return func(c map[string]any) { put(c, name, value) }
	}
	moved := func(name string, by time.Duration) func(map[string]any) {
		return func(c map[string]any) { c[name] = time.Now().Add(by).Unix() }
	}
	header := func(name string, value any) Wrong {
		return Wrong{Header: func(h map[string]any) { put(h, name, value) }}
	}
	calls := d.count()
	for name, tt := range map[string]struct {
		change func(map[string]any)
		lie    Wrong
		reason string
	}{
		"no typ":         {nil, header("typ", nil), "logout-typ"},
		"typ JWT":        {nil, header("typ", "JWT"), "logout-typ"},
		"typ at+jwt":     {nil, header("typ", "at+jwt"), "logout-typ"},
		"iss":            {put1("iss", "https://evil.example"), Wrong{}, "logout-issuer"},
		"no iss":         {put1("iss", nil), Wrong{}, "logout-issuer"},
		"aud":            {put1("aud", "other"), Wrong{}, "logout-audience"},
		"no aud":         {put1("aud", nil), Wrong{}, "logout-audience"},
		"no events":      {put1("events", nil), Wrong{}, "logout-events"},
		"other events":   {put1("events", map[string]any{"x": map[string]any{}}), Wrong{}, "logout-events"},
		"events null":    {put1("events", map[string]any{event: nil}), Wrong{}, "logout-events"},
		"events is text": {put1("events", event), Wrong{}, "logout-events"},
		"nonce":          {put1("nonce", "a"), Wrong{}, "logout-nonce"},
		"nonce null":     {func(c map[string]any) { c["nonce"] = nil }, Wrong{}, "logout-nonce"},
		"exp past":       {moved("exp", -time.Second), Wrong{}, "logout-expired"},
		"no exp":         {put1("exp", nil), Wrong{}, "logout-expired"},
		"exp is text":    {put1("exp", "later"), Wrong{}, "logout-expired"},
		"iat old":        {moved("iat", -6*time.Minute), Wrong{}, "logout-issued-at"},
		"iat ahead":      {moved("iat", 6*time.Minute), Wrong{}, "logout-issued-at"},
		"no iat":         {put1("iat", nil), Wrong{}, "logout-issued-at"},
		"no jti":         {put1("jti", nil), Wrong{}, "logout-jti"},
		"jti is a list":  {put1("jti", []string{"a"}), Wrong{}, "logout-jti"},
		"sid is a list":  {put1("sid", []string{"a"}), Wrong{}, "logout-sid"},
		"sid empty":      {put1("sid", ""), Wrong{}, "logout-sid"},
		"sub empty":      {put1("sub", ""), Wrong{}, "logout-subject"},
		"no sub, no sid": {func(c map[string]any) { delete(c, "sub"); delete(c, "sid") }, Wrong{}, "logout-subject"},
		"alg none":       {nil, Wrong{Sign: unsigned}, "logout-token-form"},
		"HS256":          {nil, Wrong{Sign: confused}, "logout-algorithm"},
		"somebody's key": {nil, Wrong{Sign: stranger}, "logout-signature"},
		"claims changed": {nil, Wrong{Sign: promoted}, "logout-signature"},
		"an ID token":    {func(c map[string]any) { delete(c, "events"); c["nonce"] = "a" }, header("typ", nil), "logout-typ"},
	} {
		lie := tt.lie
		if name == "claims changed" {
			lie.Sign = func(key *jose.JSONWebKey, h, c map[string]any) string {
				signature := idp.Signed(key, h, c)
				c["sub"] = "0002"
				delete(c, "sid")
				return plain(h, c) + signature[strings.LastIndex(signature, "."):]
			}
		}
		r := message(tt.change, lie)
		log := d.log.Take()
		if r.StatusCode != 400 || r.Header.Get("Content-Type") != "application/problem+json" || r.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %d %v", name, r.StatusCode, r.Header)
		}
		if strings.Count(log, "\n") != 1 || !strings.Contains(log, "reason="+tt.reason) || strings.Contains(log, "0001") || strings.Contains(r.text, "0001") {
			t.Errorf("%s: the log has %s", name, log)
		}
	}
	for name, body := range map[string]string{"no token": "", "twice": "logout_token=a&logout_token=b", "other": "x=y"} {
		if r := b.call("POST", "/auth/backchannel", body, "Content-Type", "application/x-www-form-urlencoded"); r.StatusCode != 400 {
			t.Errorf("%s: %d", name, r.StatusCode)
		}
	}
	if r := b.call("POST", "/auth/backchannel?logout_token="+d.idp.LogoutToken("getwork", "0001", nil), ""); r.StatusCode != 400 {
		t.Errorf("in the query: %d", r.StatusCode)
	}
	if r := b.call("POST", "/auth/backchannel", "logout_token="+strings.Repeat("a", 65<<10), "Content-Type", "application/x-www-form-urlencoded"); r.StatusCode != 413 {
		t.Errorf("too large: %d", r.StatusCode)
	}
	if d.count() != calls || len(d.alive) != 2 {
		t.Fatalf("Sessions was called, and %d are alive", len(d.alive))
	}

	// A good one ends one session, by its sid; again, nothing.
	for name, change := range map[string]func(map[string]any){
		"sid alone": put1("sub", nil), "sub alone": put1("sid", nil), "both": nil, "aud is a list": put1("aud", []string{"other", "getwork"}),
	} {
		d.browser().logIn("0001")
		token := url.Values{"logout_token": {d.idp.LogoutToken("getwork", "0001", change)}}.Encode()
		before := len(d.alive)
		for range 2 {
			r := b.call("POST", "/auth/backchannel", token, "Content-Type", "application/x-www-form-urlencoded")
			if r.StatusCode != 200 || r.text != "" || r.Header.Get("Cache-Control") != "no-store" {
				t.Errorf("%s: %d", name, r.StatusCode)
			}
		}
		ended := before - len(d.alive)
		if name == "sub alone" && ended < 1 || name != "sub alone" && ended != 1 {
			t.Errorf("%s: %d sessions ended", name, ended)
		}
	}
	// The database was away: the provider may send the same message again.
	d.browser().logIn("0001")
	token := url.Values{"logout_token": {d.idp.LogoutToken("getwork", "0001", nil)}}.Encode()
	d.sessions.fails = context.DeadlineExceeded
	if r := b.call("POST", "/auth/backchannel", token, "Content-Type", "application/x-www-form-urlencoded"); r.StatusCode != 503 {
		t.Errorf("while the database is away: %d", r.StatusCode)
	}
	d.sessions.fails = nil
	before := len(d.alive)
	b.call("POST", "/auth/backchannel", token, "Content-Type", "application/x-www-form-urlencoded")
	if len(d.alive) != before-1 {
		t.Error("the second try ended nothing")
	}
	// The provider's own.
	d.browser().logIn("0001")
	if err := d.idp.LogOut(t.Context(), "0001"); err != nil {
		t.Error(err)
	}
	for _, l := range d.alive {
		if l.Sub == "0001" {
			t.Error("a session is alive after the provider's log-out")
		}
	}
}

// Some providers leave exp out of their messages.
func TestBackchannelWithoutExp(t *testing.T) {
	t.Parallel()
	d := open(t, options{config: func(c *oidc.Config) { c.BackchannelNoExp = true }})
	b := d.browser()
	for _, tt := range []struct {
		age    time.Duration
		lie    Wrong
		status int
	}{{0, Wrong{}, 200}, {time.Minute, Wrong{}, 200}, {3 * time.Minute, Wrong{}, 400}, {0, Wrong{Sign: stranger}, 400}} {
		d.idp.Set(tt.lie)
		token := d.idp.LogoutToken("getwork", "0001", func(c map[string]any) {
			delete(c, "exp")
			c["iat"] = time.Now().Add(-tt.age).Unix()
		})
		r := b.call("POST", "/auth/backchannel", url.Values{"logout_token": {token}}.Encode(), "Content-Type", "application/x-www-form-urlencoded")
		if r.StatusCode != tt.status {
			t.Errorf("%v old: %d", tt.age, r.StatusCode)
		}
	}
}
