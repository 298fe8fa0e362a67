package serve

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"getwork/cmd/internal/idp"
	"getwork/schema/schematest"
	"getwork/schema/schematest/pgbouncer"
	"getwork/schema/schematest/timeout"
	"getwork/ws"
)

// ending is a way in which rights end or change, and what those learn whose rights they were.
type ending struct {
	name   string
	by     func(v *visit) error // at v.there
	closes ws.Status            // the socket
	says   string               // the stream's last event
	call   int                  // the status of a later call
	held   int                  // of an answer that was held
	waits  string               // what becomes of requests that wait
}

// endings are all ends: by a person, an administrator, the provider and the clock.
var endings = []ending{
	{"log-out", func(v *visit) error { return v.post(v.there, "/auth/logout", v.session) }, ws.LogInAgain, "unauthenticated", 401, 401, "cancelled"},
	{"block", func(v *visit) error {
		return v.call(v.there, "PATCH", "/api/v1/users/"+v.name, `{"blocked":true}`, v.admin)
	}, 4403, "forbidden", 403, 403, "cancelled"},
	{"revoked session", func(v *visit) error { return v.call(v.there, "DELETE", "/api/v1/sessions?user="+v.name, "", v.admin) },
		ws.LogInAgain, "unauthenticated", 401, 401, "cancelled"},
	{"revoked token", func(v *visit) error {
		return v.call(v.there, "DELETE", "/api/v1/tokens/"+v.token[len("gw_"):][:12], "", v.session)
	}, ws.LogInAgain, "unauthenticated", 401, 401, "cancelled"},
	{"log-out at the provider", func(v *visit) error {
		return idp.Send(v.Context(), v.there.url+"/auth/backchannel", v.at.idp.LogoutToken(oidcClient, v.name, nil))
	}, ws.LogInAgain, "unauthenticated", 401, 401, "cancelled"},
	{"other groups", func(v *visit) error { return v.regrouped("loan-desk", "new") }, 1012, "unavailable", 200, 200, "pending"},
	{"no role any more", func(v *visit) error { return v.regrouped("canteen") }, ws.LogInAgain, "unauthenticated", 401, 401, "cancelled"},
	{"its time is over", func(v *visit) error { return v.expired() }, ws.LogInAgain, "unauthenticated", 401, 401, "cancelled"},
}

// sites are the ways in which nodes learn of ends.
var sites = []struct {
	name string
	open func(t *testing.T, c *Command)      // nil: as usual
	mean func(t *testing.T, database string) // once the nodes run; nil: nothing
}{
	{"LISTEN", nil, nil},
	{"polling", func(_ *testing.T, c *Command) { c.NoListen = true }, nil},
	{"listeners killed", nil, killListeners},
	{"PgBouncer", func(t *testing.T, c *Command) {
		c.ListenDatabaseURL, c.Pooled = c.DatabaseURL, true
		c.DatabaseURL = pgbouncer.Start(t, c.DatabaseURL, pgbouncer.Options{PoolSize: 20}).URL
	}, nil},
}

// When rights end, everything that depends on them ends within two seconds: calls, held answers, streams, sockets and lingering
// requests; on the node where they ended and on another; however nodes learn of it. Each pair of these is tried;
// GETWORK_TEST_ENDS=all tries all combinations.
func TestRightsEndEverywhere(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	for s, site := range sites {
		t.Run(site.name, func(t *testing.T) {
			t.Parallel()
			direct := schematest.Plain(t)
			c := Command{DatabaseURL: direct}
			if site.open != nil {
				site.open(t, &c)
			}
			at := newBankOf(t, visitors(), c, func(i *Identity) { i.TrustedProxy = []string{"127.0.0.1"} })
			o := &office{at: at, nodes: []running{at.running, at.beside(t, c)}}
			o.ready(t, direct)
			if site.mean != nil {
				site.mean(t, direct)
			}
			for e, end := range endings {
				for w, where := range []string{"same node", "another node"} {
					if os.Getenv("GETWORK_TEST_ENDS") != "all" && (s+e)%2 != w {
						continue
					}
					t.Run(end.name+", "+where, func(t *testing.T) {
						t.Parallel()
						v := o.visit(t, fmt.Sprint("user-", e, "-", w))
						v.there = o.nodes[w]
						v.ends(end)
					})
				}
			}
		})
	}
}

