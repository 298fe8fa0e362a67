package story

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"getwork/cmd/internal/cluster"
	"getwork/cmd/internal/e2e"
	"getwork/cmd/internal/idp"
	"getwork/cmd/lab/liar"
)

// secrets are everything that lets somebody in, by what it is.
type secrets struct {
	mu  sync.Mutex
	all map[string]string
}

func (s *secrets) add(what, value string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all[what] = value
	return value
}

// forms returns a secret in the forms in which a log, a table or a process could have it.
func forms(secret string) []string {
	all := []string{secret, hex.EncodeToString([]byte(secret)), base64.StdEncoding.EncodeToString([]byte(secret)), url.QueryEscape(secret)}
	if raw, err := base64.RawURLEncoding.DecodeString(secret); err == nil {
		all = append(all, hex.EncodeToString(raw))
	}
	return all
}

// in returns the secrets that a text has.
func (s *secrets) in(text string) (found []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, what := range slices.Sorted(maps.Keys(s.all)) {
		if slices.ContainsFunc(forms(s.all[what]), func(form string) bool { return strings.Contains(text, form) }) {
			found = append(found, what)
		}
	}
	return found
}

// watch records what passes between a node and its provider.
func (s *secrets) watch(p *liar.Provider) {
	first := func(what, value string) {
		if value != "" {
			s.mu.Lock()
			defer s.mu.Unlock()
			for n := 1; ; n++ {
				name := what + " " + string(rune('0'+n))
				if had, known := s.all[name]; !known || had == value || n == 9 {
					s.all[name] = value
					return
				}
			}
		}
	}
	p.Set(liar.Wrong{
		Before: func(_ http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodPost && r.URL.Path == "/token" {
				_ = r.ParseForm()
				first("PKCE verifier", r.PostForm.Get("code_verifier"))
				first("code", r.PostForm.Get("code"))
			}
			return false
		},
		Token: func(answer map[string]any) {
			for _, name := range []string{"access_token", "refresh_token", "id_token"} {
				text, _ := answer[name].(string)
				first("provider's "+name, text)
			}
		},
	})
}

// person is somebody with a browser, at a node with log-in.
type person struct {
	t       *testing.T
	at      *logIns
	cookies map[string]string
}

