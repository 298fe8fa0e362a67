package client

import (
	"context"
	"time"

	"getwork/assign"
)

// Me is the caller's identity as the server knows it.
type Me struct {
	User   string   `json:"user"`
	Role   string   `json:"role"`
	Groups []string `json:"groups"`
	Admin  bool     `json:"admin"` // may manage people

	By     string     `json:"by"`      // how they came in: dev, session, token, jwt or proxy
	EndsAt *time.Time `json:"ends_at"` // when that ends by itself; nil: it does not

	Open    int             `json:"open"`     // how many items they hold, over all tasks
	MaxOpen *int            `json:"max_open"` // how many they may hold; nil: no limit binds them
	Away    *assign.Absence `json:"away"`     // nil: they are here
}

// WhoAmI returns the caller's identity as the server knows it.
func (c *Client) WhoAmI(ctx context.Context, options ...Option) (me Me, err error) {
	err = c.get(ctx, path("me"), nil, &me, options)
	return me, err
}

// Day reads what became of the caller's own work since then (the zero time: a day ago), and what is left.
func (c *Client) Day(ctx context.Context, from time.Time, options ...Option) (d assign.Day, err error) {
	err = c.get(ctx, path("day"), query("since", since(from)), &d, options)
	return d, err
}

// Alerts lists what is wrong with tasks now, most urgent first. For observers and managers.
func (c *Client) Alerts(ctx context.Context, options ...Option) (alerts []assign.Alert, err error) {
	err = c.get(ctx, path("alerts"), nil, &alerts, options)
	return alerts, err
}

// Span selects what a report counts.
type Span struct {
	Task string          // or several, separated by commas; empty for all
	From time.Time       // if zero, six hours ago for a history, a day ago for returns
	Step assign.Duration // the length of a history's buckets, 10 s to 24 h; 5 min if 0
	Days bool            // a history's buckets are days instead
	Zone string          // of these, such as Europe/Zurich; empty: the database's
}

// History counts requests, waits, runs and work in steps of time. For observers and managers.
func (c *Client) History(ctx context.Context, s Span, options ...Option) (h assign.History, err error) {
	step := ""
	if s.Step != 0 {
		step = s.Step.String()
	}
	if s.Days {
		step = "1d"
	}
	err = c.get(ctx, path("history"), query("task", s.Task, "from", since(s.From), "step", step, "zone", s.Zone), &h, options)
	return h, err
}

// Returns lists what users did and hold, those who return much first, and the items that many return. For observers and managers.
func (c *Client) Returns(ctx context.Context, s Span, options ...Option) (r assign.Returns, err error) {
	err = c.get(ctx, path("returns"), query("task", s.Task, "from", since(s.From)), &r, options)
	return r, err
}
