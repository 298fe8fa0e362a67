package liar

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"getwork/assign"
	"getwork/web/identity/oidc"
)

// Each wrong answer is refused with one line in the log, and begins no session. A good one then still does.
func TestWrongAnswers(t *testing.T) {
	t.Parallel()
	d := open(t, options{})
	for _, name := range slices.Sorted(maps.Keys(Wrongs)) {
		t.Run(name, func(t *testing.T) {
			own := *d
			own.T = t
			b := own.browser()
			d.log.Take()
			calls := d.count()
			d.idp.Set(Wrongs[name].Wrong)
			defer d.idp.Set(Wrong{})
			address := b.back(b.leave(""), "0001")
			b.refused(b.get(address), calls, Wrongs[name].Reason, hidden(address)...)
		})
	}
	if r := d.browser().logIn("0001"); r.StatusCode != http.StatusSeeOther {
		t.Fatalf("afterwards a good log-in is answered with %d", r.StatusCode)
	}
}

// What a log-in brings, and what the browser gets.
func TestLogIn(t *testing.T) {
	t.Parallel()
	d := open(t, options{})
	b := d.browser()
	away := b.leave("?return_to=/tasks/verify%3Fa=%C3%A4")
	for _, want := range []string{d.idp.Issuer + "/authorize?", "code_challenge_method=S256", "scope=openid+profile+offline_access", "response_type=code", "client_id=getwork"} {
		if !strings.Contains(away, want) {
			t.Errorf("%s has no %s", away, want)
		}
	}
	if strings.Contains(away, "prompt") || strings.Contains(away, secret) {
		t.Error(away)
	}
	b.cookies[d.provider.SessionCookie()] = "former"
	r := b.get(b.back(away, "0001"))
	if r.StatusCode != http.StatusSeeOther || r.Header.Get("Location") != "/tasks/verify?a=%C3%A4" {
		t.Fatalf("%d to %s: %s", r.StatusCode, r.Header.Get("Location"), r.text)
	}
	l := d.last()
	if l.Iss != d.idp.Issuer || l.Sub != "0001" || l.Name != "Oliver" || l.Role != "worker" || l.Admin || !slices.Equal(l.Groups, []string{"loan-desk"}) ||
		l.SID == "" || time.Since(l.AuthTime).Abs() > time.Minute || l.Refresh == "" || l.IDToken == "" {
		t.Errorf("%+v", l)
	}
	if d.former[0] != "former" {
		t.Errorf("the former session is %q", d.former[0])
	}
	if log := d.log.String(); strings.Count(log, "msg=auth") != 1 || !strings.Contains(log, "outcome=ok") || !strings.Contains(log, "user=oliver") || !strings.Contains(log, "address=127.0.0.1") {
		t.Errorf("the log has:\n%s", log)
	}
	set := r.Header.Values("Set-Cookie")
	port := d.url[strings.LastIndex(d.url, ":")+1:]
	for _, want := range []string{"__Host-getwork-" + port + "=", "__Host-getwork-in-"} {
		i := slices.IndexFunc(set, func(s string) bool { return strings.HasPrefix(s, want) })
		if i < 0 {
			t.Fatalf("%s is not among %q", want, set)
		}
		for _, attribute := range []string{"; Path=/", "; HttpOnly", "; Secure", "; SameSite=Lax", "; Max-Age="} {
			if !strings.Contains(set[i], attribute) {
				t.Errorf("%s has no %s", set[i], attribute)
			}
		}
		if strings.Contains(set[i], "Domain") {
			t.Error(set[i])
		}
	}
	if r.Header.Get("Cache-Control") != "no-store" || r.Header.Get("Referrer-Policy") != "no-referrer" {
		t.Errorf("%v", r.Header)
	}
	for sub, want := range map[string]string{"0003": "manager", "0004": ""} {
		d.browser().logIn(sub)
		if l := d.last(); l.Role != want || l.Admin != (sub == "0004") {
			t.Errorf("%+v", l)
		}
	}
}

