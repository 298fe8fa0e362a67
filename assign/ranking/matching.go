package ranking

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
)

// Matching is what a recheck said of the candidates that it was asked about.
type Matching struct {
	By    assign.Query    // the recheck that was asked; empty: the task has none
	Items map[string]bool // by key, whether the item still matches; those that were not asked about are missing
}

// RecheckAtOnce is the most candidates that one execution of a recheck is asked about.
const RecheckAtOnce = 500

// recheckResult asks the recheck about a run's result, best first, in the transaction in which the query was executed. The
// run's own round hands out only candidates that were rechecked.
func (q *Ranker) recheckResult(ctx context.Context, tx pgx.Tx, task int64, s assign.Settings, found *Result) error {
	if s.Recheck == "" {
		return nil
	}
	n, err := q.AskedFor(ctx, task)
	if err != nil {
		return err
	}
	found.Matching = Matching{By: s.Recheck, Items: map[string]bool{}}
	for from, matched := 0, 0; from < len(found.Items) && matched < 2*n+20; from += RecheckAtOnce {
		var items []string
		for _, it := range found.Items[from:min(from+RecheckAtOnce, len(found.Items))] {
			items = append(items, it.Item)
		}
		if err := q.enterAgain(ctx, tx, s.QueryTimeout); err != nil {
			return err
		}
		began := time.Now()
		match, err := queryRecheck(ctx, tx, s.Recheck, items)
		took := time.Since(began)
		markSpoilt(tx.Conn(), err)
		if ctx.Err() == nil && leapt(ctx, tx, "ranking", err, took, s.QueryTimeout) {
			return errLeapt
		}
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
		matched += len(match)
	}
	return nil
}
