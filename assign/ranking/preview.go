package ranking

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
)

// Preview plans and executes a query as a run of the task would, and writes nothing. If query is nil it takes the task's own.
// limit is 1 to 100. [assign.QueryRefused] carries PostgreSQL's error; [assign.Busy] says that no run slot was free. On a
// separate query database, rows are read until limit items are found, and the counts cover what was read.
func (q *Ranker) Preview(ctx context.Context, task string, query *assign.Query, limit int) (assign.Preview, error) {
	id, s, err := q.Records.Find(ctx, task, assign.Who{Anything: true})
	if err != nil {
		return assign.Preview{}, err
	}
	if query != nil {
		s.Query = *query
	}
	if s.Inbox() {
		return assign.Preview{}, assign.RefuseField("query", "task %q is an inbox and has no query of its own; send the query to be previewed", task)
	}
	return q.preview(ctx, task, id, s, limit)
}

// PreviewNew is [Ranker.Preview] for a task that does not exist yet. It uses the settings Query, QueryTimeout and Slots.
// Nothing is blocked, because no work of such a task exists.
func (q *Ranker) PreviewNew(ctx context.Context, s assign.Settings, limit int) (assign.Preview, error) {
	if s.Inbox() {
		return assign.Preview{}, assign.RefuseField("query", "an inbox has no query; send the query to be previewed")
	}
	s.Name = "new" // Check requires a name, which a new task may still lack
	const none = 0 // ids begin at 1
	return q.preview(ctx, "", none, s, limit)
}

func (q *Ranker) preview(ctx context.Context, name string, task int64, s assign.Settings, limit int) (assign.Preview, error) {
	if limit < 1 || limit > 100 {
		return assign.Preview{}, assign.RefuseField("limit", "a preview shows 1 to 100 rows, not %d", limit)
	}
	if err := s.Check(); err != nil {
		return assign.Preview{}, err
	}
	if q.Previewing != nil {
		if err := q.Previewing(ctx, name, &s); err != nil {
			return assign.Preview{}, err
		}
	}
	if err := q.TryQuery(ctx, s.Query); err != nil {
		return assign.Preview{}, err
	}
	s.MaxCandidates = limit
	p := assign.Preview{Rows: []assign.PreviewRow{}}
	err := q.InTx(ctx, SlotWait, s, "query", func(ctx context.Context, tx pgx.Tx) error {
		if err := explainPreview(ctx, tx, &p, q.Wrapped(s.Query, task, s.Slots)); err != nil {
			return err
		}
		return q.executePreview(ctx, tx, &p, task, s)
	})
	if err != nil {
		return assign.Preview{}, err
	}
	return p, nil
}

func explainPreview(ctx context.Context, tx pgx.Tx, p *assign.Preview, statement string) error {
	var plan []byte
	if err := tx.QueryRow(ctx, "explain (format json) "+statement, pgx.QueryExecModeExec).Scan(&plan); err != nil {
		return fmt.Errorf("plan the query: %w", err)
	}
	var parts []struct {
		Plan struct {
			Cost float64 `json:"Total Cost"`
		}
	}
	if err := json.Unmarshal(plan, &parts); err != nil || len(parts) == 0 {
		return fmt.Errorf("read the plan %.100q: %w", plan, err)
	}
	p.Plan, p.Cost = plan, parts[0].Plan.Cost
	return nil
}

const previewDetails = 8 << 20 // bytes of details

func (q *Ranker) executePreview(ctx context.Context, tx pgx.Tx, p *assign.Preview, task int64, s assign.Settings) (err error) {
	var found Result
	small := *q // a node makes many previews into answers at a time, after they have given their run slots back
	small.MaxDetails = min(q.MaxDetails, previewDetails)
	began := time.Now()
	if q.Queries != nil {
		found, err = small.Stream(ctx, tx, task, s)
	} else {
		found, err = small.read(ctx, tx, task, s)
	}
	p.DurationMS = float64(time.Since(began).Microseconds()) / 1000
	p.Given, p.Blocked, p.PassedOver = found.Given, found.Blocked, found.PassedOver
	for _, r := range found.Items {
		p.Rows = append(p.Rows, assign.PreviewRow{Rank: r.Rank, Item: r.Item, Slots: r.Slots, Exclusive: r.Exclusive, Details: json.RawMessage(r.Details)})
	}
	return err
}
