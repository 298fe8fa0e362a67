package rights

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
	"getwork/assign/audit"
	"getwork/notify"
)

// calls records what the engine is asked to do with requests.
type calls struct{ regrouped, cancelled, steps []string }

func (c *calls) into(config *Config) {
	config.Regroup = func(_ context.Context, _ pgx.Tx, credentials []string, groups []string) ([]notify.Change, error) {
		c.steps = append(c.steps, fmt.Sprint("regroup ", credentials))
		c.regrouped = append(c.regrouped, fmt.Sprint(credentials, groups))
		return nil, nil
	}
	config.Cancel = func(_ context.Context, _ pgx.Tx, credentials []string) ([]notify.Change, error) {
		c.steps = append(c.steps, fmt.Sprint("cancel ", credentials))
		c.cancelled = append(c.cancelled, fmt.Sprint(credentials))
		return nil, nil
	}
	config.Rebind = func(_ context.Context, _ pgx.Tx, _ string, from []string, _ string, _ time.Time) error {
		c.steps = append(c.steps, fmt.Sprint("rebind ", from))
		return nil
	}
	config.Lock = func(_ context.Context, _ pgx.Tx, credentials []string) error {
		c.steps = append(c.steps, fmt.Sprint("lock ", credentials))
		return nil
	}
}

// by returns what a proxy says of somebody.
func by(name string, role assign.Role, groups ...string) Entry {
	return Entry{Sub: name, Name: name, Role: role, Groups: groups}
}

// proxied returns the rights of somebody, past the cache.
func (d *desk) proxied(t *testing.T, e Entry) (Rights, error) {
	t.Helper()
	d.cache.clear()
	return d.Proxied(t.Context(), e)
}

// A principal follows what the proxy says, each difference is one change of rights, and a call without one writes nothing.
func TestProxied(t *testing.T) {
	t.Parallel()
	var asked calls
	d := newDesk(t, asked.into)
	e := by("Zoë", assign.RoleWorker, "desk", "loans")
	e.From = netip.MustParseAddr("192.0.2.7")
	first, err := d.proxied(t, e)
	if err != nil || first.User != "Zoë" || first.Role != assign.RoleWorker || first.Admin || !slices.Equal(first.Groups, e.Groups) || first.Credential != ByProxy(first.Principal, 0) || !first.EndsAt.IsZero() || first.Scopes != nil {
		t.Fatalf("%+v %v", first, err)
	}
	if n := d.count(t, `select count(*) from getwork.audit where act = 'user.create' and object = 'Zoë' and by = 'proxy' and address = '192.0.2.7'`); n != 1 {
		t.Errorf("the first entry is audited %d times", n)
	}
	row := `select xmin::text::int from getwork.principal`
	before := d.count(t, row)
	for range 3 {
		if _, err := d.proxied(t, e); err != nil {
			t.Fatal(err)
		}
	}
	if d.count(t, row) != before {
		t.Error("a call that says the same has written the row")
	}
	f := d.follow(t, first, nil)
	d.look(t, f, "")
	e.Groups = []string{"desk"}
	second, err := d.Proxied(t.Context(), e) // although the former is in the cache
	if err != nil || !slices.Equal(second.Groups, e.Groups) {
		t.Fatalf("%+v %v", second, err)
	}
	d.look(t, f, EndChanged)
	p := string(first.Credential)
	if len(asked.regrouped) != 1 || !strings.Contains(asked.regrouped[0], p) || !strings.HasSuffix(asked.regrouped[0], "[desk]") || len(asked.cancelled) != 0 {
		t.Errorf("regrouped %q, cancelled %q", asked.regrouped, asked.cancelled)
	}
	if n := d.count(t, `select count(*) from getwork.audit where act = 'user.change' and object = 'Zoë' and detail->'groups' = '["desk"]'`); n != 1 {
		t.Errorf("the change is audited %d times", n)
	}
	// Managers need no group: what they wait for keeps none.
	e.Role, e.Admin = assign.RoleManager, true
	third, err := d.proxied(t, e)
	if err != nil || third.Role != assign.RoleManager || !third.Admin || len(asked.regrouped) != 1 {
		t.Errorf("%+v %v, regrouped %q", third, err, asked.regrouped)
	}
	g := d.follow(t, third, nil)
	d.look(t, g, "")
	// None of the groups gives anything any more.
	none := by("Zoë", "", "other")
	if _, err := d.proxied(t, none); why(err) != WhyGrant || !assign.IsRefusal(err, assign.Forbidden) {
		t.Errorf("without a grant: %v", err)
	}
	d.look(t, g, EndBlocked)
	if len(asked.cancelled) != 1 || !strings.Contains(asked.cancelled[0], p) {
		t.Errorf("cancelled %q", asked.cancelled)
	}
	before = d.count(t, row)
	if _, err := d.proxied(t, none); why(err) != WhyGrant || d.count(t, row) != before {
		t.Errorf("again: %v", err)
	}
	if _, err := d.proxied(t, by("Zoë", assign.RoleAgent)); err != nil {
		t.Errorf("with a role again: %v", err)
	}
	if n := d.count(t, `select count(*) from getwork.audit where outcome = 'refused'`); n != 1 {
		t.Errorf("refusals are audited %d times, want once an hour", n)
	}
}