// An account to which the provider gives no role any more loses what it has here. One about which it sends nonsense does not, and
// neither does one that somebody else names.
func TestUngrantedAtLogIn(t *testing.T) {
	t.Parallel()
	d := open(t, options{})
	for _, tt := range []struct {
		name  string
		wrong Wrong
		loses bool
	}{
		{"no groups left", claim("groups", []string{}), true},
		{"other groups", claim("groups", []string{"none that counts"}), true},
		{"groups missing", noGroups(func(i map[string]any) { delete(i, "groups") }), false},
		{"groups elsewhere", Wrong{Claims: elsewhere}, false},
		{"no groups left, and another nonce", Wrong{Claims: func(c map[string]any) { c["groups"], c["nonce"] = []string{}, "x" }}, false},
		{"no groups left, signed by a stranger", Wrong{Claims: claim("groups", []string{}).Claims, Sign: stranger}, false},
	} {
		d.ungranted = nil
		d.idp.Set(tt.wrong)
		if r := d.browser().logIn("0001"); r.StatusCode == http.StatusSeeOther {
			t.Errorf("%s: logged in", tt.name)
		}
		if lost := slices.Equal(d.ungranted, []string{"0001"}); lost != tt.loses || !lost && len(d.ungranted) > 0 {
			t.Errorf("%s: %q lose what they have", tt.name, d.ungranted)
		}
	}
}

// Groups come as a list or as a string, in the ID token or from userinfo, and under other names.
func TestGroups(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		wrong  Wrong
		config func(*oidc.Config)
		groups string
	}{
		"a string":      {claim("groups", "loan-desk"), nil, "loan-desk"},
		"200":           {claim("groups", many(200)), nil, ""},
		"twice":         {claim("groups", []string{"loan-desk", "b", "loan-desk"}), nil, "b,loan-desk"},
		"from userinfo": {noGroups(func(i map[string]any) { i["groups"] = []string{"loan-desk", "x"} }), nil, "loan-desk,x"},
		"everything from userinfo": {Wrong{Claims: func(c map[string]any) {
			delete(c, "groups")
			delete(c, "preferred_username")
			delete(c, "at_hash")
			delete(c, "sid")
		}},
			nil, "loan-desk"},
		"others elsewhere": {Wrong{Claims: func(c map[string]any) {
			groups := c["groups"]
			elsewhere(c)
			c["_claim_names"], c["groups"] = map[string]string{"other": "src1"}, groups
		}}, nil, "loan-desk"},
		"nested": {Wrong{Claims: func(c map[string]any) {
			c["realm_access"] = map[string]any{"roles": c["groups"]}
			delete(c, "groups")
		}}, func(c *oidc.Config) { c.GroupsClaim = path(t, "realm_access.roles") }, "loan-desk"},
		"app roles, and too many groups": {Wrong{Claims: func(c map[string]any) {
			c["roles"] = c["groups"]
			elsewhere(c)
			c["hasgroups"] = true
		}}, func(c *oidc.Config) { c.GroupsClaim = path(t, "roles") }, "loan-desk"},
		"a prefix":                     {claim("groups", []string{"loan-desk", "gw-b", "gw-", "a,b", "x", "gw-a"}), func(c *oidc.Config) { c.Rules.TaskGroups = "gw-" }, "a,b"},
		"1,000, of which few are kept": {claim("groups", append(many(1000), "gw-b")), func(c *oidc.Config) { c.Rules.TaskGroups = "gw-" }, "b"},
		"a nested name":                {Wrong{Claims: func(c map[string]any) { c["https://bank.example/name"] = "O." }}, func(c *oidc.Config) { c.NameClaim = path(t, "https://bank.example/name") }, "loan-desk"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := open(t, options{config: tt.config})
			d.idp.Set(tt.wrong)
			if r := d.browser().logIn("0001"); r.StatusCode != http.StatusSeeOther {
				t.Fatalf("%d: %s", r.StatusCode, d.log)
			}
			if got := strings.Join(d.last().Groups, ","); tt.groups != "" && got != tt.groups {
				t.Errorf("the groups are %s", got)
			}
			if l := d.last(); l.Role != "worker" || l.Name == "" {
				t.Errorf("%+v", l)
			}
			if asked := d.idp.Calls("/userinfo"); (asked > 0) != strings.Contains(name, "userinfo") {
				t.Errorf("userinfo was asked %d times", asked)
			}
		})
	}
}

