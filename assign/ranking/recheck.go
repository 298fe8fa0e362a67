package ranking

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"getwork/assign"
)

// A shelf holds what matched when its run was made. A task's recheck is a cheap query that says of a few items whether they
// still match: one SELECT that gets their keys as $1 text[], and returns those that match in a column item.
//
// It is wrapped for the same reasons as a ranking query, and so that it returns no item that it was not asked about.
const (
	recheckHead = `
select getwork_recheck.item::text collate "C"
from (
`
	recheckTail = `
) getwork_recheck
where getwork_recheck.item::text collate "C" = any($1)`
)

func wrapRecheck(recheck assign.Query) string { return recheckHead + recheck.Trimmed() + recheckTail }

// keysType is the type of $1, whatever PostgreSQL would infer from its first use in the query.
var keysType = []uint32{pgtype.TextArrayOID}

// Recheck asks the task's recheck which of the items still match; nil: the task has none. It is for claims and explanations, and
// executes the recheck as InTx does, so the caller must hold neither a connection of the API pool nor a lock.
// [assign.QueryRefused] is the recheck's own fault, its time-out included.
func (q *Ranker) Recheck(ctx context.Context, s assign.Settings, items []string) (map[string]bool, error) {
	return q.recheckIn(ctx, q.AskSlot, s, items)
}

// RecheckNow is Recheck for a round, with one of the node's run slots. If none is free it is refused with [assign.Busy] at
// once.
func (q *Ranker) RecheckNow(ctx context.Context, s assign.Settings, items []string) (map[string]bool, error) {
	return q.recheckIn(ctx, q.RunSlot, s, items)
}

func (q *Ranker) recheckIn(ctx context.Context, slot func(context.Context, func(context.Context) error) error, s assign.Settings, items []string) (map[string]bool, error) {
	if s.Recheck == "" {
		return nil, nil
	}
	var still map[string]bool
	err := slot(ctx, func(ctx context.Context) error {
		return q.inTx(ctx, s, "recheck", func(ctx context.Context, tx pgx.Tx) (err error) {
			still, err = queryRecheck(ctx, tx, s.Recheck, items)
			return err
		})
	})
	var refusal *assign.Refusal
	if errors.As(err, &refusal) && refusal.Kind == assign.QueryRefused {
		return nil, queryRefusal("recheck", "the task's recheck: %s", refusal.Detail)
	}
	if err != nil {
		return nil, fmt.Errorf("recheck: %w", err)
	}
	return still, nil
}

// queryRecheck executes a recheck in a transaction that was prepared for user SQL. Its errors are PostgreSQL's own.
func queryRecheck(ctx context.Context, tx pgx.Tx, recheck assign.Query, items []string) (map[string]bool, error) {
	// One statement by the extended protocol, as in begin. tx.Query would leave the type of $1 to PostgreSQL.
	keys, err := tx.Conn().TypeMap().Encode(pgtype.TextArrayOID, pgtype.TextFormatCode, items, nil)
	if err != nil {
		return nil, fmt.Errorf("encode the items: %w", err)
	}
	still := make(map[string]bool, len(items))
	rows := tx.Conn().PgConn().ExecParams(ctx, wrapRecheck(recheck), [][]byte{keys}, keysType, nil, nil)
	for rows.NextRow() {
		still[string(rows.Values()[0])] = true
	}
	if _, err := rows.Close(); err != nil {
		return nil, err
	}
	return still, nil
}

