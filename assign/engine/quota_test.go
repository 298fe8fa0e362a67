package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"getwork/assign"
	"getwork/assign/pg"
	"getwork/assign/ranking"
	"getwork/schema/schematest"
)

// limitTo makes a version of the limits.
func limitTo(t testing.TB, db *pgxpool.Pool, everybody *int, groups, people *string) {
	t.Helper()
	execute(t, db, `insert into getwork.limits (version, created_by, everybody, groups, people)
select coalesce(max(version), 0) + 1, 'boss', $1, $2, $3 from getwork.limits`, everybody, groups, people)
}

// Rounds of two tasks share no lock. Each finds the user's last seat free; the index lets one take it, and the other plans again,
// whatever it is: a click, a run's round, a claim or a reassignment.
func TestLimitOverTwoTasks(t *testing.T) {
	t.Parallel()
	atEachLevel(t, func(t *testing.T, url string) {
		db := pool(t, url)
		a, b := still(t, url), still(t, url)
		ra, rb := startNode(t, url, nodeOptions{}), startNode(t, url, nodeOptions{})
		for _, s := range []string{"a", "b"} {
			newInbox(t, a, "inbox-"+s, nil)
			newTask(t, a, "shelf-"+s, `select i as item from generate_series(1, 100) i order by i`, fresh(time.Hour))
			newTask(t, a, "run-"+s, `select i as item from generate_series(1, 100) i order by i`, nil)
			ra.take(t, "shelf-"+s, "before "+s)
		}
		limitTo(t, db, new(2), nil, nil)
		l := newLatch(t, db)
		act := func(n, running *node, how, s string) func() error {
			var w assign.Work
			if how == "reassign" {
				n.push(t, "inbox-"+s, "of zoe in "+s)
				w = n.serve(t, "inbox-"+s, "zoe", 1).Work[0]
			}
			return func() error {
				switch how {
				case "claim":
					_, _, err := n.Claim(t.Context(), "shelf-"+s, "77", who("ann"))
					return err
				case "reassign":
					_, err := n.Reassign(t.Context(), w.ID, assign.Reassignment{User: "ann", Force: true}, "boss")
					return err
				case "run":
					r, err := running.GetWork(t.Context(), "run-"+s, oneFor("ann"))
					if err == nil {
						r = running.endedRequest(t, r.ID)
					}
					return got1(r, err)
				}
				return got1(n.tryServe(t.Context(), how+"-"+s, oneFor("ann")))
			}
		}
		for _, ways := range [][2]string{{"inbox", "inbox"}, {"shelf", "shelf"}, {"run", "run"}, {"claim", "claim"}, {"reassign", "reassign"}, {"inbox", "run"}, {"reassign", "shelf"}, {"claim", "inbox"}, {"run", "claim"}, {"shelf", "reassign"}} {
			t.Run(ways[0]+" and "+ways[1], func(t *testing.T) {
				for _, s := range []string{"a", "b"} {
					a.push(t, "inbox-"+s, "1")
				}
				first, second := act(a, ra, ways[0], "a"), act(b, rb, ways[1], "b")
				execute(t, db, `insert into getwork.work (task_id, item, user_name, seat) values (0, 'elsewhere', 'ann', 1)`)
				runs := query[int](t, db, `select count(*) from getwork.run`)
				one, two := l.race(t, first, second, nil)
				if (one == nil) == (two == nil) {
					t.Errorf("the first: %v, the second: %v", one, two)
				}
				wantKind(t, cmp.Or(one, two), assign.NotAvailable) // a reassignment is held before it looks at the seats
				if got := query[[]int32](t, db, `select array_agg(seat order by seat) from getwork.work where state = 'held' and user_name = 'ann'`); !slices.Equal(got, []int32{1, 2}) {
					t.Errorf("ann has the seats %d", got)
				}
				if ran := query[int](t, db, `select count(*) from getwork.run`) - runs; ran > 2 {
					t.Errorf("%d runs: a run's result is kept", ran)
				}
				execute(t, db, `delete from getwork.work`)
				execute(t, db, `delete from getwork.item`)
				execute(t, db, `update getwork.task_state set shelf_from = 1`)
			})
		}
	})
}

