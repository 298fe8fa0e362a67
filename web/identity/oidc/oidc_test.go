package oidc

import (
	"encoding/json"
	"net/url"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// Where a browser may go after a log-in, and what is not followed.
var returnTos = map[string]string{
	"/":                              "/",
	"/floor":                         "/floor",
	"/tasks/verify?a=b#c":            "/tasks/verify?a=b#c",
	"/items/a%2Fb":                   "/items/a%2Fb",
	"/auth/cli?challenge=x&port=1":   "/auth/cli?challenge=x&port=1",
	"/authors":                       "/authors",
	"/a//b":                          "/a//b",
	"/zoë":                           "/zoë",
	"/?u=https://evil.example":       "/?u=https://evil.example",
	"":                               "/",
	"floor":                          "/",
	"//evil.example":                 "/",
	"///evil.example":                "/",
	`/\evil.example`:                 "/",
	`\\evil.example`:                 "/",
	`\/evil.example`:                 "/",
	"/\t/evil.example":               "/",
	"/\n/evil.example":               "/",
	"\t//evil.example":               "/",
	"/\x00/evil.example":             "/",
	"/\x7f":                          "/",
	"/\u0085/evil.example":           "/",
	" //evil.example":                "/",
	"https://evil.example":           "/",
	"https:evil.example":             "/",
	"javascript:alert(1)":            "/",
	"data:text/html,x":               "/",
	"/%zz":                           "/",
	"/\xff":                          "/",
	"/auth/login":                    "/",
	"/auth/login?return_to=/floor":   "/",
	"/auth/callback?code=a&state=b":  "/",
	"/auth/./login":                  "/",
	"/x/../auth/login":               "/",
	`/x\..\auth/login`:               "/",
	"/auth/%6cogin":                  "/",
	"/" + strings.Repeat("a", 2047):  "/" + strings.Repeat("a", 2047),
	"/" + strings.Repeat("a", 2048):  "/",
	"/é" + strings.Repeat("a", 2045): "/é" + strings.Repeat("a", 2045),
	"/é" + strings.Repeat("a", 2046): "/",
}

func TestReturnTo(t *testing.T) {
	t.Parallel()
	for sent, want := range returnTos {
		if got := returnTo(sent); got != want {
			t.Errorf("%q leads to %q", sent, got)
		}
	}
}

// browserGoes is where a browser goes from https://work.example by a Location, as the URL standard reads it: tabs and line
// breaks are dropped, and a backslash is a slash.
func browserGoes(location string) (host string) {
	s := strings.Map(func(r rune) rune {
		switch r {
		case '\t', '\n', '\r':
			return -1
		case '\\':
			return '/'
		}
		return r
	}, strings.TrimFunc(location, func(r rune) bool { return r <= ' ' }))
	if strings.HasPrefix(s, "//") {
		rest := strings.TrimLeft(s, "/")
		return rest[:strings.IndexFunc(rest+"/", func(r rune) bool { return strings.ContainsRune("/?#", r) })]
	}
	if strings.HasPrefix(s, "/") {
		return "work.example"
	}
	return "elsewhere"
}

func FuzzReturnTo(f *testing.F) {
	for s := range returnTos {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := returnTo(s)
		if got != s && got != "/" {
			t.Fatalf("%q becomes %q", s, got)
		}
		location := ascii(got)
		if host := browserGoes(location); host != "work.example" {
			t.Fatalf("%q leads to %q", s, host)
		}
		if strings.ContainsFunc(location, func(r rune) bool { return r <= ' ' || r > '~' }) {
			t.Fatalf("%q is no header", location)
		}
		u, err := url.Parse("https://work.example/auth/callback")
		if err != nil {
			t.Fatal(err)
		}
		if u, err = u.Parse(location); err != nil || u.Host != "work.example" || u.Scheme != "https" {
			t.Fatalf("%q leads to %v, %v", s, u, err)
		}
		if returnTo(got) != got {
			t.Fatalf("%q is refused the second time", got)
		}
	})
}