// Other nodes hear of a change at once.
func TestProxiedIsAnnounced(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	listener, err := d.db.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Hijack().Close(context.Background()) })
	if _, err := listener.Exec(t.Context(), "listen getwork"); err != nil {
		t.Fatal(err)
	}
	for _, groups := range [][]string{{"a"}, {"b"}} {
		if _, err := d.Proxied(t.Context(), by("ann", assign.RoleWorker, groups...)); err != nil {
			t.Fatal(err)
		}
		n, err := listener.Conn().WaitForNotification(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if m, err := notify.Decode(n.Payload); err != nil || !m.Rights {
			t.Errorf("announced %q %v", n.Payload, err)
		}
	}
}

// Nobody without a grant leaves a row, and nobody gets a name that is somebody's, or can't be one.
func TestProxiedStrangers(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	if _, err := d.proxied(t, by("nobody", "")); why(err) != WhyGrant {
		t.Error("without a grant:", err)
	}
	for _, name := range []string{"", "a\nb", "mi\u0430", "a\x00", "\xff", " ann", strings.Repeat("x", 129), strings.Repeat("x", 2000), "Zoe\u0308"} {
		if _, err := d.proxied(t, by(name, assign.RoleWorker)); !assign.IsRefusal(err, assign.Forbidden) {
			t.Errorf("%q: %v", name, err)
		}
	}
	if n := d.count(t, `select count(*) from getwork.principal`) + d.count(t, `select count(*) from getwork.audit`); n != 0 {
		t.Errorf("strangers have left %d rows", n)
	}
	d.logIn(t, "mia", assign.RoleWorker, "")
	for _, name := range []string{"mia", "Mia", "ｍｉａ"} {
		for range 3 {
			if _, err := d.proxied(t, by(name, assign.RoleManager)); !assign.IsRefusal(err, assign.NameTaken) {
				t.Errorf("%q: %v", name, err)
			}
		}
	}
	if n := d.count(t, `select count(*) from getwork.audit where act = 'log-in' and outcome = 'refused' and detail->>'why' = 'name-taken' and by = 'proxy'`); n != 3 {
		t.Errorf("%d rows of the audit for three taken names", n)
	}
	if n := d.count(t, `select count(*) from getwork.principal where role = 'manager'`); n != 0 {
		t.Error("somebody else's row has changed")
	}
}

// A move of the tables by logical replication leaves the ids behind. Newcomers don't read that somebody has their name.
func TestIDsLeftBehindAreNoName(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.exec(t, `insert into getwork.principal (id, name, name_key, iss, sub, kind) overriding system value values (1, 'ann', 'ann', 'idp', '1', 'person')`)
	if _, err := d.proxied(t, by("bob", assign.RoleWorker)); err == nil || assign.IsRefusal(err, assign.NameTaken) || !strings.Contains(err.Error(), "raise them as docs/upgrade.md says") {
		t.Errorf("the id of somebody else: %v", err)
	}
	if _, err := d.proxied(t, by("bob", assign.RoleWorker)); err != nil { // the next id is free
		t.Errorf("a free id: %v", err)
	}
}

