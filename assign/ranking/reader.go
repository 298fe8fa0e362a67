package ranking

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"hash/maphash"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

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

	// The query returns slots or exclusive, so the rows of an item may differ. The first one counts. So every item is remembered, also
	// one that is blocked: a later row of it, with more places, would make it free. The memory is counted in seenBytes.
	differ bool

	since bool // the query returns this column as a time
	own   Own  // which others it returns of their types
	needs needSets

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
	var deadlines []time.Time
	for rows := 0; rows < chunkRows && len(text) < chunkBytes; rows++ {
		if !r.rows.Next() {
			return cut(chunk, text, ends), false, r.rows.Err()
		}
		if found.Given == 0 {
			columns := r.rows.FieldDescriptions()
			r.differ, r.since = returnsPlaces(columns), isTime(columns[9])
			r.own = Own{Deadline: isTime(columns[10]), Needs: isNeeds(columns[11])}
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
			found.waits(r.sinceOf(details))
			continue
		case c.full && len(found.Items)+len(r.full) >= r.most:
			r.more = true
			continue
		}
		if r.own.Needs {
			if c.Class = r.needs.class(memberOf(details, `"needs":`)); c.Class == 0 {
				found.PassedOver++
				continue
			}
		}
		found.Seen.add(item)
		if exclusive != nil {
			group := string(exclusive)
			c.Exclusive = &group
		}
		c.since = r.sinceOf(details)
		text = append(text, item...)
		key := len(text)
		var deadline time.Time
		if text, deadline = appendDetails(text, details, r.own); !deadline.IsZero() {
			if deadlines == nil {
				deadlines = make([]time.Time, 0, chunkRows) // one object for all, too
			}
			deadlines = append(deadlines, deadline)
			c.Deadline = &deadlines[len(deadlines)-1]
		}
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

// isTime reports whether a column is a timestamptz.
func isTime(column pgconn.FieldDescription) bool { return column.DataTypeOID == pgtype.TimestamptzOID }

// sinceOf returns the column since of a row, in microseconds; 0: the query returns none, or the row has none.
func (r *reader) sinceOf(row []byte) int64 {
	if !r.since {
		return 0
	}
	if t := timeIn(memberOf(row, `"since":`)); !t.IsZero() {
		return t.UnixMicro()
	}
	return 0
}

// waits notes since when a free item has waited; 0: nobody knows.
func (f *Result) waits(since int64) {
	if since == 0 {
		return
	}
	if t := time.UnixMicro(since).UTC(); f.Oldest == nil || t.Before(*f.Oldest) {
		f.Oldest = &t
	}
}

// timeIn reads a timestamptz as PostgreSQL writes it into JSON, whatever DateStyle is. Zero: null, infinity, or a time that the API
// can't write.
func timeIn(text []byte) (t time.Time) {
	if len(text) < 2 {
		return t
	}
	t, err := time.Parse(time.RFC3339Nano, string(text[1:len(text)-1]))
	if t = t.UTC(); err != nil || !assign.Writable(t) {
		return time.Time{}
	}
	return t
}

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
		found.waits(c.since)
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
	found.Needs = r.needs.sets
	for i := range found.Items {
		if found.Items[i].Details == assign.NoDetails {
			found.LeftOut++
		}
		if c := &found.Items[i]; r.needs.plain() {
			c.Class = 0
		} else {
			found.Needs[c.Class-1].Items++
		}
	}
	if r.needs.plain() {
		found.Needs = nil
	}
	return *found
}

// KeySet is a set of items' keys. It holds two hashes of 64 random bits for each instead of the key, so that the garbage
// collector finds nothing to follow in it: a million keys would be followed again and again while the node serves clicks. That two
// keys of a result have the same hashes is less likely than that the machine's memory fails.
type KeySet struct {
	first, second maphash.Seed
	hashes        map[[2]uint64]struct{}
}

func newKeySet() *KeySet {
	return &KeySet{maphash.MakeSeed(), maphash.MakeSeed(), map[[2]uint64]struct{}{}}
}

