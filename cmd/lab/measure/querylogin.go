package measure

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"getwork/cmd/internal/bench"
	"getwork/cmd/internal/bench/stage"
	"getwork/schema"
)

func queryLoginParts() []bench.Part[runCost] {
	of := func(key, name string, goal *bench.Goal, of func(runCost) float64) bench.Part[runCost] {
		return bench.Part[runCost]{Key: "query_login_" + key, Name: name + ", queries under a login of their own to under the node's", Same: "the same to itself", Goal: goal, Of: of}
	}
	return []bench.Part[runCost]{
		of("rate", "Clicks per second, one renewal included, 64 users", bench.AtLeast(0.9), func(c runCost) float64 { return c.Rate }),
		of("cpu_database", "The database's CPU for such a click", bench.AtMost(1.1), func(c runCost) float64 { return c.Database }),
		of("cpu_node", "The node's CPU for such a click", bench.AtMost(1.1), func(c runCost) float64 { return c.Nodes }),
		of("list", "A run of a query that lists its items", bench.AtMost(1.1), func(c runCost) float64 { return c.list }),
		of("compute", "A run of a query that computes", bench.AtMost(1.1), func(c runCost) float64 { return c.compute }),
	}
}

func queryLoginFigures(*stage.Env) []*bench.Figure { return bench.Ratios(queryLoginParts()) }

// queryLogin compares nodes whose queries have a login of their own, as in production, with nodes whose queries use the node's, on
// the same database.
func queryLogin(ctx context.Context, r *bench.Rounds) error {
	return onQueryLogin(ctx, r.Env, func(own *stage.Env) error {
		with := func(e *stage.Env) func(context.Context) (runCost, error) {
			return func(ctx context.Context) (runCost, error) { return takeRuns(ctx, e) }
		}
		for range r.Each() {
			if err := bench.Compare(ctx, r, queryLoginParts(), with(own), with(r.Env)); err != nil {
				return err
			}
		}
		return nil
	})
}

// runCost is what clicks cost while a shelf is renewed, and how long runs take on an idle node, in ms.
type runCost struct {
	stage.Cost
	list, compute float64
}

func takeRuns(ctx context.Context, e *stage.Env) (c runCost, err error) {
	err = e.On(ctx, 1, func(s *stage.Stage) error {
		const clicks, computes = "clicks", "computes"
		candidates := stage.Sized(e, 20_000, 300_000)
		if err := s.MakeItems(ctx, 3*candidates); err != nil {
			return err
		}
		if err := addPayments(ctx, s); err != nil {
			return err
		}
		if c.compute, err = firstRun(ctx, s, computes, fmt.Sprintf(rankPayments, 1), 1_000_000, stage.UntilEnd); err != nil {
			return err
		}
		window := stage.Sized(e, 2*time.Second, 16*time.Second)
		if c.list, err = firstRun(ctx, s, clicks, stage.ItemsQuery, candidates, window); err != nil {
			return err
		}
		began := time.Now()
		l := stage.Load{Task: clicks, Users: 64, Most: 3*candidates/stage.WantedEach - 64}
		out, err := s.Measure(ctx, l, window, func() (bool, error) {
			runs, err := s.Runs(ctx, clicks)
			return stage.Swapped(runs, began.Add(stage.WarmUp), time.Now()), err
		})
		if err != nil {
			return err
		}
		c.Cost = out.Cost()
		return s.Check(ctx, clicks)
	})
	return c, err
}

// onQueryLogin makes a login for queries, and drops it after do.
func onQueryLogin(ctx context.Context, e *stage.Env, do func(own *stage.Env) error) error {
	u, err := url.Parse(e.DatabaseURL)
	if err != nil || u.Scheme == "" {
		return errors.New("make a login for queries: give --database-url as postgres://…")
	}
	own, secret := *e, rand.Text()
	own.QueryLogin = stage.SchemaPrefix + strings.ToLower(rand.Text()[:8])
	u.User = url.UserPassword(own.QueryLogin, secret)
	own.QueryURL = u.String()
	conn, err := e.Connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	login := schema.Name(own.QueryLogin).Quoted()
	defer e.Drop(ctx, "role if exists "+login)
	if _, err := conn.Exec(ctx, fmt.Sprintf("create role %s login password '%s'", login, secret)); err != nil {
		return fmt.Errorf("make a login for queries, which the login of --database-url must be allowed to: %w", err)
	}
	return do(&own)
}