// A limit counts what is held over all tasks, with or without a seat. Lowering it takes nothing away. Whoever holds as much gets no
// more, and makes no query run.
func TestLimitOverAll(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	db := pool(t, url)
	n := startNode(t, url, nodeOptions{})
	newTask(t, n, "run", `select i as item from generate_series(1, 100) i order by i`, func(s *assign.Settings) { s.MaxRequest, s.MaxOpen = 50, new(30) })
	newInbox(t, n, "inbox", func(s *assign.Settings) { s.MaxRequest = 50 })
	for i := range 50 {
		n.push(t, "inbox", fmt.Sprint(i))
	}
	want := func(task, user string, wanted int, state assign.State, got int, reason assign.Reason) assign.Request {
		t.Helper()
		r := n.endedRequest(t, n.click(t, task, user, wanted).ID)
		if r.State != state || len(r.Work) != got || why(r) != reason {
			t.Errorf("%s wants %d of %s: %s %d %q, want %s %d %q", user, wanted, task, r.State, len(r.Work), why(r), state, got, reason)
		}
		return r
	}
	seats := func(user string) []int32 {
		return query[[]int32](t, db, `select coalesce(array_agg(seat order by seat), '{}') from getwork.work where state = 'held' and seat is not null and user_name = $1`, user)
	}

	old := want("inbox", "ann", 2, assign.Assigned, 2, "")
	if got := seats("ann"); len(got) != 0 {
		t.Errorf("without a limit ann has the seats %d", got)
	}
	limitTo(t, db, new(5), nil, nil)
	part := want("run", "ann", 4, assign.Partial, 3, assign.AtLimit)
	if got := seats("ann"); !slices.Equal(got, []int32{1, 2, 3}) {
		t.Errorf("ann has the seats %d", got)
	}
	if got := items(part); !slices.Equal(got, []string{"1", "2", "3"}) {
		t.Errorf("ann got %v, best first", got)
	}
	runs := query[int](t, db, `select count(*) from getwork.run`)
	want("run", "ann", 1, assign.None, 0, assign.AtLimit)
	want("inbox", "ann", 1, assign.None, 0, assign.AtLimit)
	if r, err := n.GetWork(t.Context(), "run", assign.Click{Holder: assign.Holder{User: "ann"}, Count: 1, Linger: assign.Duration(time.Hour)}); err != nil || why(r) != assign.AtLimit {
		t.Errorf("ann would linger: %v %v", r.State, err)
	}
	if got := query[int](t, db, `select count(*) from getwork.run`); got != runs {
		t.Errorf("the query ran %d times for somebody who is full", got-runs)
	}
	_, _, err := n.Claim(t.Context(), "inbox", "40", who("ann"))
	wantKind(t, err, assign.NotAvailable)
	if !strings.Contains(err.Error(), "holds 5 of 5") {
		t.Error(err)
	}
	bobs := want("inbox", "bob", 1, assign.Assigned, 1, "").Work[0]
	_, err = n.Reassign(t.Context(), bobs.ID, assign.Reassignment{User: "ann"}, "boss")
	wantKind(t, err, assign.NotAvailable)
	if !strings.Contains(err.Error(), "holds 5 of 5") {
		t.Error(err)
	}
	if _, err := n.Reassign(t.Context(), part.Work[0].ID, assign.Reassignment{User: "bob"}, "boss"); err != nil {
		t.Error(err)
	}

	limitTo(t, db, new(3), nil, nil) // ann holds 4
	want("inbox", "ann", 1, assign.None, 0, assign.AtLimit)
	if got := query[int](t, db, `select count(*) from getwork.work where state = 'held' and user_name = 'ann'`); got != 4 {
		t.Errorf("ann holds %d after the limit was lowered, want 4", got)
	}
	n.let(t, old.Work[0], giveBack(0))
	want("inbox", "ann", 1, assign.None, 0, assign.AtLimit)
	n.let(t, old.Work[1], giveBack(0))
	want("inbox", "ann", 2, assign.Partial, 1, assign.AtLimit)
	if got := seats("ann"); !slices.Equal(got, []int32{1, 2, 3}) {
		t.Errorf("ann has the seats %d, not the lowest ones", got)
	}

	limitTo(t, db, nil, nil, nil) // no limit any more
	want("inbox", "ann", 3, assign.Assigned, 3, "")
	limitTo(t, db, nil, new(`{"trainees": 0}`), nil)
	want("inbox", "ann", 1, assign.Assigned, 1, "")
	limitTo(t, db, new(0), nil, nil)
	want("inbox", "new", 1, assign.None, 0, assign.AtLimit)
}