func (k *KeySet) of(key []byte) [2]uint64 {
	return [2]uint64{maphash.Bytes(k.first, key), maphash.Bytes(k.second, key)}
}

func (k *KeySet) add(key []byte) { k.hashes[k.of(key)] = struct{}{} }

func (k *KeySet) has(key []byte) bool {
	_, has := k.hashes[k.of(key)]
	return has
}

func (k *KeySet) remove(key string) { delete(k.hashes, k.of([]byte(key))) }

// Len returns the number of keys.
func (k *KeySet) Len() int { return len(k.hashes) }

// RowDetails is a whole row of a query as JSON, in the order of its columns. DetailsOf removes the columns that getwork reads
// itself; PostgreSQL would take ten times as long to remove them as to write the row.
const RowDetails = `row_to_json(r)::text`

// RowDue says whether a query's deadline is its items' deadline: it is a time. Of another type it is a detail.
const RowDue = `pg_typeof(deadline_type) = 'timestamptz'::regtype`

// RowNeeds says likewise whether the query's needs are what its items need.
const RowNeeds = `pg_typeof(needs_type) in ('text'::regtype, 'text[]'::regtype, 'varchar'::regtype, 'varchar[]'::regtype)`

// Own says which of a query's columns are of the type of which getwork reads them itself. Of another type they are details.
type Own struct{ Deadline, Needs bool }

// DetailsOf returns what the query said of an item besides item, slots, exclusive and its own columns: a JSON object whose members are
// unchanged, or [assign.NoDetails] if they are beyond the limits. The item is handed out without them: its key is what matters,
// and a query that finds none because of one row would stop everybody's work. deadline is nil if the item has none. usable: it needs
// nothing that nobody can have.
func DetailsOf(row string, own Own) (details string, deadline *time.Time, needs []string, usable bool) {
	text, at := appendDetails(nil, []byte(row), own)
	if !at.IsZero() {
		deadline = &at
	}
	if usable = true; own.Needs {
		needs, usable = needsIn(memberOf([]byte(row), `"needs":`))
	}
	return string(text), deadline, needs, usable
}

// appendDetails appends the details of DetailsOf to text. Zero: no deadline.
func appendDetails(text, row []byte, own Own) (_ []byte, deadline time.Time) {
	text = append(text, '{')
	begin := len(text)
	for rest := bytes.TrimSuffix(bytes.TrimPrefix(row, []byte("{")), []byte("}")); len(rest) > 0; {
		end := memberEnd(rest)
		member := rest[:end]
		rest = bytes.TrimPrefix(rest[end:], []byte(","))
		if bytes.HasPrefix(member, []byte(`"item":`)) || bytes.HasPrefix(member, []byte(`"slots":`)) || bytes.HasPrefix(member, []byte(`"exclusive":`)) {
			continue
		}
		if value, is := bytes.CutPrefix(member, []byte(`"deadline":`)); is && own.Deadline {
			deadline = timeIn(value)
			continue
		}
		if own.Needs && bytes.HasPrefix(member, []byte(`"needs":`)) {
			continue
		}
		if len(text) > begin {
			text = append(text, ',')
		}
		text = append(text, member...)
	}
	if text = append(text, '}'); assign.CheckDetails(text[begin-1:]) != "" {
		return append(text[:begin-1], assign.NoDetails...), deadline
	}
	return text, deadline
}

// memberOf returns the value of a row's member; its name is given with quotes and colon. Nil: there is none.
func memberOf(row []byte, name string) []byte {
	for rest := bytes.TrimPrefix(row, []byte("{")); len(rest) > 0; {
		end := memberEnd(rest)
		if value, found := bytes.CutPrefix(rest[:end], []byte(name)); found {
			return bytes.TrimSuffix(value, []byte("}"))
		}
		rest = bytes.TrimPrefix(rest[end:], []byte(","))
	}
	return nil
}

// memberEnd returns where the first of an object's members ends: at its comma, or at the end of s.
func memberEnd(s []byte) int {
	depth, quoted := 0, false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			depth--
		case c == ',' && depth == 0:
			return i
		}
	}
	return len(s)
}
