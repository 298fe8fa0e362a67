package engine

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"getwork/assign"
)

// The tables and the model are written as the same lines of text, and then compared: a difference reads as a sentence.

const (
	modelWorkRows = `
select w.id, w.item, w.slot, coalesce(w.exclusive, ''), w.user_name, w.instance, coalesce(w.request_id, 0), w.attempt, w.state,
  coalesce(extract(epoch from w.lease) / 3600, 0)::float8,
  case when w.state = 'held' then coalesce(extract(epoch from w.lease_expires_at - clock_timestamp()) / 3600, 0) else 0 end::float8,
  coalesce(extract(epoch from w.available_at - clock_timestamp()) / 3600, 0)::float8, w.to_others, w.exhausted, w.redriven_by is not null
from getwork.work w
where w.task_id = $1
order by w.id`

	modelRequestRows = `
select r.id, r.user_name, r.instance, r.wanted, r.requested, r.assigned, r.state, case when r.state = 'pending' then '' else coalesce(r.reason, '') end, coalesce(r.credential, ''), r.groups
from getwork.work_requested r
where r.task_id = $1
order by r.id`

	modelItemRows = `
select i.item, i.priority, coalesce(i.slots, 0), coalesce(i.exclusive, ''), i.due_at is null or i.due_at <= clock_timestamp()
from getwork.item i
where i.task_id = $1 and i.done_at is null
order by i.id`

	modelRunRow = `
select count(*), coalesce(max(r.given), 0), coalesce(max(r.blocked), 0), coalesce(max(r.passed_over), 0), coalesce(max(r.candidates), 0),
  coalesce(bool_or(r.cut), false), (select count(*) from getwork.run r where r.task_id = $1 and r.state <> 'finished')
from (select * from getwork.run where task_id = $1 and state = 'finished' order by id desc limit 1) r`

	modelRunCount = `select count(*) from getwork.run where task_id = $1`
)

func modelInHours(h float64) string {
	if h <= 0.01 {
		return "now"
	}
	return fmt.Sprintf("in %.0f h", math.Ceil(h-0.01))
}

func (w *modelWork) line(now float64) string {
	var request int64
	if w.request != nil {
		request = w.request.id
	}
	until, available := 0.0, 0.0
	if w.state == "held" && w.lease > 0 {
		until = w.until - now
	}
	if w.state == "returned" || w.state == "failed" {
		available = w.availableAt - now
	}
	return modelWorkLine(w.id, w.item, w.slot, w.exclusive, w.holder, request, w.attempt, w.state, w.lease, until, available, w.toOthers, w.exhausted, w.redriven)
}

func modelWorkLine(id int64, item string, slot int, exclusive string, h assign.Holder, request int64, attempt int, state string,
	lease, until, available float64, others, exhausted, redriven bool) string {
	s := fmt.Sprintf("work %d: %s at %d %s by %s%s, attempt %d, for request %d", id, item, slot, state, h.User, h.Instance, attempt, request)
	if exclusive != "" {
		s += ", of group " + exclusive
	}
	if lease > 0 {
		s += fmt.Sprintf(", lease %.1f h", lease)
	}
	if lease > 0 && state == "held" {
		s += ", runs out " + modelInHours(until)
	}
	if state == "returned" || state == "failed" {
		s += ", available " + modelInHours(available)
	}
	if others {
		s += ", not to him again"
	}
	if exhausted {
		s += ", exhausted"
	}
	if redriven {
		s += ", redriven"
	}
	return s
}

// modelTables returns what the tables say of a task.
type modelTables struct {
	works, requests, items []string
	run                    string

	workIDs, requestIDs []int64
}