// call makes a call with the browser's cookies. A credential in a header comes before them.
func (p *person) call(method, path, body string, header ...string) (*http.Response, string) {
	p.t.Helper()
	if !strings.HasPrefix(path, "http") {
		path = p.at.URL + path
	}
	r, err := http.NewRequestWithContext(p.t.Context(), method, path, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	for name, value := range p.cookies {
		r.AddCookie(&http.Cookie{Name: name, Value: value})
	}
	still := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	response, err := still.Do(r)
	if err != nil {
		p.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	for _, c := range response.Cookies() {
		if p.cookies[c.Name] = c.Value; c.MaxAge < 0 {
			delete(p.cookies, c.Name)
		}
	}
	return response, string(text)
}

// want makes a call, expects its status, and returns a field of the answer.
func (p *person) want(status int, field, method, path, body string, header ...string) string {
	p.t.Helper()
	response, text := p.call(method, path, body, header...)
	if response.StatusCode != status {
		p.t.Fatalf("%s %s: %d %s, want %d", method, path, response.StatusCode, text, status)
	}
	var answer map[string]any
	_ = json.Unmarshal([]byte(text), &answer)
	value, _ := answer[field].(string)
	return value
}

// comesIn logs somebody in, and returns the address with the code.
func (l *logIns) comesIn(t *testing.T, s *secrets, name, sub string) (p *person, back string) {
	t.Helper()
	p = &person{t, l, map[string]string{}}
	var begun *http.Response
	e2e.Await(t, "the provider is known", e2e.Soon, func() bool {
		begun, _ = p.call("GET", "/auth/login", "")
		return begun.StatusCode == http.StatusSeeOther
	})
	for _, value := range p.cookies {
		s.add(name+"'s cookie on the way", value)
	}
	back, err := l.idp.Authorize(begun.Header.Get("Location"), sub)
	if err != nil {
		t.Fatal(err)
	}
	p.want(http.StatusSeeOther, "", "GET", back, "")
	for _, value := range p.cookies {
		s.add(name+"'s cookie", value)
	}
	return p, back
}

// dump returns the rows of all tables, as COPY writes them.
func dump(t *testing.T, database string) string {
	t.Helper()
	db, err := pgx.Connect(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close(context.WithoutCancel(t.Context()))
	rows, _ := db.Query(t.Context(), `select oid::regclass::text from pg_class where relnamespace = 'getwork'::regnamespace and relkind = 'r'`)
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(tables) < 10 {
		t.Fatalf("%d tables, %v", len(tables), err)
	}
	var text bytes.Buffer
	for _, table := range tables {
		if _, err := db.PgConn().CopyTo(t.Context(), &text, "copy "+table+" to stdout"); err != nil {
			t.Fatal(err)
		}
	}
	return text.String()
}

// Nothing that lets somebody in is in a node's log, in its tables, or in the environment of a program that an agent runs.
func TestSecretsStaySecret(t *testing.T) {
	t.Parallel()
	s := &secrets{all: map[string]string{"client secret": clientSecret}}
	l := newLogIns(t, "--log-level", "debug")
	s.watch(l.idp)
	ada, _ := l.comesIn(t, s, "Ada", "0004")
	oliver, back := l.comesIn(t, s, "Oliver", "0001")
	mia, _ := l.comesIn(t, s, "Mia", "0003")
	db, err := pgx.Connect(t.Context(), l.database)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close(context.WithoutCancel(t.Context()))
	if _, err := db.Exec(t.Context(), "update getwork.session set refreshed_at = refreshed_at - interval '11 minutes'"); err != nil {
		t.Fatal(err)
	}
	asked := l.idp.Calls("/token")
	me := func(status int, header ...string) { oliver.want(status, "", "GET", "/api/v1/me", "", header...) }
	me(200) // so its refresh is due

	// Tokens of each kind, each used.
	const read = `"scopes":["read"]`
	personal := s.add("personal token", oliver.want(201, "token", "POST", "/api/v1/tokens", `{"label":"mine",`+read+`}`))
	service := s.add("service's token", ada.want(201, "token", "POST", "/api/v1/tokens",
		`{"label":"resizer","scopes":["read","work","push"],"service":{"user":"resizer","role":"agent"}}`))
	verifier := s.add("terminal's verifier", strings.Repeat("v", 20)+"0123456789-0123456789_A")
	sum := sha256.Sum256([]byte(verifier))
	code := s.add("terminal's code", oliver.want(200, "code", "POST", "/auth/cli/approve",
		`{"challenge":"`+base64.RawURLEncoding.EncodeToString(sum[:])+`","port":0,"label":"oliver@laptop"}`))
	redeem := `{"code":"` + code + `","verifier":"` + verifier + `"}`
	terminal := s.add("terminal's token", oliver.want(200, "token", "POST", "/auth/cli/token", redeem))
	oliver.want(400, "", "POST", "/auth/cli/token", redeem)
	jwt := s.add("access token", l.idp.Sign("at+jwt", map[string]any{"aud": tokenAudience, "sub": "0009", "preferred_username": "Robot", "groups": []string{"loan-desk"}}))
	c := e2e.Terminal{T: t, Binary: cluster.Binary(t), Env: []string{"XDG_CONFIG_HOME=" + t.TempDir()}}
	direct := s.add("direct token", strings.TrimSpace(c.Run(0, nil, "token", "create", "--direct", "--database-url", l.database, "--label", "rescue", "--user", "rescue", "--role", "manager", "--admin")))
	for _, token := range []string{personal, service, terminal, jwt, direct} {
		me(200, "Authorization", "Bearer "+token)
	}
	// Uses that are wrong, which logs like to report.
	me(401, "Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte("mia:"+personal)))
	me(401, "Authorization", "Bearer "+s.add("mistyped token", personal[:len(personal)-1]+"!"))
	me(401, "Authorization", "Bearer "+s.add("changed access token", jwt[:len(jwt)-8]+"AAAAAAAA"))
	stranger := &person{t, l, map[string]string{"__Host-getwork-" + l.URL[strings.LastIndex(l.URL, ":")+1:]: s.add("unknown cookie", strings.Repeat("Zx3-", 10)+"abc")}}
	stranger.want(401, "", "GET", "/api/v1/me", "")
	oliver.want(400, "", "GET", "/api/v1/me?access_token="+personal, "")
	oliver.want(400, "", "GET", back, "")
	out := s.add("log-out message", l.idp.LogoutToken("getwork", "0003", nil))
	if err := idp.Send(t.Context(), l.URL+"/auth/backchannel", out); err != nil {
		t.Fatal(err)
	}
	mia.want(401, "", "GET", "/api/v1/me", "")

	// A proxy's secret, right and wrong.
	proxySecret := s.add("proxy's secret", "a-secret-of-the-proxy-in-the-tests")
	file := filepath.Join(t.TempDir(), "proxy-secret")
	if err := os.WriteFile(file, []byte(proxySecret), 0o600); err != nil {
		t.Fatal(err)
	}
	proxied := cluster.Start(t, 1, cluster.Options{DatabaseURL: l.database, Args: []string{"--auth", "proxy", "--public-url", "http://127.0.0.1:0", "--trust-query-writers",
		"--trusted-proxy", "127.0.0.1", "--proxy-secret-file", file, "--grant", "worker=desk", "--log-level", "debug"}})[0]
	for secret, status := range map[string]int{proxySecret: 200, s.add("wrong proxy's secret", proxySecret+"-wrong"): 401} {
		oliver.want(status, "", "GET", proxied.URL+"/api/v1/me", "", "X-Getwork-Proxy-Secret", secret, "X-Forwarded-User", "Tracy", "X-Forwarded-Groups", "desk")
	}

	// An agent, whose environment has more than its program should know.
	manager := []string{"Authorization", "Bearer " + direct}
	oliver.want(201, "", "POST", "/api/v1/tasks", `{"name":"resize"}`, manager...)
	oliver.want(200, "", "POST", "/api/v1/tasks/resize/items", `[{"item":"photo-1"}]`, manager...)
	environ := filepath.Join(t.TempDir(), "environ")
	agent := c
	agent.Env = append(slices.Clone(c.Env), "GETWORK_URL="+l.URL, "GETWORK_TOKEN="+service, "GETWORK_DATABASE_URL=postgres://x:"+s.add("password", "correct-horse-battery")+"@nowhere/x",
		"PGPASSWORD=correct-horse-battery", "BROKER=amqp://x:correct-horse-battery@nowhere", "SECRET_KEY="+clientSecret, "OIDC_CLIENT_SECRET="+clientSecret, "GETWORK_PROXY_SECRET="+proxySecret)
	process, printed, said := agent.Command("agent", "resize", "--once", "--", "sh", "-c", `cat /proc/$$/environ /proc/$$/cmdline > "$0"`, environ)
	if err := process.Run(); err != nil {
		t.Fatalf("agent: %v\n%s%s", err, printed, said)
	}
	of, err := os.ReadFile(environ)
	if err != nil {
		t.Fatal(err)
	}
	e2e.Await(t, "Oliver's session is refreshed", e2e.Soon, func() bool { return l.idp.Calls("/token") > asked })
	oliver.want(200, "", "POST", "/auth/logout", "")

	id := service[len("gw_"):][:12]
	for where, one := range map[string]struct{ text, there string }{
		"the log":                    {l.Output() + proxied.Output(), id},
		"the tables":                 {dump(t, l.database), id},
		"the program's environment":  {string(of), "GETWORK_ITEM=photo-1"},
		"what the agent has printed": {printed.String() + said.String(), ""},
	} {
		if !strings.Contains(one.text, one.there) {
			t.Errorf("%s: not even %q is found:\n%s", where, one.there, one.text)
		}
		if found := s.in(one.text); len(found) > 0 {
			t.Errorf("%s: %q", where, found)
		}
	}
	for what, secret := range s.all {
		for _, form := range forms(secret) { // or the test would pass whatever is written
			if !slices.Contains(s.in("planted="+form+"\n"), what) {
				t.Errorf("the %s would not be found as %s", what, form)
			}
		}
	}
	for _, what := range []string{"code 1", "code 3", "PKCE verifier 1", "provider's refresh_token 1", "provider's refresh_token 4", "provider's id_token 1", "Oliver's cookie", "Oliver's cookie on the way"} {
		if len(s.all[what]) < 16 {
			t.Errorf("the test has no %s; it has %q", what, slices.Sorted(maps.Keys(s.all)))
		}
	}
}