// Whoever waits for the answer to a click hears within two seconds that their rights have ended, also if the click is not recorded yet: it
// waits for its task's lock, or for a connection.
func TestRightsEndBeforeAClickIsRecorded(t *testing.T) {
	t.Parallel()
	direct := schematest.Plain(t)
	c := Command{DatabaseURL: direct}
	at := newBankOf(t, visitors(), c, func(i *Identity) { i.TrustedProxy = []string{"127.0.0.1"} })
	o := &office{at: at, nodes: []running{at.running}}
	o.ready(t, direct)
	v := o.visit(t, "user-0-0")
	tx, err := o.db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(t.Context(), "select from getwork.task_state for update"); err != nil {
		t.Fatal(err)
	}
	held := v.held()
	timeout.Await(t, "the click waits for the lock", func() (waits bool) {
		_ = o.db.QueryRow(t.Context(), `select exists (select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock')`).Scan(&waits)
		return waits
	})
	stood := standstill(t)
	if err := v.call(v.here, "DELETE", "/api/v1/sessions?user="+v.name, "", v.admin); err != nil {
		t.Fatal(err)
	}
	began, within := time.Now(), timeout.Scale(2*time.Second)
	if got := <-held; !strings.HasPrefix(got.how, "401 ") || got.at.Sub(began)-stood() > within {
		t.Errorf("the click was answered %s after %s, want 401", got.how, got.at.Sub(began))
	}
}

// visitors are the people of an office: one for each end at each node, and two who run it.
func visitors() (people []idp.Person) {
	for e := range endings {
		for w := range 2 {
			name := fmt.Sprint("user-", e, "-", w)
			people = append(people, idp.Person{Sub: name, Name: name, Groups: []string{"loan-desk"}})
		}
	}
	return append(people, idp.Person{Sub: "ada", Name: "ada", Groups: []string{"getwork-admins", "loan-managers"}})
}

// office is two nodes, and somebody who manages people.
type office struct {
	at     *bank
	nodes  []running
	client *http.Client
	admin  string // her session
	db     *pgxpool.Pool
}

// ready logs the administrator in, and makes the tasks.
func (o *office) ready(t *testing.T, direct string) {
	t.Helper()
	var err error
	if o.db, err = pgxpool.New(t.Context(), direct); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(o.db.Close)
	o.client = &http.Client{Timeout: timeout.Scale(time.Minute), CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	t.Cleanup(o.client.CloseIdleConnections)
	timeout.Await(t, "the provider is known", func() bool {
		o.admin, err = o.at.comeIn(o.client, "ada", "10.9.9.9")
		return err == nil
	})
	v := &visit{T: t, office: o}
	for _, task := range []string{"held", "lingering"} {
		if err := v.call(o.nodes[0], "POST", "/api/v1/tasks", `{"name":"`+task+`","query":null}`, o.admin); err != nil {
			t.Fatal(err)
		}
	}
}

// killListeners ends the connections on which nodes listen, again and again until the test ends.
func killListeners(t *testing.T, database string) {
	t.Helper()
	db, err := pgx.Connect(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	killed, done := 0, make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			var n int
			if db.QueryRow(ctx, `select count(pg_terminate_backend(pid)) from pg_stat_activity
				where datname = current_database() and application_name = 'getwork listener'`).Scan(&n) == nil {
				killed += n
			}
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	}()
	t.Cleanup(func() {
		stop()
		<-done
		_ = db.Close(context.Background())
		if killed < 2 {
			t.Errorf("%d listeners were killed", killed)
		}
	})
}