func TestPath(t *testing.T) {
	t.Parallel()
	const doc = `{"groups":["a"],"realm_access":{"roles":["b"],"x.y":{"z":"c"},"null":null},"https://bank.example/groups":"d","a.b":"whole","a":{"b":"nested"},"back\\slash":"e","":"f"}`
	c, err := parseClaims([]byte(doc))
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"groups": `["a"]`, "realm_access.roles": `["b"]`, `realm_access.x\.y.z`: `"c"`, "https://bank.example/groups": `"d"`, `https://bank\.example/groups`: `"d"`,
		"a.b": `"whole"`, `back\\slash`: `"e"`, "Groups": "", "realm_access": `{"roles":["b"],"x.y":{"z":"c"},"null":null}`, "realm_access.null": "", "groups.a": "", "realm_access.roles.b": "", "x.y": "",
	} {
		p, err := ParsePath(path)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		if got, found := p.in(c); found != (want != "") || found && string(got) != want {
			t.Errorf("%s leads to %s, %v", path, got, found)
		}
	}
	for _, path := range []string{"", ".", "a.", ".a", "a..b", `a\b`, `a\`, strings.Repeat("a", 257), "a.b.c.d.e.f.g.h.i"} {
		if _, err := ParsePath(path); err == nil {
			t.Errorf("%q is accepted", path)
		}
	}
}

// A path never fails whatever the claims are, and leads to what is there.
func FuzzPath(f *testing.F) {
	f.Add("realm_access.roles", `{"realm_access":{"roles":["b"]}}`)
	f.Add(`a\.b.c`, `{"a.b":{"c":1}}`)
	f.Add("groups", `{"groups":null,"_claim_names":{"groups":"s"}}`)
	f.Add("groups", `[]`)
	f.Add("a.b", `{"a":[{"b":1}],"hasgroups":true,"_claim_names":[]}`)
	f.Fuzz(func(t *testing.T, path, doc string) {
		p, err := ParsePath(path)
		if err != nil {
			return
		}
		if back := strings.Join(mapped(p.steps, func(s string) string { return strings.ReplaceAll(strings.ReplaceAll(s, `\`, `\\`), ".", `\.`) }), "."); back != path {
			if again, err := ParsePath(back); err != nil || !slices.Equal(again.steps, p.steps) {
				t.Fatalf("%q is written %q: %v", path, back, err)
			}
		}
		c, err := parseClaims([]byte(doc))
		if err != nil {
			return
		}
		p.elsewhere(c)
		raw, found := p.in(c)
		if found {
			if !json.Valid(raw) {
				t.Fatalf("%q in %s leads to %s", path, doc, raw)
			}
			_, _ = list(raw)
			_, _ = text(raw)
		}
		nested, err := json.Marshal(map[string]json.RawMessage{})
		if err != nil || p.elsewhere(claims{"_claim_names": nested}) {
			t.Fatal("nothing is elsewhere")
		}
	})
}

func mapped(all []string, f func(string) string) (out []string) {
	for _, s := range all {
		out = append(out, f(s))
	}
	return out
}

func TestSeal(t *testing.T) {
	t.Parallel()
	old, next := "an old secret, long enough", "a new secret, long enough"
	s := sealer{[]string{old}}
	sealed, err := s.seal(sealsRefresh, "id", "text")
	if err != nil {
		t.Fatal(err)
	}
	again, err := s.seal(sealsRefresh, "id", "text")
	if err != nil || slices.Equal(sealed, again) || strings.Contains(string(sealed), "text") {
		t.Error("two seals of one text are the same")
	}
	open := func(s sealer, purpose, id string, sealed []byte) string {
		text, err := s.open(purpose, id, sealed)
		if err != nil {
			return ""
		}
		return text
	}
	if open(sealer{[]string{next, old}}, sealsRefresh, "id", sealed) != "text" {
		t.Error("the old secret does not open")
	}
	changed := slices.Clone(sealed)
	changed[len(changed)-1] ^= 1
	if open(sealer{[]string{next}}, sealsRefresh, "id", sealed) != "" || open(s, sealsHint, "id", sealed) != "" || open(s, sealsRefresh, "ID", sealed) != "" || open(s, sealsRefresh, "id", changed) != "" || open(s, sealsRefresh, "id", nil) != "" {
		t.Error("it opens what it must not")
	}
	for file, want := range map[string]int{
		old: 1, old + "\n": 1, old + "\r\n": 1, next + "\n" + old + "\n": 2, next + "\r\n" + old: 2, "": 0, "\n": 0, "short\n": 0, old + "\n\n" + next: 0, "\n" + old: 0, old + "\n" + next + "\n" + old: 0,
	} {
		lines, err := ParseSecrets([]byte(file))
		if len(lines) != want || (err == nil) != (want > 0) {
			t.Errorf("%q: %q, %v", file, lines, err)
		}
		if err != nil && (strings.Contains(err.Error(), "short") || strings.Contains(err.Error(), old)) {
			t.Errorf("a secret is told: %v", err)
		}
	}
}

// What is read by exact names, and in exact forms.
func TestClaims(t *testing.T) {
	t.Parallel()
	c, err := parseClaims([]byte(`{"SUB":"a","iat":1e9,"exp":1700000000.5,"far":1e12,"neg":-1,"text":"1","t":"x","n":null,"l":["a","b"],"e":[],"m":["a",null],"o":{}}`))
	if err != nil {
		t.Fatal(err)
	}
	if c.has("sub") || c.is("t", "X") || !c.is("t", "x") || c.is("n", "") || c.is("nothing", "") {
		t.Error("a name or a value was taken for another")
	}
	for name, want := range map[string]int64{"iat": 1e9, "exp": 1700000000, "far": -1, "neg": -1, "text": -1, "n": -1, "l": -1} {
		if at, err := c.moment(name); err == nil && at.Unix() != want || err != nil && want != -1 {
			t.Errorf("%s is %v, %v", name, at, err)
		}
	}
	for name, want := range map[string]string{"t": "x", "l": "a,b", "e": ""} {
		if l, err := c.list(name); err != nil || l == nil || strings.Join(l, ",") != want {
			t.Errorf("%s is %q, %v", name, l, err)
		}
	}
	for _, name := range []string{"n", "m", "o", "iat"} {
		if l, err := c.list(name); err == nil {
			t.Errorf("%s is %q", name, l)
		}
	}
	for _, doc := range []string{"", "null", "[]", `"a"`, "1", `{"a":1}{}`, "{", "{\"a\":\"\xff\"}"} {
		if _, err := parseClaims([]byte(doc)); err == nil {
			t.Errorf("%s is taken for claims", doc)
		}
	}
	if got := cut("a\x00\u0085é"+strings.Repeat("b", 300), 200); len([]rune(got)) != 200 || strings.ContainsFunc(got, unicode.IsControl) {
		t.Errorf("%q", got)
	}
}
