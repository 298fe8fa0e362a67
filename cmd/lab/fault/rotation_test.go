package fault

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"getwork/cmd/internal/cluster"
	"getwork/cmd/internal/e2e"
	"getwork/schema/schematest"
)

// The passwords of both logins are replaced while people work, three times, and all sessions end: calls, the engine, runs and the
// listener go on with the new ones, which stand in the URLs' files or in PGPASSFILE. Nobody restarts the node. If it has not been told
// the new password, it is not ready, although an old connection still works.
func TestPasswordsAreReplaced(t *testing.T) {
	if e2e.ModeNow != "" {
		t.Skip("the nodes are given their database by this test")
	}
	t.Parallel()
	server := schematest.OwnServer(t, nil)
	admin, err := pgxpool.New(t.Context(), server.URL("getwork"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(admin.Close)
	for _, where := range []string{"file", "passfile"} {
		t.Run(where, func(t *testing.T) {
			s := &rotated{site: &site{&e2e.Site{T: t, DB: admin}}, dir: t.TempDir(), own: "own_" + where, reader: "reader_" + where, where: where}
			s.Exec(`create role ` + s.own + ` login superuser; create role ` + s.reader + ` login`)
			at, err := url.Parse(server.URL("getwork"))
			if err != nil {
				t.Fatal(err)
			}
			s.at = *at
			s.tell(s.replace("first"))
			options := cluster.Options{Args: []string{"--database-url-file", s.file(s.own), "--query-database-url-file", s.file(s.reader)}}
			if where == "passfile" {
				options = cluster.Options{Args: []string{"--database-url", s.url(s.own, ""), "--query-database-url", s.url(s.reader, "")}, Env: []string{"PGPASSFILE=" + s.file("passwords")}}
			}
			s.Nodes = cluster.Start(t, 1, options)
			s.works()
		})
	}
}

// rotated is a node whose logins' passwords are replaced.
type rotated struct {
	*site
	at          url.URL
	dir, where  string
	own, reader string
}

func (s *rotated) file(name string) string { return filepath.Join(s.dir, name) }

func (s *rotated) url(login, password string) string {
	u := s.at
	u.User = url.User(login)
	if password != "" {
		u.User = url.UserPassword(login, password)
	}
	return u.String()
}

// replace gives the logins another password.
func (s *rotated) replace(password string) string {
	s.T.Helper()
	for _, login := range []string{s.own, s.reader} {
		s.Exec(fmt.Sprintf(`alter role %s password '%s'`, login, password))
	}
	return password
}

// tell writes the password to where the node reads it.
func (s *rotated) tell(password string) {
	s.T.Helper()
	files := map[string]string{s.own: s.url(s.own, password), s.reader: s.url(s.reader, password)}
	if s.where == "passfile" {
		files = map[string]string{"passwords": "*:*:*:" + s.own + ":" + password + "\n*:*:*:" + s.reader + ":" + password}
	}
	for name, text := range files {
		if err := os.WriteFile(s.file("new"), []byte(text+"\n"), 0o600); err != nil {
			s.T.Fatal(err)
		}
		if err := os.Rename(s.file("new"), s.file(name)); err != nil {
			s.T.Fatal(err)
		}
	}
}

// end ends the logins' sessions, apart from those whose last statement matches the expression.
func (s *rotated) end(except string) {
	s.T.Helper()
	column[bool](s.site, `select pg_terminate_backend(pid) from pg_stat_activity where usename in ($1, $2) and query !~ $3`, s.own, s.reader, except)
}

func (s *rotated) works() {
	t := s.T
	err := s.As("mary", 0).CreateTask(t.Context(), map[string]any{"name": s.where, "query": `select i as item from generate_series(1, 1000) i`, "fresh_for": "200ms"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, over := context.WithCancel(t.Context())
	defer over()
	var served atomic.Int64
	var g errgroup.Group
	for i := range 8 {
		g.Go(func() error {
			for user := fmt.Sprintf("user-%d", i); ; {
				r, a, err := s.As(user, 0).GetWork(ctx, s.where, 1, "Prefer", "wait=1")
				switch {
				case ctx.Err() != nil:
					return nil
				case err != nil || a.Status >= 400 && a.Status != http.StatusServiceUnavailable:
					return fmt.Errorf("click: %d %s, %w", a.Status, a.Body, err)
				case a.Status < 400 && len(r.Work) > 0:
					served.Add(1)
				case a.Status >= 400:
					pauseFor(ctx, 50*time.Millisecond)
				}
				for _, w := range r.Work {
					_, a, err := s.As(user, 0).Dispose(ctx, w.ID, "complete", "")
					if ctx.Err() == nil && (err != nil || a.Status >= 400 && a.Status != http.StatusServiceUnavailable) {
						return fmt.Errorf("complete: %d %s, %w", a.Status, a.Body, err)
					}
				}
			}
		})
	}
	goesOn := func(with string) {
		t.Helper()
		until := served.Load() + 50
		e2e.Await(t, "people are served with "+with, 2*e2e.Soon, func() bool { return served.Load() >= until })
		e2e.Await(t, "the node is ready, and listens with "+with, e2e.Soon, func() bool {
			return s.Nodes[0].Ready() == http.StatusOK && s.Figure(0, "getwork_listener_up") == 1
		})
	}
	goesOn("the first password")
	for _, password := range []string{"second", "third", "fourth"} {
		s.tell(s.replace(password))
		s.end("none")
		goesOn("the " + password + " password")
	}
	password := s.replace("a secret")
	s.end("to_regclass|pg_notify") // what probes and announcements say stays, and works
	times := 0
	e2e.Await(t, "the node is not ready, ten times in a row", e2e.Soon, func() bool {
		if times++; s.Nodes[0].Ready() != http.StatusServiceUnavailable {
			times = 0
		}
		return times == 10
	})
	s.tell(password)
	goesOn("what it is told late")
	over()
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
}
