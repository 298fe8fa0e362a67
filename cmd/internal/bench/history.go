package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// The history of a task that has been in use for two months: requests that were answered, and work that was completed,
// of the same items that are on the shelf now. Three items a request, as everywhere here.
const fillHistory = `
with asked as (
  insert into getwork.work_requested (task_id, user_name, wanted, requested, assigned, state, created_at, completed_at)
  select t.task_id, 'former ' || g % 2000, 3, 3, 3, 'assigned', w.at, w.at
  from generate_series($2::bigint, $3::bigint - 1) g
  cross join lateral (select clock_timestamp() - interval '60 days' * (1 - g::float8 / $4::bigint) as at) w
  join getwork.task_state t on t.name = $1
  returning id, task_id, user_name, completed_at
), numbered as (
  select *, $2::bigint + row_number() over () - 1 as n from asked
)
insert into getwork.work (task_id, item, user_name, request_id, details, assigned_at, state, closed_at, closed_by, closed_xid)
select a.task_id, (1 + (a.n * 3 + s) % $5::bigint)::text, a.user_name, a.id, '{"customer": "customer 1", "amount": 1}', a.completed_at,
  'completed', a.completed_at + interval '10 minutes', a.user_name, pg_current_xact_id()
from numbered a cross join generate_series(0, 2) s`

// chunk is how many requests one statement of the filling writes.
const chunk = 50_000

// rowBytes is what a row of work takes on the disk, with its indexes, its part of a request, and some of the log.
const rowBytes = 900

// history measures what a click costs with a long history, and with a short one.
func history(ctx context.Context, e *Env) ([]Figure, error) {
	short, long, items, window := 100_000, 10_000_000, 1_500_000, 5*time.Second
	if e.Quick {
		short, long, items, window = 10_000, 300_000, 400_000, 3*time.Second
	}
	long, note, err := e.longHistory(ctx, long)
	if err != nil {
		return nil, err
	}
	few, leave, err := e.past(ctx, short, items)
	if err != nil {
		return nil, err
	}
	defer leave()
	many, leave, err := e.past(ctx, long, items)
	if err != nil {
		return nil, err
	}
	defer leave()
	cpu := Figure{Key: "history_cpu", Name: fmt.Sprintf("CPU of a click with %s rows of work history, 64 users", thousands(long)), Unit: "µs", Goal: atMost(1.2), Note: note}
	cpuFew := Figure{Key: "limit_history_cpu", Name: "with " + thousands(short), Unit: "µs"}
	rate := Figure{Key: "history_clicks", Name: fmt.Sprintf("Clicks with %s rows of work history, 64 users", thousands(long)), Unit: "clicks/s"}
	rateFew := Figure{Key: "limit_history_clicks", Name: "with " + thousands(short), Unit: "clicks/s"}
	type part struct {
		past      *past
		cpu, rate *Figure
	}
	parts := []part{{many, &cpu, &rate}, {few, &cpuFew, &rateFew}}
	for round := range e.Rounds {
		for _, p := range parts {
			e.log("round %d of %d: clicks with %s rows of history", round+1, e.Rounds, thousands(p.past.rows))
			clicks, used, err := p.past.take(ctx, window)
			if err != nil {
				return nil, err
			}
			if used > 0 {
				p.cpu.Values = append(p.cpu.Values, used)
			}
			p.rate.Values = append(p.rate.Values, clicks)
		}
		slices.Reverse(parts) // what comes later is not always the slower one for it
	}
	rate.Limit = &rateFew
	if len(cpu.Values) == 0 {
		rate.Note = "CPU time is known only of a server on this machine, on Linux"
		return []Figure{rate}, nil
	}
	cpu.Limit = &cpuFew
	return []Figure{cpu, rate}, nil
}

