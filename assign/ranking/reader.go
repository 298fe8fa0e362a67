package ranking

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"getwork/assign"
)

// reader reads the rows of a wrapped query, best first.
type reader struct {
	q     *Ranker
	rows  pgx.Rows
	most  int         // max_candidates
	found Result      // so far
	full  []Candidate // as many as fit beside the free ones, so that free items are not cut off behind them
	more  bool        // there were more full items

	// The query returns slots or exclusive, so the rows of an item may differ. The first decides, so every item is remembered until
	// the result is cut, in seenBytes: otherwise a blocked item would be free by a later row with more places.
	differ bool

	size, sized int64 // of what is kept: bytes and rows
}

// A reader reads chunks of at most so many rows, which end behind so many bytes of details. On the query database, the primary is
// then asked which items are blocked.
const (
	chunkRows  = 1000
	chunkBytes = 4 << 20
)

const seenBytes = 26 // of an item in a KeySet, about

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
		if err := r.keep(chunk); err != nil {
			return Result{}, err
		}
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
	for rows := 0; rows < chunkRows && len(text) < chunkBytes; rows++ {
		if !r.rows.Next() {
			return cut(chunk, text, ends), false, r.rows.Err()
		}
		if found.Given == 0 {
			r.differ = returnsPlaces(r.rows.FieldDescriptions())
		}
		found.Given++
		// item, slots, exclusive, details, blocked, full_now, snapshot; in text format, since no other was asked for
		row := r.rows.RawValues()
		item, exclusive, details := row[0], row[2], row[3]
		slots, err := strconv.Atoi(string(row[1]))
		if err != nil {
			return nil, false, fmt.Errorf("read the slots: %w", err)
		}
		if found.Snapshot == nil && row[6] != nil {
			snapshot := string(row[6])
			found.Snapshot = &snapshot
		}
		if len(item) == 0 || len(item) > maxKey {
			found.PassedOver++
			continue
		}
		repeated := found.Seen.has(item)
		if r.differ && !found.Cut {
			found.Seen.add(item)
		}
		c := Candidate{Rank: found.Given, Slots: slots, full: isTrue(row[5])}
		switch {
		case repeated, slots < 1, len(exclusive) > maxKey, len(exclusive) > 0 && slots > 1:
			found.PassedOver++
			continue
		case isTrue(row[4]):
			found.Blocked++
			continue
		case found.Cut:
			continue
		case c.full && len(found.Items)+len(r.full) >= r.most:
			r.more = true
			continue
		}
		found.Seen.add(item)
		if exclusive != nil {
			group := string(exclusive)
			c.Exclusive = &group
		}
		text = append(text, item...)
		key := len(text)
		text = appendDetails(text, details)
		ends = append(ends, [2]int{key, len(text)})
		chunk = append(chunk, c)
	}
	return cut(chunk, text, ends), true, nil
}

// cut gives each candidate its key and details, which end in the text where ends says.
func cut(chunk []Candidate, text []byte, ends [][2]int) []Candidate {
	all, from := string(text), 0
	for i, end := range ends {
		chunk[i].Item, chunk[i].Details = all[from:end[0]], all[end[0]:end[1]]
		from = end[1]
	}
	return chunk
}

// returnsPlaces reports whether the query returns slots or exclusive: see the defaults of a wrapped query.
func returnsPlaces(columns []pgconn.FieldDescription) bool {
	const regdictionary = 3769
	return columns[7].DataTypeOID != regdictionary || columns[8].DataTypeOID != regdictionary
}

func isTrue(value []byte) bool { return string(value) == "t" }

const maxKey = 200 // bytes in UTF-8

// UsableKeys reports whether the keys of an item and its group have at most 200 bytes in UTF-8.
func UsableKeys(item string, exclusive *string) bool {
	return len(item) <= maxKey && (exclusive == nil || len(*exclusive) <= maxKey)
}

// keep adds items to the result, and cuts it at max_candidates. A node keeps a run's result in memory, so it refuses a query whose
// details are too large together. The items that are only remembered count, too.
func (r *reader) keep(chunk []Candidate) error {
	found := &r.found
	if others := found.Seen.Len() - len(found.Items) - len(r.full) - len(chunk); r.size+int64(others)*seenBytes > r.q.MaxDetails {
		return &ErrQuery{fmt.Sprintf("the query returns slots or exclusive, and %d items that can't be handed out, which take more than %d MiB with the %d that can; "+
			"leave such rows out of the query", others, r.q.MaxDetails>>20, r.sized)}
	}
	if cap(found.Items)-len(found.Items) < len(chunk) {
		found.Items = slices.Grow(found.Items, max(len(chunk), len(found.Items))) // by itself, it would be copied three times as often
	}
	for _, c := range chunk {
		kept := len(found.Items) + len(r.full)
		switch {
		case c.full && kept == r.most:
			r.more = true
			continue
		case c.full:
			r.full = append(r.full, c)
		case len(found.Items) == r.most:
			found.Cut = true
			continue
		case kept == r.most:
			last := len(r.full) - 1
			r.size -= sizeOf(r.full[last])
			r.full[last] = Candidate{} // or its text would stay in memory
			r.full, r.more = r.full[:last], true
			fallthrough
		default:
			found.Items = append(found.Items, c)
		}
		if r.size += sizeOf(c); r.size > r.q.MaxDetails {
			return &ErrQuery{fmt.Sprintf("the query's columns take more than %d MiB for the first %d items; return fewer or smaller columns, or lower max_candidates, or the limit of a preview",
				r.q.MaxDetails>>20, r.sized)}
		}
		r.sized++
	}
	return nil
}

func sizeOf(c Candidate) int64 { return int64(len(c.Item) + len(c.Details)) }

// result returns what was read.
func (r *reader) result() Result {
	found := &r.found
	found.Cut = found.Cut || r.more
	if len(r.full) > 0 {
		found.Items = append(found.Items, r.full...)
		slices.SortFunc(found.Items, func(a, b Candidate) int { return cmp.Compare(a.Rank, b.Rank) })
	}
	return *found
}
