package serve

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"getwork/cmd/internal/idp"
	"getwork/cmd/internal/proxy"
	"getwork/schema/schematest"
	"getwork/schema/schematest/timeout"
)

const (
	crowd        = 500
	crowdNodes   = 3
	atOncePerOne = 2 // calls of the provider by one node
)

// refreshes records the refresh tokens that come to a provider, and holds the calls up until it is opened.
type refreshes struct {
	mu    sync.Mutex
	times map[string]int
	now   int
	most  int
	open  chan struct{}
}

// before is for [idp.Hooks].
func (r *refreshes) before(_ http.ResponseWriter, call *http.Request) bool {
	if call.URL.Path != "/token" || call.PostFormValue("grant_type") != "refresh_token" {
		return false
	}
	r.mu.Lock()
	r.times[call.PostFormValue("refresh_token")]++
	r.now++
	r.most = max(r.most, r.now)
	r.mu.Unlock()
	select {
	case <-r.open:
	case <-call.Context().Done():
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now--
	return false
}

func (r *refreshes) figures() (now, most, tokens, twice int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, n := range r.times {
		if n > 1 {
			twice++
		}
	}
	return r.now, r.most, len(r.times), twice
}

// Five hundred sessions are due for a refresh at once, on three nodes, and every second of them is in use on two. The provider sees each
// refresh token once, and from each node two calls at a time. While it thinks, no node holds a connection for it, and calls go on.
func TestRefreshesOfACrowd(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	var people []idp.Person
	for i := range crowd {
		people = append(people, idp.Person{Sub: fmt.Sprint("crowd-", i), Name: fmt.Sprint("user ", i), Groups: []string{"loan-desk"}})
	}
	at := newBankOf(t, people, Command{}, func(i *Identity) { i.MetricsListen, i.TrustedProxy = "127.0.0.1:0", []string{"127.0.0.1"} })
	nodes := []running{at.running}
	for len(nodes) < crowdNodes {
		nodes = append(nodes, at.beside(t, Command{DatabaseURL: at.database}))
	}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}, Timeout: timeout.Scale(10 * time.Second),
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	t.Cleanup(client.CloseIdleConnections)
	timeout.Await(t, "the provider is known", func() bool { r, _ := answer(t, client, "GET", at.url+"/auth/login"); return r.StatusCode == 303 })

	// A node looks up fifty sessions a second that it has not seen.
	sessions := make([]string, crowd)
	var coming errgroup.Group
	coming.SetLimit(12)
	for i := range crowd {
		coming.Go(func() (err error) {
			if sessions[i], err = at.comeIn(client, fmt.Sprint("crowd-", i), fmt.Sprintf("10.1.%d.%d", i/250, i%250+1)); err != nil {
				return err
			}
			for of := range 1 + i%2 {
				n := nodes[(i+of)%crowdNodes]
				for limit := time.Now().Add(timeout.Scale(30 * time.Second)); ; {
					status, err := n.use(client, sessions[i])
					if status == 200 {
						break
					}
					if err != nil || status != 503 || time.Now().After(limit) {
						return fmt.Errorf("use a session: %d, %w", status, err)
					}
					<-time.After(50 * time.Millisecond)
				}
			}
			return nil
		})
	}
	if err := coming.Wait(); err != nil {
		t.Fatal(err)
	}

	db, err := pgx.Connect(t.Context(), at.database)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close(t.Context())
	seen := &refreshes{times: map[string]int{}, open: make(chan struct{})}
	at.hooks.Store(&idp.Hooks{Before: seen.before})
	if _, err := db.Exec(t.Context(), "update getwork.session set refreshed_at = refreshed_at - interval '11 minutes'"); err != nil {
		t.Fatal(err)
	}
	timeout.Await(t, "as many calls of the provider as may be", func() bool { now, _, _, _ := seen.figures(); return now == crowdNodes*atOncePerOne })
	timeout.Await(t, "no node uses a connection", func() bool {
		return !slices.ContainsFunc(nodes, func(n running) bool {
			return n.figure(t, `getwork_pool_connections_in_use{pool="api"}`)+n.figure(t, `getwork_pool_connections_in_use{pool="own"}`) != 0
		})
	})
	for _, n := range nodes {
		began := time.Now()
		if status, err := n.use(client, sessions[0]); status != 200 && status != 503 || time.Since(began) > timeout.Scale(time.Second) {
			t.Errorf("a call while the provider thinks: %d after %s, %v", status, time.Since(began), err)
		}
	}
	if now, _, _, _ := seen.figures(); now != crowdNodes*atOncePerOne {
		t.Errorf("%d calls of the provider, want %d still", now, crowdNodes*atOncePerOne)
	}
	close(seen.open)

	var left int
	timeout.Await(t, "all are refreshed", func() bool {
		err := db.QueryRow(t.Context(), "select count(*) from getwork.session where refreshed_at < clock_timestamp() - interval '10 minutes' and ended_at is null").Scan(&left)
		return err == nil && left == 0
	})
	var alive int
	if err := db.QueryRow(t.Context(), "select count(*) from getwork.session where ended_at is null and refreshing_until is null").Scan(&alive); err != nil || alive != crowd {
		t.Errorf("%d sessions go on, want %d (%v)", alive, crowd, err)
	}
	if _, most, tokens, twice := seen.figures(); most > crowdNodes*atOncePerOne || tokens != crowd || twice != 0 {
		t.Errorf("the provider saw %d refresh tokens, %d of them twice, and %d calls at once", tokens, twice, most)
	}
}