func readModelTables(ctx context.Context, db *pgxpool.Pool, task int64) (got modelTables, err error) {
	var batch pgx.Batch
	batch.Queue(modelWorkRows, task).Query(func(rows pgx.Rows) error {
		var id, request int64
		var item, exclusive, state string
		var slot, attempt int
		var h assign.Holder
		var lease, until, available float64
		var others, exhausted, redriven bool
		_, err := pgx.ForEachRow(rows, []any{&id, &item, &slot, &exclusive, &h.User, &h.Instance, &request, &attempt, &state, &lease, &until, &available,
			&others, &exhausted, &redriven}, func() error {
			got.workIDs = append(got.workIDs, id)
			got.works = append(got.works, modelWorkLine(id, item, slot, exclusive, h, request, attempt, state, lease, until, available, others, exhausted, redriven))
			return nil
		})
		return err
	})
	batch.Queue(modelRequestRows, task).Query(func(rows pgx.Rows) error {
		var id int64
		var h assign.Holder
		var wanted, requested, assigned int
		var state assign.State
		var reason assign.Reason
		var credential string
		var groups []string
		_, err := pgx.ForEachRow(rows, []any{&id, &h.User, &h.Instance, &wanted, &requested, &assigned, &state, &reason, &credential, &groups}, func() error {
			got.requestIDs = append(got.requestIDs, id)
			got.requests = append(got.requests, modelRequestLine(id, h, wanted, requested, assigned, state, reason)+modelStands(credential, groups))
			return nil
		})
		return err
	})
	batch.Queue(modelItemRows, task).Query(func(rows pgx.Rows) error {
		var it modelItem
		var ready bool
		_, err := pgx.ForEachRow(rows, []any{&it.key, &it.prio, &it.places, &it.exclusive, &ready}, func() error {
			got.items = append(got.items, modelItemLine(&it, ready))
			return nil
		})
		return err
	})
	batch.Queue(modelRunRow, task).QueryRow(func(row pgx.Row) error {
		var r modelRun
		var some, others int
		if err := row.Scan(&some, &r.given, &r.blocked, &r.passedOver, &r.candidates, &r.cut, &others); err != nil {
			return err
		}
		got.run = fmt.Sprintf("%+v, %d runs did not finish", r, others)
		return nil
	})
	batch.Queue(modelRunCount, task).QueryRow(func(row pgx.Row) error {
		var runs int
		err := row.Scan(&runs)
		got.run = fmt.Sprintf("%d runs, the last %s", runs, got.run)
		return err
	})
	return got, db.SendBatch(ctx, &batch).Close()
}

func modelRequestLine(id int64, h assign.Holder, wanted, requested, assigned int, state assign.State, reason assign.Reason) string {
	return fmt.Sprintf("request %d: %s%s wants %d: (%d, %d) %s %s", id, h.User, h.Instance, wanted, requested, assigned, state, reason)
}

// modelStands says what a request stands on.
func modelStands(credential string, groups []string) string {
	return fmt.Sprintf(" under %s with groups %q", credential, groups)
}

func modelItemLine(it *modelItem, ready bool) string {
	return fmt.Sprintf("item %s, priority %d, %d places, group %q, ready %t", it.key, it.prio, it.places, it.exclusive, ready)
}

// compare returns how the tables differ from the model; empty: not at all. The model learns ids here.
func (t *modelTask) compare(got modelTables) string {
	if len(t.works) == len(got.works) {
		for i, w := range t.works {
			w.id = cmp.Or(w.id, got.workIDs[i])
		}
	}
	if len(t.requests) == len(got.requests) {
		for i, r := range t.requests {
			r.id = cmp.Or(r.id, got.requestIDs[i])
		}
	}
	var works, requests, items []string
	for _, w := range t.works {
		works = append(works, w.line(t.now))
	}
	for _, r := range t.requests {
		requests = append(requests, modelRequestLine(r.id, r.holder, r.wanted, r.requested, r.assigned, r.state, r.reason)+modelStands(r.credential, r.groups))
	}
	for _, it := range t.items {
		if t.inbox {
			items = append(items, modelItemLine(it, t.ready(it)))
		}
	}
	run := fmt.Sprintf("%d runs, the last %+v, 0 runs did not finish", t.runs, t.ran)
	return modelDiff(slices.Concat(works, requests, items, []string{run}), slices.Concat(got.works, got.requests, got.items, []string{got.run}))
}

// modelDiff returns the lines that only one of the two has, or all of both if only their order differs.
func modelDiff(model, tables []string) string {
	if slices.Equal(model, tables) {
		return ""
	}
	text := ""
	for sign, lines := range map[string][2][]string{"model  ": {model, tables}, "tables ": {tables, model}} {
		for _, line := range lines[0] {
			if !slices.Contains(lines[1], line) {
				text += "\n" + sign + line
			}
		}
	}
	return cmp.Or(text, fmt.Sprintf("\nmodel  %q\ntables %q", model, tables))
}
