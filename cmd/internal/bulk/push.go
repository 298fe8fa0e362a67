package bulk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"getwork/assign"
)

// Refusal is the error of a push that was refused because of one item: nothing of it was pushed.
type Refusal struct {
	Index int // of the item
	Why   string
}

// Error implements error.
func (r *Refusal) Error() string { return fmt.Sprintf("item %d: %s", r.Index+1, r.Why) }

// Totals count the rows so far.
type Totals struct {
	Rows       int `json:"rows"`
	Accepted   int `json:"accepted"`
	Duplicates int `json:"duplicates"`
	Bad        int `json:"bad"`
}

// Pusher pushes rows in batches. A bad row is reported and left out, and the others of its batch are pushed.
type Pusher struct {
	Push   func(ctx context.Context, items []Item) (assign.Pushed, error) // all or nothing; see [Refusal]
	Bad    func(row Row, why string)
	Pushed func(Totals) // after each batch
	Totals Totals

	batch []Row // those that wait; after an error, those that no successful push had
	bytes int
}

// From returns the line from which to go on after an error; 0: all rows are pushed. If the last push failed without a refusal,
// its rows may be pushed nevertheless; those after them are not.
func (p *Pusher) From() int {
	if len(p.batch) == 0 {
		return 0
	}
	return p.batch[0].Line
}

// The sizes of batches: a batch takes a moment, so that progress is seen, and stays below what the server takes. The rest of a
// batch with a bad row is pushed in small ones, so that many bad rows don't send all the others again and again.
const (
	batchRows  = 1000
	batchBytes = longest - 1<<16
	smallBatch = 50
)

// Add takes a row, and pushes a batch when it is full.
func (p *Pusher) Add(ctx context.Context, row Row) error {
	p.Totals.Rows++
	var size int
	if row.Err == nil {
		text, err := json.Marshal(row.Item)
		if size = len(text) + 1; err != nil {
			row.Err = err
		} else if size > batchBytes {
			row.Err = errLong
		}
	}
	if row.Err != nil {
		p.bad(row, row.Err.Error())
		return nil
	}
	if len(p.batch) == batchRows || p.bytes+size > batchBytes {
		if err := p.Flush(ctx); err != nil {
			return err
		}
	}
	p.batch, p.bytes = append(p.batch, row), p.bytes+size
	return nil
}

// Flush pushes the rows that wait. After an error no more can be added; see [Pusher.From].
func (p *Pusher) Flush(ctx context.Context) error {
	rows := p.batch
	most := batchRows
	for len(rows) > 0 {
		n := min(len(rows), most)
		part := rows[:n]
		items := make([]Item, n)
		for i, row := range part {
			items[i] = row.Item
		}
		pushed, err := p.Push(ctx, items)
		var refusal *Refusal
		if errors.As(err, &refusal) && refusal.Index >= 0 && refusal.Index < n {
			p.bad(part[refusal.Index], refusal.Why)
			rest := append([]Row{}, rows[:refusal.Index]...)
			rows = append(rest, rows[refusal.Index+1:]...)
			most = smallBatch
			continue
		}
		if err != nil {
			p.batch = rows
			return err
		}
		p.Totals.Accepted += pushed.Accepted
		p.Totals.Duplicates += pushed.Duplicates
		rows = rows[n:]
		p.Pushed(p.Totals)
	}
	p.batch, p.bytes = nil, 0
	return nil
}

func (p *Pusher) bad(row Row, why string) {
	p.Totals.Bad++
	p.Bad(row, why)
}