// The database goes away when the provider has just changed a session's refresh token, and comes back, for a node that goes on and
// for one that shuts down. The new token is stored, so the next refresh succeeds. The provider never sees the old one again.
func TestRefreshOutlivesTheDatabase(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	for name, ends := range map[string]bool{"the node goes on": false, "the node ends": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := schematest.Plain(t)
			target, err := proxy.Target(url)
			if err != nil {
				t.Fatal(err)
			}
			way, err := proxy.Start(target)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(way.Close)
			through, err := way.URL(url)
			if err != nil {
				t.Fatal(err)
			}
			at := newBankOf(t, nil, Command{DatabaseURL: through})
			t.Cleanup(way.Heal) // or a node that ends would wait for its database
			b := newBrowser(t)
			b.logIn(at, "0001", "/")
			session := b.cookies["__Host-getwork-"+port(at.url)]
			if status, err := at.use(plain, session); status != 200 { // so that it is in use there
				t.Fatal(status, err)
			}
			db, err := pgx.Connect(t.Context(), url)
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close(context.WithoutCancel(t.Context()))
			refreshed := func(n running) {
				t.Helper()
				timeout.Await(t, "the session is refreshed", func() bool {
					_, _ = n.use(plain, session)
					var done, ended bool
					err := db.QueryRow(t.Context(), "select refreshed_at > clock_timestamp() - interval '10 minutes', ended_at is not null from getwork.session").Scan(&done, &ended)
					if err == nil && ended {
						t.Fatal("the session has ended")
					}
					return err == nil && done
				})
			}
			age := func() {
				t.Helper()
				if _, err := db.Exec(t.Context(), "update getwork.session set refreshed_at = refreshed_at - interval '11 minutes'"); err != nil {
					t.Fatal(err)
				}
			}

			seen := &refreshes{times: map[string]int{}, open: make(chan struct{})}
			close(seen.open)
			cut := sync.OnceFunc(func() { way.Refuse(true); way.Cut() })
			at.hooks.Store(&idp.Hooks{Before: seen.before, Token: func(map[string]any) { cut() }})
			age()
			timeout.Await(t, "the node can't store the answer", func() bool {
				return at.said("store what the identity provider said of a session; it is tried again") > 0
			})
			if ends {
				at.end()
				timeout.Await(t, "the node shuts down", func() bool { return at.said("shutting down") > 0 })
			}
			way.Heal()
			refreshed(at.running)
			next := at.running
			if ends {
				next = at.beside(t, Command{DatabaseURL: url})
			}
			age()
			refreshed(next)
			if _, _, tokens, twice := seen.figures(); tokens != 2 || twice != 0 {
				t.Errorf("the provider saw %d refresh tokens, %d of them twice; want 2 once", tokens, twice)
			}
			if status, err := next.use(plain, session); status != 200 {
				t.Errorf("a call afterwards: %d, %v", status, err)
			}
		})
	}
}

