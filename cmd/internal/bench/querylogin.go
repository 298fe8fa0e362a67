package bench

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"time"
)

// queryLoginParts are what is compared.
var queryLoginParts = []struct {
	key, name string
	goal      *Goal
	of        func(c runCost) float64
}{
	{"rate", "Clicks per second, one renewal included, 64 users", atLeast(0.9), func(c runCost) float64 { return c.rate }},
	{"cpu_database", "The database's CPU for such a click", atMost(1.1), func(c runCost) float64 { return c.database }},
	{"cpu_node", "The node's CPU for such a click", atMost(1.1), func(c runCost) float64 { return c.nodes }},
	{"list", "A run of a query that lists its items", atMost(1.1), func(c runCost) float64 { return c.list }},
	{"compute", "A run of a query that computes", atMost(1.1), func(c runCost) float64 { return c.compute }},
}

func queryLoginFigures(*Env) []*Figure {
	var all []*Figure
	for _, part := range queryLoginParts {
		key := "query_login_" + part.key
		all = append(all, &Figure{Key: key, Name: part.name + ", queries under a login of their own to under the node's", Unit: "x", Goal: part.goal},
			&Figure{Key: key + "_noise", Name: "the same to itself", Unit: "x"})
	}
	return all
}

// queryLogin compares nodes whose queries have a login of their own, as in production, with nodes whose queries use the
// node's, on the same database. Each round takes the first, the second, the second again and the first again.
func queryLogin(ctx context.Context, r *rounds) error {
	own := *r.Env
	own.queryLogin = true
	for range r.each() {
		var costs [4]runCost
		for i, e := range []*Env{&own, r.Env, r.Env, &own} {
			var err error
			if costs[i], err = e.runCost(ctx); err != nil {
				return err
			}
		}
		for _, part := range queryLoginParts {
			r.addABBA("query_login_"+part.key, part.of(costs[0]), part.of(costs[1]), part.of(costs[2]), part.of(costs[3]))
		}
	}
	return nil
}

// runCost is what clicks cost while a shelf is renewed, and how long runs take on an idle node, in ms.
type runCost struct {
	cost
	list, compute float64
}

func (e *Env) runCost(ctx context.Context) (c runCost, err error) {
	err = e.on(ctx, 1, func(s *stage) error {
		const clicks, computes = "clicks", "computes"
		candidates := sized(e, 20_000, 300_000)
		if err := s.makeItems(ctx, 3*candidates); err != nil {
			return err
		}
		if err := s.makePayments(ctx); err != nil {
			return err
		}
		if c.compute, err = s.firstRun(ctx, computes, fmt.Sprintf(rankPayments, 1), 1_000_000, untilEnd); err != nil {
			return err
		}
		window := sized(e, 2*time.Second, 16*time.Second)
		if c.list, err = s.firstRun(ctx, clicks, itemsQuery, candidates, window); err != nil {
			return err
		}
		began := time.Now()
		l := load{task: clicks, users: 64, most: 3*candidates/wantedEach - 64}
		out, err := s.measure(ctx, l, window, func() (bool, error) {
			runs, err := s.runs(ctx, clicks)
			return swapped(runs, began.Add(warmUp), time.Now()), err
		})
		if err != nil {
			return err
		}
		c.cost = out.cost()
		return s.check(ctx, clicks)
	})
	return c, err
}

// makeQueryLogin makes the login, which is named like the stage's schema.
func (s *stage) makeQueryLogin(ctx context.Context) error {
	u, err := url.Parse(s.DatabaseURL)
	if err != nil || u.Scheme == "" {
		return errors.New("make a login for queries: give --database-url as postgres://…")
	}
	secret := make([]byte, 16)
	_, _ = rand.Read(secret)
	u.User = url.UserPassword(string(s.name), hex.EncodeToString(secret))
	if _, err := s.conn.Exec(ctx, fmt.Sprintf("create role %s login password '%x'", s.name.Quoted(), secret)); err != nil {
		return fmt.Errorf("make a login for queries, which the login of --database-url must be allowed to: %w", err)
	}
	s.queryURL = u.String()
	return nil
}

// letQueriesRead lets the queries' login, if there is one, read a table of the stage.
func (s *stage) letQueriesRead(ctx context.Context, table string) error {
	if s.queryURL == "" {
		return nil
	}
	grant := fmt.Sprintf("grant usage on schema %[1]s to %[1]s; grant select on %[1]s.%[2]s to %[1]s", s.name.Quoted(), table)
	if _, err := s.conn.Exec(ctx, grant); err != nil {
		return fmt.Errorf("let queries read %s: %w", table, err)
	}
	return nil
}