// Five log-ins in five tabs end in any order. With a sixth, the oldest can't be finished any more.
func TestTabs(t *testing.T) {
	t.Parallel()
	d := open(t, options{})
	b := d.browser()
	var away []string
	for range 6 {
		away = append(away, b.leave("?return_to=/floor"))
		d.clock.forward(time.Second)
		if len(b.cookies) > 5 {
			t.Fatalf("there are %d cookies", len(b.cookies))
		}
	}
	for _, i := range []int{3, 5, 1, 4, 2} {
		if r := b.get(b.back(away[i], "0001")); r.StatusCode != http.StatusSeeOther || r.Header.Get("Location") != "/floor" {
			t.Errorf("the log-in %d is answered with %d", i, r.StatusCode)
		}
	}
	if r := b.get(b.back(away[0], "0001")); r.StatusCode != 400 || !strings.Contains(d.log.String(), "reason=no-cookie") {
		t.Errorf("the oldest log-in is answered with %d", r.StatusCode)
	}
	if len(b.cookies) != 1 {
		t.Errorf("what is left: %v", b.cookies)
	}
	long := "?return_to=/" + strings.Repeat("a", 2000)
	for range 5 {
		b.leave(long)
	}
	size := 0
	for name, value := range b.cookies {
		size += len(name) + len(value) + 3
	}
	if size > 6<<10 {
		t.Errorf("the cookies have %d bytes, which proxies refuse", size)
	}
	b.cookies["__Host-getwork-in-AAAAAAAA"] = "somebody else's"
	b.leave("")
	if b.cookies["__Host-getwork-in-AAAAAAAA"] != "" {
		t.Error("a cookie that can't be opened stays")
	}
}

// A log-in ends in the browser in which it began, once, in time, and with the code that was given for it.
func TestOtherBrowsers(t *testing.T) {
	t.Parallel()
	d := open(t, options{})
	victim, attacker := d.browser(), d.browser()
	theirs := attacker.back(attacker.leave(""), "0002")
	d.log.Take()
	victim.refused(victim.get(theirs), 0, "no-cookie", hidden(theirs)...)

	// The attacker's code with the victim's state: PKCE.
	own := victim.back(victim.leave(""), "0001")
	code := theirs[strings.Index(theirs, "code=")+5:]
	code, _, _ = strings.Cut(code, "&")
	mixed := strings.Replace(own, own[strings.Index(own, "code=")+5:][:32], code, 1)
	victim.refused(victim.get(mixed), 0, "code-refused", hidden(mixed)...)
	victim.refused(victim.get(own), 0, "no-cookie") // that try used it up

	// The sealed cookie of one state under the name of another.
	first, second := victim.back(victim.leave(""), "0001"), victim.leave("")
	names := slices.Sorted(maps.Keys(victim.cookies))
	at := slices.IndexFunc(names, func(n string) bool { return strings.Contains(first, "state="+n[len("__Host-getwork-in-"):]) })
	victim.cookies[names[at]] = victim.cookies[names[1-at]]
	victim.refused(victim.get(first), 0, "state", hidden(first)...)
	_ = second

	// The same call-back again, with the cookie restored: by a second node, say.
	late := victim.leave("")
	kept := maps.Clone(victim.cookies)
	callback := victim.back(late, "0001")
	d.log.Take()
	if r := victim.get(callback); r.StatusCode != http.StatusSeeOther {
		t.Fatal(r.StatusCode)
	}
	d.log.Take()
	victim.cookies = kept
	victim.refused(victim.get(callback), 1, "state-used", hidden(callback)...)

	// Changed, too old, too new.
	for reason, change := range map[string]func(){
		"too-late": func() { d.clock.forward(10*time.Minute + time.Second) },
		"cookie-sealed": func() {
			for n, v := range victim.cookies {
				victim.cookies[n] = swapped(v)
			}
		},
		"state-form": nil,
	} {
		victim.cookies = map[string]string{}
		callback := victim.back(victim.leave(""), "0001")
		if change == nil {
			callback = strings.Replace(callback, "state=", "state=%00", 1)
		} else {
			change()
		}
		d.log.Take()
		victim.refused(victim.get(callback), 1, reason, hidden(callback)...)
	}
	victim.cookies = map[string]string{}
	d.clock.forward(time.Hour)
	callback = victim.back(victim.leave(""), "0001")
	d.clock.forward(-10 * time.Minute)
	d.log.Take()
	victim.refused(victim.get(callback), 1, "too-late")
}

