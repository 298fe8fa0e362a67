package manage_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"getwork/assign"
	"getwork/assign/audit"
	"getwork/assign/enginetest"
	"getwork/schema/schematest"
)

// audited starts a node that audits.
func audited(t *testing.T, url string) *enginetest.Node {
	t.Helper()
	n := enginetest.Start(t, url, enginetest.Options{})
	n.Audit = &audit.Writer{Node: n.Node, Log: slog.New(slog.NewTextHandler(t.Output(), nil)), DB: n.Pools.Router()}
	return n
}

// asMia is the context of what Mia does.
func asMia(t *testing.T) context.Context {
	return audit.WithActor(t.Context(), audit.Actor{User: "mia", By: "session", Credential: "s:1", Address: netip.MustParseAddr("192.0.2.1")})
}

const (
	selectAudited = `
select coalesce(string_agg(concat_ws(' ', actor, by, credential, host(address), act, object, outcome, detail), '; ' order by n), '') from getwork.audit where n > $1`

	// everything that an act can change
	selectEverything = `
select md5(concat(
  (select string_agg(x::text, ',' order by x::text) from getwork.task x), (select string_agg(x::text, ',' order by x::text) from getwork.task_state x),
  (select string_agg(x::text, ',' order by x::text) from getwork.task_version x), (select string_agg(x::text, ',' order by x::text) from getwork.task_conflict x),
  (select string_agg(x::text, ',' order by x::text) from getwork.task_pause x), (select string_agg(x::text, ',' order by x::text) from getwork.work_requested x),
  (select string_agg(x::text, ',' order by x::text) from getwork.work x), (select string_agg(x::text, ',' order by x::text) from getwork.item x),
  (select string_agg(x::text, ',' order by x::text) from getwork.audit x), (select string_agg(x::text, ',' order by x::text) from getwork.audit_head x)))`
)

func sum(text string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(text))) }

