package ranking

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
)

// Compare executes a task's query and another one on one snapshot, and says how the other ranks differently. It writes nothing. A seed
// from -1 to 1 makes both draw the same random numbers. limit is 1 to 1,000: how many of the best are listed.
// [assign.QueryRefused] carries PostgreSQL's error of the other query; that of the task's own is in the answer. [assign.Busy] says that
// others' queries took too long.
func (q *Ranker) Compare(ctx context.Context, task string, to assign.Contender, limit int, seed *float64) (assign.Comparison, error) {
	var c assign.Comparison
	id, s, err := q.Records.Find(ctx, task, assign.Who{Anything: true})
	if err != nil {
		return c, err
	}
	t, err := q.Records.Task(ctx, task)
	if err != nil {
		return c, err
	}
	c.Task, c.Version = t.Name, t.Version
	other := s
	if other.Query, err = q.contender(ctx, t, to); err != nil {
		return c, err
	}
	switch {
	case s.Inbox():
		return c, assign.RefuseField("task", "task %q is an inbox, which has no ranking to compare with", task)
	case limit < 1 || limit > 1000:
		return c, assign.RefuseField("limit", "a comparison lists the best 1 to 1000 items, not %d", limit)
	case seed != nil && (*seed < -1 || *seed > 1):
		return c, assign.RefuseField("seed", "a seed is a number from -1 to 1, not %v", *seed)
	}
	if err := other.Check(); err != nil {
		return c, err
	}
	if q.Comparing != nil {
		if err := q.Comparing(ctx, task, &other); err != nil {
			return c, err
		}
	}
	var before, after ranked
	err = q.AskSlot(ctx, func(ctx context.Context) error {
		if err := q.TryQuery(ctx, other.Query); err != nil {
			return err
		}
		// An old snapshot holds vacuum back: each query has its time-out, and both together have half as much again.
		both := other
		both.QueryTimeout += both.QueryTimeout / 2
		still := *q
		still.snapshot = pgx.RepeatableRead
		return still.inTx(ctx, both, "query", func(ctx context.Context, tx pgx.Tx) error {
			ctx, cancel := context.WithTimeoutCause(ctx, time.Duration(both.QueryTimeout),
				&ErrQuery{fmt.Sprintf("both queries together took longer than the query_timeout of %s and half as much again", s.QueryTimeout)})
			defer cancel()
			err := q.admit(ctx, tx, "query", s.Query)
			if err == nil {
				err = q.rank(ctx, tx, id, s, limit, seed, &before)
			}
			var fault *ErrQuery
			var refusal *assign.Refusal
			switch {
			case err == nil:
			case errors.As(err, &fault) && ctx.Err() == nil:
				before.Error = fault.Message
			case errors.As(err, &refusal) && refusal.Kind == assign.QueryRefused:
				before.Error = refusal.Detail
			default:
				return err
			}
			return q.rank(ctx, tx, id, other, limit, seed, &after)
		})
	})
	if err != nil {
		return c, err
	}
	c.Old, c.New = before.Ranking, after.Ranking
	if before.Error == "" {
		differ(&c, &before, &after, limit)
	}
	return c, q.markHeld(ctx, id, &c)
}

// contender returns the query that a task's own is compared with.
func (q *Ranker) contender(ctx context.Context, t assign.Task, to assign.Contender) (assign.Query, error) {
	switch {
	case (to.Query == nil) == (to.Version == nil):
		return "", assign.RefuseField("query", "send the query to compare with, or the number of a version that has it: one of the two")
	case to.Query != nil:
		return *to.Query, nil
	}
	versions, err := q.Records.VersionsOf(ctx, t.ID, int64(*to.Version)+1, 1)
	if err != nil {
		return "", err
	}
	if len(versions) == 0 || versions[0].Version != *to.Version {
		return "", assign.RefuseField("version", "task %q has no version %d; its versions are 1 to %d", t.Name, *to.Version, t.Version)
	}
	if versions[0].Query == "" {
		return "", assign.RefuseField("version", "version %d of task %q was an inbox, which has no ranking to compare with", *to.Version, t.Name)
	}
	return versions[0].Query, nil
}

// ranked is what one query returned.
type ranked struct {
	assign.Ranking
	best []string         // the items that are listed, best first
	at   map[uint64]int32 // each item's rank, by its key's hash
}

// keys hashes items for comparisons. Two of a million items have the same hash in one of thirty million comparisons.
var keys = maphash.MakeSeed()

