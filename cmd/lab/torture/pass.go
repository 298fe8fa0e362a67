package torture

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/cmd/lab/torture/history"
)

// The kinds of what people show.
const (
	session  = "session"  // a browser's log-in
	personal = "personal" // a token that a person made in a browser
	service  = "service"  // a token that an administrator made for a program
)

// badge is a credential.
type badge struct {
	name          string // as history.CredentialRow has it
	header, value string
}

// pass is what a holder shows to the nodes: one credential at a time. When they read that it is no good they get another.
type pass struct {
	stage  *stage
	user   string
	holder string
	subs   []string // the accounts of the provider that may have the name, the one that has it first
	kind   string
	from   string // the address that the nodes' proxy names
	brief  bool   // its tokens live for a minute

	mu     sync.Mutex
	now    badge
	former badge     // the one before, which has ended
	later  time.Time // no other is asked for before that

	refused error // why there is none
}

func newPass(s *stage, i int) *pass {
	p := &pass{stage: s, user: fmt.Sprintf("user-%03d", i), kind: session, from: fmt.Sprintf("10.0.%d.%d", i/250, i%250+1)}
	if i%3 == 0 {
		p.kind, p.brief = personal, i%2 == 0
	}
	p.holder, p.subs = p.user, accounts(p.user)
	if k := i - s.o.Users; k >= 0 {
		p.user, p.kind = fmt.Sprintf("agent-%02d", k/4), service
		p.holder = fmt.Sprintf("%s/i%d", p.user, k%4)
	}
	return p
}

// mostRebinds is how often a name is given to another account.
const mostRebinds = 20

// accounts returns the accounts that a user may have at the provider, one after another.
func accounts(user string) (all []string) {
	all = []string{user}
	for n := range mostRebinds {
		all = append(all, fmt.Sprintf("%s at their %d. employer", user, n+2))
	}
	return all
}

func holderKey(who history.Who) string {
	if who.Instance == "" {
		return who.User
	}
	return who.User + "/" + who.Instance
}

// renews is the least time between two tries to get a credential.
const renews = 300 * time.Millisecond

// show returns the credential, and gets one if there is none. Without one, callers show nothing.
func (p *pass) show(ctx context.Context) badge {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.now.name == "" && !time.Now().Before(p.later) {
		got, err := p.get(ctx, badge{})
		if p.now = got; err != nil {
			p.later = time.Now().Add(renews)
		}
		p.tried(ctx, err)
	}
	return p.now
}

// tried adds a finding if nobody gets in any more. A try that the run has ended says nothing.
func (p *pass) tried(ctx context.Context, err error) {
	if err != nil && ctx.Err() != nil {
		return
	}
	p.refused = err
	if out := p.stage.logIns.trouble.tried(err != nil, time.Now()); out > 0 {
		p.stage.findings.add("log-ins", "nobody has got in for %v, although nothing is broken; %s: %v", out.Round(time.Second), p.holder, err)
	}
}

// account returns the account that has the name.
func (p *pass) account() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.subs[0]
}

// spoilt says that a credential was refused as no good.
func (p *pass) spoilt(s badge) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.name != "" && s.name == p.now.name {
		p.former, p.now = s, badge{}
	}
}

// again logs in in the same browser, which replaces the session.
func (p *pass) again(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	got, err := p.get(ctx, p.now)
	if err == nil {
		p.former, p.now = p.now, got
	}
	return err
}