// Who is blocked stays out, whatever the proxy says, and it writes nothing about them.
func TestProxiedBlocked(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	r, err := d.proxied(t, by("ann", assign.RoleWorker))
	f := d.follow(t, r, err)
	d.look(t, f, "")
	if _, err := d.Block(t.Context(), "ann", assign.UserChange{Blocked: true}); err != nil {
		t.Fatal(err)
	}
	for _, e := range []Entry{by("ann", assign.RoleWorker), by("ann", assign.RoleManager, "x"), by("ann", "")} {
		if _, err := d.Proxied(t.Context(), e); why(err) != WhyBlocked || !assign.IsRefusal(err, assign.Forbidden) {
			t.Errorf("%s: %v", e.Role, err)
		}
	}
	d.look(t, f, EndBlocked)
	if n := d.count(t, `select count(*) from getwork.principal where role = 'worker' and groups = '{}'`); n != 1 {
		t.Error("the row has changed")
	}
	if _, err := d.Block(t.Context(), "ann", assign.UserChange{Blocked: false}); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Proxied(t.Context(), by("ann", assign.RoleManager)); err != nil {
		t.Error("unblocked:", err)
	}
}

// Blocked between the read and the write: the row is read again under its lock.
func TestProxiedBlockedMeanwhile(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	if _, err := d.proxied(t, by("ann", assign.RoleWorker)); err != nil {
		t.Fatal(err)
	}
	d.exec(t, `update getwork.principal set blocked_at = clock_timestamp()`) // the cache does not know
	if _, err := d.Proxied(t.Context(), by("ann", assign.RoleManager)); why(err) != WhyBlocked {
		t.Error(err)
	}
	if n := d.count(t, `select count(*) from getwork.principal where role = 'worker'`); n != 1 {
		t.Error("the row has changed")
	}
}

// Two proxies that contradict each other: it is logged once, the newest word counts, and a channel is ended once, not with
// each call. When they have agreed for ten seconds, those that have the other's word end.
func TestProxiesContradictEachOther(t *testing.T) {
	t.Parallel()
	var asked calls
	var log bytes.Buffer
	d := newDesk(t, asked.into, func(c *Config) {
		c.Log = slog.New(slog.NewTextHandler(&log, nil))
		c.Audit = &audit.Writer{Node: "n1", DB: c.DB}
	})
	a, b := by("ann", assign.RoleWorker, "a"), by("ann", assign.RoleWorker, "b")
	r, err := d.proxied(t, a)
	before := d.follow(t, r, err)
	d.look(t, before, "")
	if _, err := d.proxied(t, b); err != nil {
		t.Fatal(err)
	}
	d.look(t, before, EndChanged)
	var during []*followed
	for i := range 6 {
		e := []Entry{a, b}[i%2]
		r, err := d.proxied(t, e)
		if err == nil && !slices.Equal(r.Groups, e.Groups) {
			t.Errorf("a call has the groups %q, and said %q", r.Groups, e.Groups)
		}
		f := d.follow(t, r, err)
		during = append(during, f)
		d.look(t, f, "")
	}
	for _, f := range during {
		d.look(t, f, "")
	}
	if n := d.count(t, `select count(*) from getwork.principal where groups = '{b}'`); n != 1 {
		t.Error("the newest does not count")
	}
	if len(asked.regrouped) != 7 || !strings.HasSuffix(asked.regrouped[6], "[b]") {
		t.Errorf("regrouped %q", asked.regrouped)
	}
	if n := strings.Count(log.String(), "contradict"); n != 1 || strings.Contains(log.String(), "groups=") {
		t.Errorf("it was logged %d times: %s", n, &log)
	}
	if n := d.count(t, `select count(*) from getwork.audit where act = 'user.change'`); n != 1 {
		t.Errorf("%d changes are audited, want 1", n)
	}
	d.exec(t, `update getwork.principal set told_at = told_at - interval '10 seconds'`)
	for i, f := range during {
		d.look(t, f, []End{EndChanged, ""}[i%2])
	}
	if n := d.count(t, `select count(*) from getwork.principal where unsettled`); n != 0 {
		t.Error("it did not settle")
	}
	// What is said again later than that is a change like any other.
	if _, err := d.proxied(t, a); err != nil {
		t.Fatal(err)
	}
	d.look(t, during[1], EndChanged)
}

// A third word is a change, however soon it comes.
func TestProxiedTwiceInARow(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	for _, group := range []string{"a", "b", "c"} {
		r, err := d.proxied(t, by("ann", assign.RoleWorker, group))
		f := d.follow(t, r, err)
		d.look(t, f, "")
		if _, err := d.proxied(t, by("ann", assign.RoleWorker, group+group)); err != nil {
			t.Fatal(err)
		}
		d.look(t, f, EndChanged)
	}
}