// While the client's secret is changed, both open a log-in's cookie; afterwards the old one opens nothing.
func TestSecretRotates(t *testing.T) {
	t.Parallel()
	const next = "the next secret of the client"
	d := open(t, options{})
	request := func(b *tab, address string) *http.Request {
		r, err := http.NewRequest("GET", address, nil)
		if err != nil {
			t.Fatal(err)
		}
		for name, value := range b.cookies {
			r.AddCookie(&http.Cookie{Name: name, Value: value})
		}
		return r
	}
	for _, tt := range []struct {
		secrets []string
		ok      bool
	}{{[]string{secret, next}, true}, {[]string{next, secret}, true}, {[]string{next}, false}} {
		b := d.browser()
		callback := b.back(b.leave(""), "0001")
		d.register(tt.secrets[0])
		node := d.open(func(c *oidc.Config) { c.Secrets = tt.secrets })
		a, err := node.Callback(request(b, callback))
		if (err == nil) != tt.ok || (a.Login != nil) != tt.ok {
			t.Errorf("%q: %v", tt.secrets, err)
		}
		sealed, err := d.provider.Seal(id(""), "refresh")
		if err != nil {
			t.Fatal(err)
		}
		_, err = node.Refresh(t.Context(), sealed, id(""), "0001")
		if opened := !strings.Contains(err.Error(), "refresh-sealed"); opened != tt.ok {
			t.Errorf("%q: %v", tt.secrets, err)
		}
		d.register(secret)
	}
	// Another installation with the same secret.
	b := d.browser()
	callback := b.back(b.leave(""), "0001")
	other := d.open(func(c *oidc.Config) { c.PublicURL = "https://production.example" })
	r := request(b, callback)
	if _, err := other.Callback(r); err == nil || !strings.Contains(err.Error(), "cookie-sealed") {
		t.Errorf("another installation: %v", err)
	}
}

// again=1 has the provider ask anew, and what it says about that is checked.
func TestAgain(t *testing.T) {
	t.Parallel()
	d := open(t, options{})
	for name, tt := range map[string]struct {
		proved time.Duration // before now; 0: auth_time is left out
		reason string
	}{"just now": {time.Second, ""}, "left out": {0, ""}, "an hour ago": {time.Hour, "auth-time"}, "a minute ago": {time.Minute, "auth-time"}} {
		b := d.browser()
		away := b.leave("?again=1")
		if !strings.Contains(away, "max_age=0") || !strings.Contains(away, "prompt=login") {
			t.Fatal(away)
		}
		d.idp.Set(Wrong{Claims: func(c map[string]any) {
			if delete(c, "auth_time"); tt.proved > 0 {
				c["auth_time"] = time.Now().Add(-tt.proved).Unix()
			}
		}})
		r := b.get(b.back(away, "0003"))
		if (r.StatusCode == http.StatusSeeOther) != (tt.reason == "") || !strings.Contains(d.log.Take(), tt.reason) {
			t.Errorf("%s: %d", name, r.StatusCode)
		}
		if tt.proved == 0 && !d.last().AuthTime.IsZero() {
			t.Error("there is an auth_time that nobody sent")
		}
		if r := b.logIn("0003"); r.StatusCode != http.StatusSeeOther {
			t.Errorf("%s, without again: %d", name, r.StatusCode)
		}
		d.log.Take()
	}
}

// Sessions has the last word.
func TestSessionsRefuse(t *testing.T) {
	t.Parallel()
	d := open(t, options{})
	d.sessions.fails = assign.Refuse(assign.Forbidden, "you are blocked here")
	b := d.browser()
	r := b.logIn("0001")
	if r.StatusCode != 403 || !strings.Contains(r.text, "you are blocked here") || !strings.Contains(d.log.String(), "reason=forbidden") || len(b.cookies) != 0 {
		t.Errorf("%d %s\n%s", r.StatusCode, r.text, d.log)
	}
	if r := b.get(b.back(b.leave("?return_to=/floor"), "0001")); !strings.Contains(r.text, `href="/auth/login?return_to=%2Ffloor"`) {
		t.Errorf("no link to try again: %s", r.text)
	}
	if r := b.get(b.back(b.leave(""), "0001"), "Accept", "*/*"); r.Header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("%v", r.Header)
	}
}

// Only the host that cookies are for, and only the methods that there are.
func TestAddresses(t *testing.T) {
	t.Parallel()
	d := open(t, options{})
	b := d.browser()
	for _, path := range []string{"/auth/login", "/auth/callback?code=a&state=b"} {
		if r := b.get(path, "Host", "evil.example"); r.StatusCode != 421 || r.Header.Get("Location") != "" {
			t.Errorf("%s at another host: %d", path, r.StatusCode)
		}
	}
	for _, call := range []string{"POST /auth/callback", "HEAD /auth/callback", "POST /auth/login", "GET /auth/logout", "GET /auth/backchannel"} {
		method, path, _ := strings.Cut(call, " ")
		if r := b.call(method, path, ""); r.StatusCode != 405 {
			t.Errorf("%s: %d", call, r.StatusCode)
		}
	}
	if d.count() != 0 {
		t.Error("Sessions was called")
	}
}