// Each act writes one row, which says who did what. If the row can't be written, the act does not happen.
func TestActsAreAudited(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	url := schematest.URL(t)
	n, db := audited(t, url), enginetest.Pool(t, url)
	one := 1
	enginetest.NewInbox(t, n, "jobs", func(s *assign.Settings) { s.MaxAttempts = &one })
	n.PushKeys(t, "jobs", "a", "b", "c", "d")
	held := n.Click(t, "jobs", "ann", 4).Work
	n.Let(t, held[0], assign.Disposition{Outcome: "fail"})
	waiting := n.Linger(t, "jobs", "uma", 1)
	ctx := asMia(t)
	update := func(task string, change func(*assign.Settings)) error {
		now, err := n.Task(ctx, task)
		if err != nil {
			return err
		}
		_, err = n.UpdateTask(ctx, task, now.Version, "mia", func(s *assign.Settings) error { change(s); return nil })
		return err
	}
	release := func(what assign.Release) error {
		what.DryRun = true
		dry, err := n.Release(ctx, what, "mia")
		if err != nil {
			return err
		}
		what.DryRun, what.Token = false, dry.Token
		_, err = n.Release(ctx, what, "mia")
		return err
	}
	const first, second, recheck = `select 1 as item`, `select 2 as item`, `select unnest($1::text[]) as item`
	for _, act := range []struct {
		do   func() error
		want string
	}{
		{func() error { _, err := n.Cancel(ctx, waiting.ID, assign.Holder{User: "mia"}, true); return err },
			`request.cancel uma done {"task": "jobs", "user": "uma", "request": ` + fmt.Sprint(waiting.ID) + `}`},
		{func() error {
			s := assign.DefaultSettings()
			s.Name, s.Query, s.Recheck = "loans", first, recheck
			_, err := n.CreateTask(ctx, s, "mia")
			return err
		}, `task.create loans done {"query_sha256": "` + sum(first) + `", "recheck_sha256": "` + sum(recheck) + `"}`},
		{func() error {
			return update("loans", func(s *assign.Settings) { s.Query, s.Recheck, s.Name = second, "", "credits" })
		}, `task.update loans done {"name": "credits", "changed": ["name", "query", "recheck"], "version": 2, "query_sha256": "` + sum(second) + `", "recheck_sha256": null}`},
		{func() error { return update("credits", func(s *assign.Settings) { s.Paused = true }) },
			`task.pause credits done {"changed": ["paused"], "version": 3, "query_sha256": "` + sum(second) + `", "recheck_sha256": null}`},
		{func() error { return update("credits", func(s *assign.Settings) { s.Paused = false }) },
			`task.resume credits done {"changed": ["paused"], "version": 4, "query_sha256": "` + sum(second) + `", "recheck_sha256": null}`},
		{func() error { return update("credits", func(s *assign.Settings) { s.Paused, s.Title = true, "T" }) },
			`task.update credits done {"changed": ["paused", "title"], "version": 5, "query_sha256": "` + sum(second) + `", "recheck_sha256": null}`},
		{func() error { _, err := n.SetPaused(ctx, "credits", false, 0, "mia"); return err }, `task.resume credits done {"version": 5}`},
		{func() error { _, err := n.SetPaused(ctx, "credits", true, 0, "mia"); return err }, `task.pause credits done {"version": 5}`},
		{func() error { _, err := n.Restore(ctx, "credits", 1, 0, "mia", nil); return err },
			`task.restore credits done {"changed": ["query", "recheck", "title"], "version": 6, "restored": 1, "query_sha256": "` + sum(first) + `", "recheck_sha256": "` + sum(recheck) + `"}`},
		{func() error { _, err := n.Ranker.Preview(ctx, "credits", nil, 1); return err },
			`task.preview credits done {"query_sha256": "` + sum(first) + `", "recheck_sha256": null}`},
		{func() error {
			s := assign.DefaultSettings()
			s.Query = second
			_, err := n.Ranker.PreviewNew(ctx, s, 1)
			return err
		}, `task.preview done {"query_sha256": "` + sum(second) + `", "recheck_sha256": null}`},
		{func() error { return n.DeleteTask(ctx, "credits", 0) }, `task.delete credits done {}`},
		{func() error { _, err := n.Redrive(ctx, "jobs", nil, "mia"); return err }, `items.redrive jobs done {"count": 1, "named": false}`},
		{func() error { _, err := n.Redrive(ctx, "jobs", []string{"a", "zz"}, "mia"); return err }, `items.redrive jobs done {"count": 0, "named": true}`},
		{func() error {
			_, err := n.Reassign(ctx, held[1].ID, assign.Reassignment{User: "bob", Force: true}, "mia")
			return err
		},
			`work.reassign ann done {"to": "bob", "from": "ann", "item": "b", "task": "jobs", "work": ` + fmt.Sprint(held[1].ID) + `, "given": `},
		{func() error { _, _, err := n.Give(ctx, "jobs", "a", assign.Reassignment{User: "bob"}); return err },
			`items.give bob done {"item": "a", "task": "jobs", "work": `},
		{func() error { return release(assign.Release{User: "ann", Task: "jobs"}) }, `work.release ann done {"task": "jobs", "user": "ann", "count": 2, "requests": 0}`},
		{func() error { return release(assign.Release{Task: "jobs"}) }, `work.release jobs done {"task": "jobs", "user": "", "count": 2, "requests": 0}`},
	} {
		name, _, _ := strings.Cut(act.want, "{")
		enginetest.Execute(t, db, `alter table getwork.audit add constraint broken check (false) not valid`)
		before := enginetest.Query[string](t, db, selectEverything)
		if err := act.do(); err == nil || !strings.Contains(err.Error(), "broken") {
			t.Fatalf("%s: without its row: %v", name, err)
		}
		if after := enginetest.Query[string](t, db, selectEverything); after != before {
			t.Errorf("%s happened without its row", name)
		}
		enginetest.Execute(t, db, `alter table getwork.audit drop constraint broken`)
		rows := enginetest.Query[int](t, db, `select count(*) from getwork.audit`)
		if err := act.do(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := enginetest.Query[string](t, db, selectAudited, rows); !strings.HasPrefix(got, "mia session s:1 192.0.2.1 "+act.want) || strings.Contains(got, ";") {
			t.Errorf("audited: %s\nwant     %s", got, act.want)
		}
	}
}

// What is refused, what changes nothing, and what is only asked for writes nothing.
func TestFailedActsAreNotAudited(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n, db := audited(t, url), enginetest.Pool(t, url)
	enginetest.NewInbox(t, n, "jobs", nil)
	enginetest.NewTask(t, n, "loans", `select 1 as item`, nil)
	n.PushKeys(t, "jobs", "a", "b")
	held := n.Click(t, "jobs", "ann", 1).Work[0]
	rows := enginetest.Query[int](t, db, `select count(*) from getwork.audit`)
	ctx := asMia(t)
	ok := errors.New("no error")
	for name, do := range map[string]func() error{
		"create what is there": func() error {
			s := assign.DefaultSettings()
			s.Name = "jobs"
			_, err := n.CreateTask(ctx, s, "mia")
			return err
		},
		"create with a wrong query": func() error {
			s := assign.DefaultSettings()
			s.Name, s.Query = "x", `selec`
			_, err := n.CreateTask(ctx, s, "mia")
			return err
		},
		"update an old version": func() error {
			_, err := n.UpdateTask(ctx, "jobs", 7, "mia", func(*assign.Settings) error { return nil })
			return err
		},
		"rename to what is there": func() error {
			_, err := n.UpdateTask(ctx, "jobs", 1, "mia", func(s *assign.Settings) error { s.Name = "loans"; return nil })
			return err
		},
		"restore nothing":  func() error { _, err := n.Restore(ctx, "jobs", 9, 0, "mia", nil); return err },
		"delete in use":    func() error { return n.DeleteTask(ctx, "jobs", 0) },
		"preview nothing":  func() error { _, err := n.Ranker.Preview(ctx, "nothing", nil, 1); return err },
		"preview too much": func() error { _, err := n.Ranker.Preview(ctx, "loans", nil, 1000); return err },
		"redrive nothing":  func() error { _, err := n.Redrive(ctx, "nothing", nil, "mia"); return err },
		"reassign to their own": func() error {
			_, err := n.Reassign(ctx, held.ID, assign.Reassignment{User: "ann"}, "mia")
			return errors.Join(ok, err)
		},
		"cancel their own": func() error {
			r := n.Linger(t, "loans", "mia", 1)
			_, err := n.Cancel(ctx, r.ID, assign.Holder{User: "mia"}, true)
			return errors.Join(ok, err)
		},
		"reassign nothing": func() error {
			_, err := n.Reassign(ctx, 1<<40, assign.Reassignment{User: "bob", Force: true}, "mia")
			return err
		},
		"release with another's token": func() error { _, err := n.Release(ctx, assign.Release{User: "ann", Token: "x"}, "mia"); return err },
		"count what could be released": func() error {
			_, err := n.Release(ctx, assign.Release{User: "ann", DryRun: true}, "mia")
			return errors.Join(ok, err)
		},
	} {
		if err := do(); err == nil {
			t.Errorf("%s: there is no error", name)
		}
		if got := enginetest.Query[string](t, db, selectAudited, rows); got != "" {
			t.Fatalf("%s: audited: %s", name, got)
		}
	}
}

// Clicks and what people do with their work go on while nobody can touch the audit.
func TestClicksDoNotTouchTheAudit(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n, db := audited(t, url), enginetest.Pool(t, url)
	enginetest.NewInbox(t, n, "jobs", func(s *assign.Settings) { s.Lease = enginetest.Lasting(1e12) })
	enginetest.NewTask(t, n, "loans", `select i as item from generate_series(1, 9) i order by i`, func(s *assign.Settings) { s.FreshFor = assign.Duration(1e12) })
	tx, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := tx.Exec(t.Context(), `lock getwork.audit, getwork.audit_head`); err != nil {
		t.Fatal(err)
	}
	n.PushKeys(t, "jobs", "a", "b", "c")
	held := n.Click(t, "jobs", "ann", 2).Work
	if _, err := n.Extend(t.Context(), held[0].ID, held[0].Holder()); err != nil {
		t.Error(err)
	}
	n.Let(t, held[0], assign.Disposition{Outcome: "complete"})
	n.Let(t, held[1], enginetest.GiveBack(0))
	for range 3 { // by a run, and from its shelf
		if r := n.EndedRequest(t, n.Click(t, "loans", "bob", 2).ID); len(r.Work) != 2 {
			t.Errorf("bob got %+v", r)
		}
	}
	if _, _, err := n.Claim(t.Context(), "loans", "9", enginetest.Who("cyd")); err != nil {
		t.Error(err)
	}
	if _, err := n.Cancel(t.Context(), n.Linger(t, "jobs", "dan", 5).ID, assign.Holder{User: "dan"}, false); err != nil && !assign.IsRefusal(err, assign.NotPending) {
		t.Error(err)
	}
}

// Managers who act at the same time, on the same things, write one chain.
func TestActsAtOnce(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	url := schematest.URL(t)
	n, other, db := audited(t, url), audited(t, url), enginetest.Pool(t, url)
	for _, task := range []string{"one", "two"} {
		enginetest.NewInbox(t, n, task, nil)
		for i := range 20 {
			n.PushKeys(t, task, fmt.Sprint(i))
		}
		n.Click(t, task, "ann", 5)
	}
	before := enginetest.Query[int](t, db, `select n from getwork.audit_head`)
	done := make(chan struct{}, 1000)
	var g errgroup.Group
	for i := range 8 {
		on, task := []*enginetest.Node{n, other}[i%2], []string{"one", "two"}[i/2%2]
		users := []string{"ann", "bob"}
		g.Go(func() error {
			for j := range 6 {
				if err := actOnce(asMia(t), db, on, task, users, i+j); err == nil {
					done <- struct{}{}
				} else if r := (*assign.Refusal)(nil); !errors.As(err, &r) {
					return err
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	if got, acts := enginetest.Query[int](t, db, `select count(*) from getwork.audit where n > $1`, before), len(done); got != acts || acts < 8 {
		t.Errorf("%d rows for %d acts", got, acts)
	}
	if gaps := enginetest.Query[int](t, db, `select count(*) from getwork.audit a where n > 1 and prev <> all (select hash from getwork.audit b where b.n = a.n - 1)`); gaps > 0 {
		t.Errorf("%d rows do not follow the row before them", gaps)
	}
}

// actOnce changes a task, moves work from one user to the other, or releases it.
func actOnce(ctx context.Context, db *pgxpool.Pool, n *enginetest.Node, task string, users []string, i int) error {
	switch i % 3 {
	case 0:
		now, err := n.Task(ctx, task)
		if err != nil {
			return err
		}
		_, err = n.UpdateTask(ctx, task, now.Version, "mia", func(s *assign.Settings) error {
			s.Slots = 1 + i%2
			if s.ConflictsWith = []string{}; i%4 == 0 && task == "one" {
				s.ConflictsWith = []string{"two"}
			}
			return nil
		})
		return err
	case 1:
		var id int64
		if err := db.QueryRow(ctx, `select coalesce(max(id), 1) from getwork.work where user_name = $1 and state = 'held'`, users[i%2]).Scan(&id); err != nil {
			return err
		}
		w, err := n.Work(ctx, id)
		if err == nil && w.User == users[1-i%2] {
			return assign.Refuse(assign.NotFound, "theirs already")
		}
		if err == nil {
			_, err = n.Reassign(ctx, id, assign.Reassignment{User: users[1-i%2], Force: true}, "mia")
		}
		return err
	}
	_, err := n.Redrive(ctx, task, nil, "mia")
	return err
}