// rank executes a query in a transaction for user SQL, and leaves the transaction as it was.
func (q *Ranker) rank(ctx context.Context, tx pgx.Tx, task int64, s assign.Settings, limit int, seed *float64, into *ranked) error {
	settings := limitStatements(s.QueryTimeout)
	if q.Queries == nil {
		settings = q.enterQuery(s.QueryTimeout)
	}
	if seed != nil {
		settings += "; select setseed(" + strconv.FormatFloat(*seed, 'g', -1, 64) + ")"
	}
	if _, err := tx.Exec(ctx, "savepoint ranking; "+settings, pgx.QueryExecModeSimpleProtocol); err != nil {
		return fmt.Errorf("enter the query: %w", err)
	}
	began := time.Now()
	err := q.rankAll(ctx, tx, task, s, limit, into)
	took := time.Since(began)
	after, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if left := leaveTo(after, tx, "ranking", err); left != nil {
		return errors.Join(tooLarge(err), left)
	}
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return cause
	}
	return FaultOf(err, took, s.QueryTimeout)
}

// rankAll reads a query's rows. It keeps the ranks of as many items as a run would keep; where queries have a database of their own, it
// reads no more than that, as a run.
func (q *Ranker) rankAll(ctx context.Context, tx pgx.Tx, task int64, s assign.Settings, limit int, into *ranked) error {
	var p assign.Preview
	if err := explainPreview(ctx, tx, &p, q.Wrapped(s.Query, task, s.Slots)); err != nil {
		return err
	}
	into.Plan, into.Cost = p.Plan, p.Cost
	began := time.Now()
	rows, end, err := q.begin(ctx, tx, task, s)
	if err != nil {
		return err
	}
	defer end()
	into.at = map[uint64]int32{}
	for (q.Queries == nil || into.Items < s.MaxCandidates) && rows.Next() {
		row := rows.RawValues()
		item, exclusive := row[0], row[2]
		slots, err := strconv.Atoi(string(row[1]))
		if err != nil {
			return fmt.Errorf("read the slots: %w", err)
		}
		into.Given++
		key := maphash.Bytes(keys, item)
		if _, repeated := into.at[key]; repeated || len(item) == 0 || len(item) > maxKey || slots < 1 || len(exclusive) > maxKey || len(exclusive) > 0 && slots > 1 {
			into.PassedOver++
			continue
		}
		if into.Items == s.MaxCandidates {
			continue // counted only
		}
		into.Items++
		into.at[key] = int32(into.Items)
		if into.Items <= limit {
			into.best = append(into.best, string(item))
		}
	}
	into.DurationMS = float64(time.Since(began).Microseconds()) / 1000
	return rows.Err()
}

// rankOf returns an item's rank; nil if the query does not return it.
func (r *ranked) rankOf(item string) *int {
	at, is := r.at[maphash.String(keys, item)]
	if !is {
		return nil
	}
	return new(int(at))
}

// within reports whether a rank is among the best n.
func within(rank *int, n int) bool { return rank != nil && *rank <= n }

// differ says what comes into the best of a ranking, falls out and moves, and how much of both is the same.
func differ(c *assign.Comparison, before, after *ranked, limit int) {
	c.In, c.Out, c.Moved = []assign.Shift{}, []assign.Shift{}, []assign.Shift{}
	for i, item := range after.best {
		from, to := before.rankOf(item), i+1
		switch {
		case !within(from, limit):
			c.In = append(c.In, assign.Shift{Item: item, Rank: &to, From: from})
		case *from != to:
			c.Moved = append(c.Moved, assign.Shift{Item: item, From: from, To: &to})
		default:
			c.Same++
		}
	}
	for i, item := range before.best {
		rank, to := i+1, after.rankOf(item)
		if !within(to, limit) {
			c.Out = append(c.Out, assign.Shift{Item: item, Rank: &rank, To: to})
		}
	}
	c.Overlap = []assign.Overlap{{Best: 10}, {Best: 100}, {Best: 1000}}
	for key, from := range before.at {
		to, is := after.at[key]
		if !is {
			continue
		}
		c.Both++
		for i := range c.Overlap {
			if int(max(from, to)) <= c.Overlap[i].Best {
				c.Overlap[i].Common++
			}
		}
	}
	for i := range c.Overlap {
		o := &c.Overlap[i]
		o.Of = min(o.Best, max(before.Items, after.Items))
	}
}

const selectHeldItems = `select distinct item from getwork.work where task_id = $1 and state = 'held' and item = any($2::text[])`

// markHeld marks the listed items that somebody holds now.
func (q *Ranker) markHeld(ctx context.Context, task int64, c *assign.Comparison) error {
	var items []string
	lists := [][]assign.Shift{c.In, c.Out, c.Moved}
	for _, list := range lists {
		for _, s := range list {
			items = append(items, s.Item)
		}
	}
	if len(items) == 0 {
		return nil
	}
	rows, err := q.DB.Query(ctx, q.SQL(selectHeldItems), task, items)
	if err != nil {
		return fmt.Errorf("read what is held: %w", err)
	}
	held := map[string]bool{}
	var item string
	if _, err := pgx.ForEachRow(rows, []any{&item}, func() error { held[item] = true; return nil }); err != nil {
		return fmt.Errorf("read what is held: %w", err)
	}
	for _, list := range lists {
		for i := range list {
			list[i].Held = held[list[i].Item]
		}
	}
	return nil
}
