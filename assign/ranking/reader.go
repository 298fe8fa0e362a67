package ranking

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
)

// reader reads the rows of a wrapped query, best first.
type reader struct {
	q     *Ranker
	rows  pgx.Rows
	most  int         // max_candidates
	found Result      // so far
	full  []Candidate // at most that many; they come last, so that free items are not cut off behind them
	more  bool        // there were more full items

	size, sized int64 // of details: bytes and rows
}

// chunkRows is how many rows a reader reads at a time. On the query database, the primary is then asked which items are blocked.
const chunkRows = 1000

// begin executes a task's query. end leaves the rest of its rows unread; if there are any, the transaction can then only go back
// to a savepoint.
func (q *Ranker) begin(ctx context.Context, tx pgx.Tx, task int64, s assign.Settings) (rows pgx.Rows, end func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	// The extended protocol, whatever the pool's mode is, takes one statement and refuses more. Not a cursor: PostgreSQL makes no
	// parallel plan for one.
	rows, err = tx.Query(ctx, q.Wrapped(s.Query, task, s.Slots), pgx.QueryExecModeExec)
	if err != nil {
		cancel()
		return nil, nil, err
	}
	return rows, func() {
		cancel() // first: closing reads the rows that are left
		rows.Close()
	}, nil
}

// read reads what a task's query returns on the database of the tables, to its end, so that the counts cover all rows.
func (q *Ranker) read(ctx context.Context, tx pgx.Tx, task int64, s assign.Settings) (Result, error) {
	rows, end, err := q.begin(ctx, tx, task, s)
	if err != nil {
		return Result{}, err
	}
	defer end()
	r := reader{q: q, rows: rows, most: s.MaxCandidates, found: Result{Seen: newKeySet()}}
	for more := true; more; {
		var chunk []Candidate
		if chunk, more, err = r.chunk(); err != nil {
			return Result{}, err
		}
		r.keep(chunk)
	}
	found := r.result()
	if found.Snapshot == nil { // no rows, so nothing is compared with the snapshot
		empty := "1:1:"
		found.Snapshot = &empty
	}
	return found, nil
}

// chunk reads some rows, without those that are blocked, that can't be items, or that repeat an earlier item, and reports whether
// there may be more. When the result is complete, rows are only counted. The texts of a chunk are one string: there may be a million
// rows, and the garbage collector looks at each object again and again while the node serves clicks.
func (r *reader) chunk() (chunk []Candidate, more bool, err error) {
	found := &r.found
	var text []byte
	var ends [][2]int // of each candidate's key and details in text
	rows := 0
	for ; rows < chunkRows && r.rows.Next(); rows++ {
		found.Given++
		row := r.rows.RawValues() // in text format, since no other was asked for
		item, exclusive := row[0], row[2]
		slots, err := strconv.Atoi(string(row[1]))
		if err != nil {
			return nil, false, fmt.Errorf("read the slots: %w", err)
		}
		if found.Snapshot == nil && row[6] != nil {
			snapshot := string(row[6])
			found.Snapshot = &snapshot
		}
		c := Candidate{Rank: found.Given, Slots: slots, full: isTrue(row[5])}
		switch {
		case len(item) == 0 || len(item) > maxKey || len(exclusive) > maxKey || slots < 1 || len(exclusive) > 0 && slots > 1 || found.Seen.has(item):
			found.PassedOver++
			continue
		case isTrue(row[4]):
			found.Blocked++
			continue
		case found.Cut:
			continue
		}
		if err := r.count(len(row[3])); err != nil {
			return nil, false, err
		}
		found.Seen.add(item)
		if exclusive != nil {
			group := string(exclusive)
			c.Exclusive = &group
		}
		text = append(text, item...)
		key := len(text)
		text = appendDetails(text, row[3])
		ends = append(ends, [2]int{key, len(text)})
		chunk = append(chunk, c)
	}
	if rows < chunkRows && r.rows.Err() != nil {
		return nil, false, r.rows.Err()
	}
	all, from := string(text), 0
	for i, end := range ends {
		chunk[i].Item, chunk[i].Details = all[from:end[0]], all[end[0]:end[1]]
		from = end[1]
	}
	return chunk, rows == chunkRows, nil
}

func isTrue(value []byte) bool { return string(value) == "t" }

const maxKey = 200 // bytes in UTF-8

// UsableKeys reports whether the keys of an item and its group have at most 200 bytes in UTF-8.
func UsableKeys(item string, exclusive *string) bool {
	return len(item) <= maxKey && (exclusive == nil || len(*exclusive) <= maxKey)
}

// count adds the size of a row's details to the result's. A node keeps a run's result in memory, so it refuses a query whose
// details are too large together.
func (r *reader) count(size int) error {
	if r.size += int64(size); r.size > r.q.MaxDetails {
		return &ErrQuery{fmt.Sprintf("the query's columns take more than %d MiB for the first %d items; return fewer or smaller columns, or lower max_candidates",
			r.q.MaxDetails>>20, r.sized)}
	}
	r.sized++
	return nil
}

// keep adds items to the result, and cuts it at max_candidates.
func (r *reader) keep(chunk []Candidate) {
	found := &r.found
	if cap(found.Items)-len(found.Items) < len(chunk) {
		found.Items = slices.Grow(found.Items, max(len(chunk), len(found.Items))) // by itself, it would be copied three times as often
	}
	for _, c := range chunk {
		switch {
		case c.full && len(r.full) < r.most:
			r.full = append(r.full, c)
		case c.full:
			r.more = true
		case len(found.Items) < r.most:
			found.Items = append(found.Items, c)
		default:
			found.Cut = true
		}
	}
}

// result returns what was read.
func (r *reader) result() Result {
	found := &r.found
	if len(r.full) > 0 {
		room := min(r.most-len(found.Items), len(r.full))
		found.Cut = found.Cut || r.more || room < len(r.full)
		found.Items = append(found.Items, r.full[:room]...)
		slices.SortFunc(found.Items, func(a, b Candidate) int { return cmp.Compare(a.Rank, b.Rank) })
	}
	return *found
}