// A person's own limit comes first, then the greatest of their groups, then everybody's; only its own binds a program.
func TestWhoseLimit(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	db := pool(t, url)
	n := startNode(t, url, nodeOptions{})
	newInbox(t, n, "inbox", func(s *assign.Settings) { s.MaxRequest = 50 })
	for i := range 300 {
		n.push(t, "inbox", fmt.Sprint(i))
	}
	limitTo(t, db, new(4), new(`{"trainees": 2, "seniors": 6, "free": null}`), new(`{"carol": 3, "dan": null, "robot": 5}`))
	for _, c := range []struct {
		who  string
		as   assign.Click
		want int
	}{
		{"everybody", assign.Click{}, 4},
		{"in another group", assign.Click{Groups: []string{"others"}}, 4},
		{"a trainee", assign.Click{Groups: []string{"trainees", "others"}}, 2},
		{"the greatest of two groups", assign.Click{Groups: []string{"trainees", "seniors"}}, 6},
		{"in a group without limit", assign.Click{Groups: []string{"trainees", "free"}}, 10},
		{"carol", assign.Click{Groups: []string{"seniors"}}, 3},
		{"dan", assign.Click{Groups: []string{"trainees"}}, 10},
		{"a manager", assign.Click{Anything: true}, 4},
		{"a program", assign.Click{Program: true, Groups: []string{"trainees"}}, 10},
		{"robot", assign.Click{Program: true, Groups: []string{"trainees"}}, 5},
	} {
		got := 0
		for i, instance := range []string{"", "copy"} { // all instances together
			click := c.as
			click.Holder, click.Count = assign.Holder{User: c.who, Instance: instance}, 5-i // 5, and with the other instance as much as is left of 10
			if i > 0 {
				click.Count = 10 - got
			}
			r, err := n.GetWork(t.Context(), "inbox", click)
			if err != nil {
				t.Fatal(err)
			}
			got += len(r.Work)
		}
		if got != c.want {
			t.Errorf("%s got %d, want %d", c.who, got, c.want)
		}
		execute(t, db, `delete from getwork.work`)
		execute(t, db, `update getwork.item set due_at = null`)
	}

	// What a program waits for is a program's, whichever node serves it, and so is what it is given.
	r, err := n.GetWork(t.Context(), "inbox", assign.Click{Holder: assign.Holder{User: "a program"}, Count: 6, Program: true})
	if err != nil || len(r.Work) != 6 {
		t.Fatal(r.State, err)
	}
	if _, err := n.Reassign(t.Context(), n.take(t, "inbox", "ann").ID, assign.Reassignment{User: "a program"}, "boss"); err != nil {
		t.Error(err)
	}
}

// Rounds of two tasks give seats to the same users, who have asked in opposite order. Inserted in one order they wait for each other
// in one direction. In the order of the requests they deadlock: that is what the statement without its order does here.
func TestSeatsInOppositeOrder(t *testing.T) {
	t.Parallel()
	for _, sorted := range []bool{true, false} {
		t.Run(fmt.Sprintf("sorted %t", sorted), func(t *testing.T) {
			t.Parallel()
			url := schematest.URL(t)
			db := pool(t, url)
			n := still(t, url)
			statement := insertSeated
			if !sorted {
				statement = strings.TrimSuffix(statement, "\norder by g.user_name collate \"C\", g.seat, g.n")
				if statement == insertSeated {
					t.Fatal("the statement is sorted in another way")
				}
			}
			insert := func(tx pgx.Tx, task int64, users ...string) error {
				var g grants
				for _, u := range users {
					g.add(waiter{holder: assign.Holder{User: u}}, &offer{cand: ranking.Candidate{Item: u, Details: "{}"}}, 1, nil, &quota{limit: 1})
				}
				var x pg.Writes
				g.insert(&x, &round{e: n.Engine, tx: tx, task: task}, nil, nil)
				if !sorted {
					_, err := tx.Exec(t.Context(), statement, task, nil, g.items, g.slots, g.exclusives, g.users, g.instances, g.requests, g.ranks, g.details, g.leases, g.attempts, g.deadlines, g.again, g.seats)
					return err
				}
				return x.Send(t.Context(), tx)
			}
			begin := func() pgx.Tx {
				tx, err := n.pools.API.BeginTx(t.Context(), pg.ReadCommitted)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
				return tx
			}
			// A third round holds mia's seat, so that each of the two is in the middle of its own.
			third := begin()
			if err := insert(third, 3, "mia"); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 2)
			for task, users := range [][]string{{"ann", "mia", "zoe"}, {"zoe", "mia", "ann"}} {
				tx := begin()
				go func() {
					err := insert(tx, int64(task), users...)
					if err == nil {
						err = tx.Commit(t.Context())
					}
					ended <- err
				}()
			}
			await(t, "both wait", func() bool { return schematest.LockWaits(t, db) == 2 })
			if err := third.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			codes := []string{}
			for range 2 {
				err := <-ended
				var pgErr *pgconn.PgError
				if errors.As(err, &pgErr) {
					codes = append(codes, pgErr.Code)
				} else if err != nil {
					t.Error(err)
				}
			}
			want := []string{"23505"} // refused, and plans again
			if !sorted {
				want = []string{"40P01"}
			}
			if !slices.Equal(codes, want) {
				t.Errorf("the rounds end with %v, want %v", codes, want)
			}
		})
	}
}