// Many calls at once make one principal, and none fails.
func TestProxiedAtOnce(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	other := New(d.Config) // another node
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			g := []*Registry{d.Registry, other}[i%2]
			groups := []string{[]string{"a", "b"}[i/2%2]}
			if r, err := g.Proxied(t.Context(), by("ann", assign.RoleWorker, groups...)); err != nil || !slices.Equal(r.Groups, groups) {
				t.Errorf("%+v %v", r, err)
			}
		})
	}
	all.Wait()
	if n := d.count(t, `select count(*) from getwork.principal`); n != 1 {
		t.Errorf("%d principals", n)
	}
	if n := d.count(t, `select count(*) from getwork.audit where act = 'user.create'`); n != 1 {
		t.Errorf("made %d times", n)
	}
}

// A name that is given to another account takes its former account's channels with it.
func TestRebindEndsWhatAProxyNamed(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	named, err := d.proxied(t, by("ann", assign.RoleWorker))
	if err != nil {
		t.Fatal(err)
	}
	shown, err := d.JWT(t.Context(), Entry{Iss: "https://idp", Sub: "7", Name: "bob", Role: assign.RoleAgent}, time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	f, g := d.follow(t, named, nil), d.follow(t, shown, nil)
	d.look(t, f, "")
	d.look(t, g, "")
	for name, r := range map[string]Rights{"ann": named, "bob": shown} {
		if _, err := d.RebindUser(t.Context(), name, "https://other", name); err != nil {
			t.Fatal(err)
		}
		if r.User != name {
			t.Errorf("%+v", r)
		}
	}
	d.look(t, f, EndOver)
	d.look(t, g, EndOver)
	if _, err := d.proxied(t, by("ann", assign.RoleWorker)); !assign.IsRefusal(err, assign.NameTaken) {
		t.Error("the former account:", err)
	}
	again, err := d.JWT(t.Context(), Entry{Iss: "https://other", Sub: "bob", Name: "robert", Role: assign.RoleAgent}, time.Now().Add(time.Hour))
	if err != nil || again.User != "bob" || again.Principal != shown.Principal {
		t.Fatalf("the new account: %+v, %v", again, err)
	}
	h := d.follow(t, again, nil)
	d.look(t, h, "")
	ended := func(c Credential) bool {
		return d.count(t, `select count(*) from getwork.ended_among(array[$1])`, c) == 1
	}
	if again.Credential == shown.Credential || ended(again.Credential) || !ended(shown.Credential) || !ended(named.Credential) {
		t.Errorf("want that %s and %s have ended, and %s has not", shown.Credential, named.Credential, again.Credential)
	}
	if _, err := d.Block(t.Context(), "bob", assign.UserChange{Blocked: true}); err != nil {
		t.Fatal(err)
	}
	d.look(t, h, EndBlocked)
}

// A personal token works while the proxy names its owner, though nobody logs in here.
func TestProxiedIsSeen(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	r, err := d.proxied(t, by("ann", assign.RoleWorker))
	if err != nil {
		t.Fatal(err)
	}
	token, _, err := d.CreateToken(t.Context(), NewToken{Label: "x", Scopes: []string{ScopeRead}, Role: r.Role, By: r.Principal})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.token(t, token); err != nil { // at once, before any use was written
		t.Error(err)
	}
	d.exec(t, `update getwork.principal set seen_at = seen_at - interval '721 hours'`)
	if _, err := d.token(t, token); why(err) != WhyOwner {
		t.Error(err)
	}
	if r, err = d.proxied(t, by("ann", assign.RoleWorker)); err != nil {
		t.Fatal(err)
	}
	d.Used(&r, netip.Addr{}, false)
	d.watch.flushUses(t.Context())
	if _, err := d.token(t, token); err != nil {
		t.Error(err)
	}
}

// An access token's rights are its own; its name is its account's, however the account came in first.
func TestJWT(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	cookie := d.logIn(t, "mia", assign.RoleManager, "")
	ends := time.Now().Add(time.Hour)
	shown := Entry{Iss: "idp", Sub: "sub of mia", Name: "another name", Role: assign.RoleWorker, Admin: true, Groups: []string{"x"}}
	r, err := d.JWT(t.Context(), shown, ends)
	if err != nil || r.User != "mia" || r.Role != assign.RoleWorker || r.Admin || !slices.Equal(r.Groups, shown.Groups) || r.Credential != ByJWT(r.Principal, 0) || !r.EndsAt.Equal(ends) || r.Left < 59*time.Minute || r.Left > time.Hour {
		t.Fatalf("%+v %v", r, err)
	}
	if s, err := d.session(t, cookie); err != nil || s.Role != assign.RoleManager || s.Principal != r.Principal {
		t.Errorf("the session has become %+v %v", s, err)
	}
	f := d.follow(t, r, nil)
	d.look(t, f, "")
	batch := Entry{Iss: "idp", Sub: "batch", Name: "batch-7", Role: assign.RoleAgent, Groups: []string{"x"}}
	for range 2 {
		if b, err := d.JWT(t.Context(), batch, ends); err != nil || b.User != "batch-7" {
			t.Fatalf("%+v %v", b, err)
		}
	}
	if n := d.count(t, `select count(*) from getwork.principal where name = 'batch-7' and role is null and not admin and groups = '{}' and seen_at is null`); n != 1 {
		t.Error("a token has given its account rights elsewhere")
	}
	if _, err := d.JWT(t.Context(), Entry{Iss: "idp", Sub: "third", Name: "Mia", Role: assign.RoleWorker}, ends); !assign.IsRefusal(err, assign.NameTaken) {
		t.Error("a taken name:", err)
	}
	if _, err := d.JWT(t.Context(), Entry{Iss: "other", Sub: "batch", Name: "batch-7", Role: assign.RoleWorker}, ends); !assign.IsRefusal(err, assign.NameTaken) {
		t.Error("another issuer's:", err)
	}
	if n := d.count(t, `select count(*) from getwork.audit where act = 'log-in' and outcome = 'refused' and by = 'jwt'`); n != 2 {
		t.Errorf("%d refusals are audited, want 2", n)
	}
	if _, err := d.Block(t.Context(), "mia", assign.UserChange{Blocked: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := d.JWT(t.Context(), shown, ends); why(err) != WhyBlocked || !assign.IsRefusal(err, assign.Forbidden) {
		t.Error("blocked:", err)
	}
	d.look(t, f, EndBlocked)
}

// A log-in does not touch the groups of what waits under a JSON web token of the same account, which has groups of its own. A block
// ends that, too.
func TestLogInLeavesTheJWTAlone(t *testing.T) {
	t.Parallel()
	var c calls
	d := newDesk(t, c.into)
	r, err := d.JWT(t.Context(), Entry{Iss: "idp", Sub: "sub of mia", Name: "mia", Role: assign.RoleAgent, Groups: []string{"batch"}}, time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	d.logIn(t, "mia", assign.RoleWorker, "")
	if got := strings.Join(c.regrouped, " "); !strings.Contains(got, "s:") || strings.Contains(got, string(r.Credential)) {
		t.Errorf("a log-in gives its groups to %s, want the session without %s", got, r.Credential)
	}
	if _, err := d.Block(t.Context(), "mia", assign.UserChange{Blocked: true}); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(c.cancelled, " "); !strings.Contains(got, string(r.Credential)) {
		t.Errorf("a block ends %s, want %s among it", got, r.Credential)
	}
}

// A live channel of an access token ends with it.
func TestJWTExpires(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	r, err := d.JWT(t.Context(), Entry{Iss: "idp", Sub: "1", Name: "batch", Role: assign.RoleAgent}, time.Now().Add(-time.Second))
	f := d.follow(t, r, err) // a call within the leeway is good
	d.look(t, f, EndOver)
}

// What a proxy says is asked again after --proxy-max, although nothing has changed.
func TestProxiedForSoLong(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	r, err := d.proxied(t, by("ann", assign.RoleWorker))
	if err != nil {
		t.Fatal(err)
	}
	f := &followed{}
	t.Cleanup(d.watch.Follow(&r, time.Hour, func(e End) { f.ends = append(f.ends, e) }))
	d.look(t, f, "")
	for _, l := range d.watch.live[r.Credential] {
		if left := time.Until(l.until); left > time.Hour || left < 59*time.Minute {
			t.Errorf("it may live for %s", left)
		}
		l.until = time.Now().Add(-time.Second)
	}
	d.look(t, f, EndChanged)
}