// longHistory is how many rows there is room for.
func (e *Env) longHistory(ctx context.Context, want int) (rows int, note string, err error) {
	const cautious = 1_000_000
	free, err := e.freeDisk(ctx)
	switch {
	case errors.Is(err, errDiskUnknown) && want > cautious:
		return cautious, fmt.Sprintf("fewer than %s rows, since the server's disk can't be looked at from here", thousands(want)), nil
	case errors.Is(err, errDiskUnknown):
		return want, "", nil
	case err != nil:
		return 0, "", err
	}
	room := int(free / 2 / rowBytes)
	if room >= want {
		return want, "", nil
	}
	return room, fmt.Sprintf("fewer than %s rows, since the disk has only %d MB free", thousands(want), free>>20), nil
}

var errDiskUnknown = errors.New("the server's disk can't be looked at from here")

// freeDisk is how many bytes are free where the database's data is.
func (e *Env) freeDisk(ctx context.Context) (uint64, error) {
	if e.ServerPID == 0 {
		return 0, errDiskUnknown
	}
	conn, err := e.Connect(ctx)
	if err != nil {
		return 0, err
	}
	defer conn.Close(ctx)
	var dir *string
	const dataDirectory = `select setting from pg_settings where name = 'data_directory'` // no row for who may not see it
	if err := conn.QueryRow(ctx, `select (`+dataDirectory+`)`).Scan(&dir); err != nil {
		return 0, fmt.Errorf("ask where the data is: %w", err)
	}
	if dir == nil {
		return 0, errDiskUnknown
	}
	free, err := freeBytes(*dir)
	if err != nil {
		return 0, errDiskUnknown
	}
	return free, nil
}

// thousands writes a number with gaps, as people read it.
func thousands(n int) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + " " + text[i:]
	}
	return text
}

// past is a stage whose task has a history.
type past struct {
	*stage
	rows  int
	items []int64 // handed out so far
}

func (e *Env) past(ctx context.Context, rows, items int) (*past, func(), error) {
	s, leave, err := e.stage(ctx, 1)
	if err != nil {
		return nil, nil, err
	}
	p := &past{stage: s, rows: rows}
	err = s.makeItems(ctx, items)
	if err == nil {
		err = s.task(ctx, "past", itemsQuery, map[string]any{"max_candidates": min(items, 1_000_000), "fresh_for": "24h"})
	}
	if err == nil {
		err = p.fill(ctx, items)
	}
	if err == nil {
		p.items, err = s.fillShelf(ctx, "past")
	}
	if err != nil {
		leave()
		return nil, nil, err
	}
	return p, leave, nil
}

func (p *past) fill(ctx context.Context, items int) error {
	requests := p.rows / 3
	for from := 0; from < requests; from += chunk {
		if from%(10*chunk) == 0 {
			p.env.log("filling in a history of %s rows: %d %%", thousands(p.rows), 100*from/requests)
		}
		if err := p.exec(ctx, fillHistory, "past", from, min(from+chunk, requests), requests, items); err != nil {
			return fmt.Errorf("fill in a history: %w", err)
		}
	}
	for _, table := range []string{"work", "work_requested"} {
		if err := p.exec(ctx, `vacuum analyze getwork.`+table); err != nil {
			return fmt.Errorf("vacuum a history: %w", err)
		}
	}
	return nil
}

// take is one round: clicks a second, and the CPU time of one, in µs.
func (p *past) take(ctx context.Context, window time.Duration) (rate, cpu float64, err error) {
	l := load{url: p.nodes.URL(0), task: "past", users: 64, count: 3}
	out, used, err := p.measure(ctx, l, window, nil)
	if err != nil {
		return 0, 0, err
	}
	from, to := used[0], used[len(used)-1]
	clicks := float64(len(out.between(from.at, to.at)))
	spent := to.since(from)
	p.items = append(p.items, out.items...)
	return clicks / to.at.Sub(from.at).Seconds(), micros(spent.database+spent.nodes) / clicks, p.check(ctx, "past", p.items)
}