// TryRecheck makes PostgreSQL parse the recheck, alone and wrapped, and plan it with the rights that it will have, without
// running it. [assign.QueryRefused] carries PostgreSQL's message and the position in the recheck, counted from 1.
func (q *Ranker) TryRecheck(ctx context.Context, recheck assign.Query) error {
	trimmed := recheck.Trimmed()
	return q.trying(ctx, "recheck", recheck, func(tx pgx.Tx) error {
		conn := tx.Conn().PgConn()
		alone, err := conn.Prepare(ctx, "", trimmed, keysType)
		if err != nil {
			return refusedQuery("recheck", hinted(err, trimmed), lead(recheck, trimmed))
		}
		if n := len(alone.ParamOIDs); n > 1 {
			return queryRefusal("recheck", "the recheck has %d placeholders; $1, the keys of the items, is the only one", n)
		}
		keys := 0
		for _, f := range alone.Fields {
			if f.Name == "item" {
				keys++
			}
		}
		if keys != 1 {
			return queryRefusal("recheck", "the recheck must return one column named \"item\", the keys of those that still match (… as item), not %d", keys)
		}
		_, err = conn.ExecParams(ctx, "explain "+wrapRecheck(recheck), [][]byte{[]byte("{}")}, keysType, nil, nil).Close()
		if err != nil {
			return refusedQuery("recheck", noSelect("recheck", err), -1)
		}
		// If the type of $1 is given to PostgreSQL, it counts $1 as used. Here it is not given, and an error means that it could
		// not infer the type. The error ends the transaction, so this check comes last.
		untold, err := conn.Prepare(ctx, "", trimmed, nil)
		if err == nil && len(untold.ParamOIDs) == 0 {
			return queryRefusal("recheck", "the recheck does not use $1, the keys of the items that it is asked about (… where id = any($1::bigint[]))")
		}
		return nil
	})
}

var uncast = regexp.MustCompile(`(?i)any\s*\(\s*\$1\s*\)`)

// hinted puts a likely explanation before PostgreSQL's error about a recheck.
func hinted(err error, recheck string) error {
	var pgErr *pgconn.PgError
	switch {
	case strings.Contains(recheck, ";"):
		return fmt.Errorf("a recheck is one SELECT, with no semicolon except at its end: %w", err)
	case errors.As(err, &pgErr) && pgErr.Code == "42883" && uncast.MatchString(recheck): // there is no such operator
		return fmt.Errorf("$1 is text[], so a key that is a number is = any($1::bigint[]): %w", err)
	}
	return err
}

// Matching is what a recheck said of the candidates that it was asked about.
type Matching struct {
	By    assign.Query    // the recheck that was asked; empty: the task has none
	Items map[string]bool // by key, whether the item still matches; those that were not asked about are missing
}

// RecheckAtOnce is the most candidates that one execution of a recheck is asked about.
const RecheckAtOnce = 500

// recheckResult asks the recheck about the best of a run's result, in the transaction in which the query was executed: about a
// thousand, or four times as many as all who wait want; where items need something, so many of each class, but not very many in all. The run's own round hands out only candidates that were rechecked, and
// answers as if the result were cut behind them; the rest is rechecked on the shelf.
func (q *Ranker) recheckResult(ctx context.Context, tx pgx.Tx, task int64, s assign.Settings, found *Result) error {
	if s.Recheck == "" {
		return nil
	}
	n, err := q.AskedFor(ctx, task, 0)
	if err != nil {
		return err
	}
	best := found.best(max(1000, 4*n), 4*n)
	found.Matching = Matching{By: s.Recheck, Items: map[string]bool{}}
	for part := range slices.Chunk(best, RecheckAtOnce) {
		var items []string
		for _, it := range part {
			items = append(items, it.Item)
		}
		if err := q.enterAgain(ctx, tx, s.QueryTimeout); err != nil {
			return err
		}
		began := time.Now()
		match, err := queryRecheck(ctx, tx, s.Recheck, items)
		took := time.Since(began)
		markSpoilt(tx.Conn(), err)
		var fault *ErrQuery
		if err = FaultOf(err, took, s.QueryTimeout); errors.As(err, &fault) {
			return &ErrQuery{"the task's recheck: " + fault.Message}
		}
		if err != nil {
			return err
		}
		for _, item := range items {
			found.Matching.Items[item] = match[item]
		}
	}
	return nil
}
