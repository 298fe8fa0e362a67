package ranking

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
)

// Matching says of the candidates that were rechecked whether they match.
type Matching struct {
	By    assign.Query // the recheck that said so; empty: the task has none
	Items map[string]bool
}

// RecheckAtOnce is how many candidates one execution of a recheck is asked about.
const RecheckAtOnce = 500

// recheckResult does the same with a run's result, in the transaction in which its query was executed. What was not
// rechecked is not handed out in the run's own round.
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
		match, err := recheckIn(ctx, tx, s.Recheck, items)
		markSpoilt(tx.Conn(), err)
		var fault *ErrQuery
		if err = FaultOf(err, time.Since(began), s.QueryTimeout); errors.As(err, &fault) {
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