// The provider takes somebody's role away, and a node asks about their session. Before the answer is stored they log in again, by a role
// that they have. Both sessions go on, and the next refresh shows the token that came with the answer.
func TestLogInBesideARefresh(t *testing.T) {
	t.Parallel()
	at := newBank(t)
	here, elsewhere := newBrowser(t), newBrowser(t)
	here.logIn(at, "0001", "/")
	here.me(at) // so that the session is in use
	db, err := pgx.Connect(t.Context(), at.database)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close(context.WithoutCancel(t.Context()))
	seen := &refreshes{times: map[string]int{}, open: make(chan struct{})}
	at.hooks.Store(&idp.Hooks{Before: seen.before})
	refresh := func() {
		t.Helper()
		if _, err := db.Exec(t.Context(), "update getwork.session set refreshed_at = refreshed_at - interval '11 minutes', refreshing_until = null where refresh is not null and created_at = (select min(created_at) from getwork.session)"); err != nil {
			t.Fatal(err)
		}
	}
	back := elsewhere.goToProvider(at, "0001", "/")
	refresh()
	timeout.Await(t, "the provider is asked", func() bool { now, _, _, _ := seen.figures(); return now == 1 })
	var claimed time.Time
	if err := db.QueryRow(t.Context(), "select refreshing_until from getwork.session").Scan(&claimed); err != nil {
		t.Fatal(err)
	}
	elsewhere.comeBack(back) // within the 8 s for which the node waits for the provider
	at.idp.SetGroups("0001", []string{})
	close(seen.open)
	timeout.Await(t, "the answer is stored", func() bool {
		var stored bool
		err := db.QueryRow(t.Context(), `
select refreshing_until is distinct from $1 or ended_at is not null from getwork.session order by created_at limit 1`, claimed).Scan(&stored)
		return err == nil && stored
	})
	at.idp.SetGroups("0001", []string{"loan-desk"})
	for name, b := range map[string]*browser{"the former session": here, "the new session": elsewhere} {
		if _, role, _, status := b.me(at); status != 200 || role != "worker" {
			t.Errorf("%s: %d, %q", name, status, role)
		}
	}
	refresh()
	timeout.Await(t, "the next refresh", func() bool {
		var done bool
		err := db.QueryRow(t.Context(), `
select refreshed_at > clock_timestamp() - interval '10 minutes' or ended_at is not null from getwork.session order by created_at limit 1`).Scan(&done)
		return err == nil && done
	})
	if _, _, tokens, twice := seen.figures(); tokens != 2 || twice != 0 {
		t.Errorf("the provider saw %d refresh tokens, %d of them twice; want 2 once", tokens, twice)
	}
	if _, _, _, status := here.me(at); status != 200 {
		t.Errorf("the former session after the next refresh: %d", status)
	}
}

// comeIn logs somebody in from an address, and returns their session's cookie.
func (b *bank) comeIn(client *http.Client, sub, from string) (session string, err error) {
	cookies := map[string]string{}
	get := func(address string) (*http.Response, error) {
		r, err := http.NewRequest("GET", address, nil)
		if err != nil {
			return nil, err
		}
		r.Header.Set("X-Forwarded-For", from)
		for name, value := range cookies {
			r.AddCookie(&http.Cookie{Name: name, Value: value})
		}
		response, err := client.Do(r)
		if err != nil {
			return nil, err
		}
		response.Body.Close()
		for _, c := range response.Cookies() {
			cookies[c.Name] = c.Value
		}
		if response.StatusCode != 303 {
			return nil, fmt.Errorf("log in: %s", response.Status)
		}
		return response, nil
	}
	begun, err := get(b.url + "/auth/login")
	if err != nil {
		return "", err
	}
	back, err := b.idp.Authorize(begun.Header.Get("Location"), sub)
	if err != nil {
		return "", err
	}
	if _, err := get(back); err != nil {
		return "", err
	}
	return cookies["__Host-getwork-"+port(b.url)], nil
}

// use makes a call with a session's cookie, whichever node the session began on.
func (r running) use(client *http.Client, session string) (status int, err error) {
	call, err := http.NewRequest("GET", r.url+"/api/v1/me", nil)
	if err != nil {
		return 0, err
	}
	call.AddCookie(&http.Cookie{Name: "__Host-getwork-" + port(r.url), Value: session})
	response, err := client.Do(call)
	if err != nil {
		return 0, err
	}
	response.Body.Close()
	return response.StatusCode, nil
}