// ended returns the last credential that ended; empty: none has.
func (p *pass) ended() badge {
	if p == nil {
		return badge{}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.former
}

func (p *pass) get(ctx context.Context, former badge) (badge, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	switch p.kind {
	case personal:
		browser, err := p.logIn(ctx, badge{})
		if err != nil {
			return badge{}, err
		}
		body := map[string]any{"label": "torture", "scopes": []string{"read", "work"}}
		if p.brief {
			body["expires_in"] = "1m" // the shortest life
		}
		return p.token(ctx, browser, body)
	case service:
		boss := p.stage.logIns.passes["boss"]
		with := boss.show(ctx)
		got, err := p.token(ctx, with, map[string]any{"label": p.holder, "scopes": []string{"read", "work"},
			"service": map[string]any{"user": p.user, "role": "agent", "groups": []string{deskGroup}}})
		if errors.Is(err, errStepUp) {
			boss.spoilt(with)
		}
		return got, err
	}
	return p.logIn(ctx, former)
}

// logIn does what a browser does. The call-back comes to another node than the log-in.
func (p *pass) logIn(ctx context.Context, former badge) (badge, error) {
	header := http.Header{}
	begun, _, err := p.call(ctx, http.MethodGet, "/auth/login", header, nil)
	if err != nil {
		return badge{}, err
	}
	if begun.StatusCode != http.StatusSeeOther {
		return badge{}, fmt.Errorf("log-in: %s", begun.Status)
	}
	back, err := p.stage.logIns.idp.Authorize(begun.Header.Get("Location"), p.subs[0])
	if err != nil {
		return badge{}, err
	}
	cookies := []string{}
	for _, c := range begun.Cookies() {
		cookies = append(cookies, c.Name+"="+c.Value)
	}
	if former.name != "" {
		cookies = append(cookies, former.value)
	}
	header.Set("Cookie", strings.Join(cookies, "; "))
	done, _, err := p.call(ctx, http.MethodGet, strings.TrimPrefix(back, p.stage.logIns.public), header, nil)
	if err != nil {
		return badge{}, err
	}
	for _, c := range done.Cookies() {
		if !strings.Contains(c.Name, "-in-") && c.MaxAge > 0 {
			sum := sha256.Sum256([]byte(c.Value))
			return badge{name: "s:" + hex.EncodeToString(sum[:]), header: "Cookie", value: c.Name + "=" + c.Value}, nil
		}
	}
	return badge{}, fmt.Errorf("call-back: %s", done.Status)
}

// errStepUp says that a token is made only by somebody who has just logged in.
var errStepUp = errors.New("log in again")

// token makes a token with a session.
func (p *pass) token(ctx context.Context, with badge, body map[string]any) (badge, error) {
	header := http.Header{}
	if with.header != "" {
		header.Set(with.header, with.value)
	}
	made, text, err := p.call(ctx, http.MethodPost, "/api/v1/tokens", header, body)
	if err != nil {
		return badge{}, err
	}
	var token struct{ ID, Token string }
	switch {
	case made.StatusCode == http.StatusUnauthorized:
		return badge{}, errStepUp
	case made.StatusCode == http.StatusTooManyRequests:
		if err := p.stage.anHourOfTokens(ctx); err != nil {
			return badge{}, err
		}
		return p.token(ctx, with, body)
	case made.StatusCode != http.StatusCreated || json.Unmarshal(text, &token) != nil:
		return badge{}, fmt.Errorf("make a token: %s %s", made.Status, text)
	}
	return badge{name: "t:" + token.ID, header: "Authorization", value: "Bearer " + token.Token}, nil
}

// anHourOfTokens lets the users make more tokens than within an hour. When they made the present ones is left, since it is judged.
func (s *stage) anHourOfTokens(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, s.url)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, `
do $$
begin
  insert into getwork.principal (name, name_key, iss, sub, kind) values ('maker of all', 'maker of all', 'torture', 'maker', 'service') on conflict do nothing;
  update getwork.token set made_by = (select id from getwork.principal where iss = 'torture');
end $$`)
	return err
}

// call makes a call that is not judged, at some node that serves.
func (p *pass) call(ctx context.Context, method, path string, header http.Header, body any) (*http.Response, []byte, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return nil, nil, err
	}
	r, err := http.NewRequestWithContext(ctx, method, p.stage.any().node.URL+path, bytes.NewReader(text))
	if err != nil {
		return nil, nil, err
	}
	r.Header = header.Clone()
	r.Header.Set("X-Forwarded-For", p.from)
	response, err := p.stage.to().RoundTrip(r)
	if err != nil {
		return nil, nil, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	return response, answer, err
}

// put writes the credential into the header of a call.
func (p *pass) put(h http.Header, s badge) {
	h.Set("X-Forwarded-For", p.from)
	if s.header != "" {
		h.Set(s.header, s.value)
	}
}
