package audit

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"
)

// Finding is something that is wrong with the audit.
type Finding struct {
	First, Last int64 // the numbers of the rows; 0: none in particular
	What        string
}

// String implements [fmt.Stringer].
func (f Finding) String() string {
	switch f.First {
	case 0:
		return f.What
	case f.Last:
		return fmt.Sprintf("row %d: %s", f.First, f.What)
	}
	return fmt.Sprintf("rows %d to %d: %s", f.First, f.Last, f.What)
}

// Checked is what [Verify] has read.
type Checked struct {
	Rows        int64
	First, Last int64 // the numbers of the first and the last row; 0: there is none
	Hash        Sum   // of the last row
	Logged      int64 // how many of the rows are in the log

	// How many rows between the first and the last of the log are not in it, and the first of them. That is no finding: their
	// node may have died right after the commit, or another program than a node wrote them.
	Unlogged, FirstUnlogged int64
}

// What can be found.
const (
	changed       = "changed, or swapped with another: the fields don't give the hash"
	inserted      = "inserted: numbers begin at 1"
	missing       = "missing"
	uncut         = "missing, and no row says that they were cut"
	unchained     = "not the successor of the row before it: one of the two was written anew"
	notCut        = "it says that rows were cut that are there"
	cutTail       = "missing at the end: audit_head says that the chain ends with them"
	behind        = "inserted after the end of the chain, or audit_head was set back"
	otherHead     = "audit_head has another hash for this row, which is the last: one of the two was changed"
	notAsLogged   = "not as it was logged: the chain was written anew, or a fail-over or a restore has lost what was committed, or the log is of another database"
	loggedTwice   = "logged with two hashes: a row of this number was committed that is not there any more"
	loggedCutTail = "missing at the end: they are in the log"
	headless      = "audit_head is empty: nobody knows where the chain ends, and nothing can be added"
)

// Verify reads all rows at one moment, and reports what is wrong with them. Without a log (nil) a chain that was written anew
// from some row to its end seems right. It calls found once for each finding; an error means that the audit could not be read to its
// end.
func Verify(ctx context.Context, db DB, sql func(string) string, log *Log, found func(Finding)) (Checked, error) {
	if log == nil {
		log = &Log{}
	}
	v := &verifier{log: log, found: found, open: map[string]*Finding{}}
	err := snapshot(ctx, db, sql, func(tx snapshotTx) error {
		var n int64
		var hash Sum
		err := tx.QueryRow(ctx, tx.sql(selectHead)).Scan(&n, &hash)
		empty := errors.Is(err, pgx.ErrNoRows)
		if err != nil && !empty {
			return err
		}
		if err := tx.rows(ctx, selectRows, v.row); err != nil {
			return err
		}
		if empty {
			v.find(0, 0, headless)
			n, hash = v.Last, v.Hash
		}
		v.end(n, hash)
		return nil
	})
	if err != nil {
		return v.Checked, fmt.Errorf("read the audit: %w", err)
	}
	return v.Checked, nil
}

const selectRows = `select ` + columns + ` from getwork.audit order by n`

// verifier has what the rows so far have shown.
type verifier struct {
	Checked
	log   *Log
	found func(Finding)
	open  map[string]*Finding // by What: findings that the next row may continue

	before Sum // the Prev of the first row
	cut    *cutDetail
	wrong  []Row // the first changed ones
}

// find reports a finding; one of neighbours is reported once.
func (v *verifier) find(first, last int64, what string) {
	if f := v.open[what]; f != nil && first == f.Last+1 {
		f.Last = last
		return
	}
	v.flush(what)
	v.open[what] = &Finding{first, last, what}
}

func (v *verifier) flush(what string) {
	if f := v.open[what]; f != nil {
		v.found(*f)
		delete(v.open, what)
	}
}

func (v *verifier) row(r Row) error {
	if r.N < 1 {
		v.found(Finding{What: fmt.Sprintf("row %d: %s", r.N, inserted)})
		return nil
	}
	right := r.Sum() == r.Hash
	if !right {
		v.find(r.N, r.N, changed)
		v.swapped(r)
	}
	switch {
	case v.Rows == 0:
		v.First, v.before = r.N, r.Prev
	case r.N != v.Last+1:
		v.find(v.Last+1, r.N-1, missing)
	case r.Prev != v.Hash:
		v.find(r.N, r.N, unchained)
	}
	v.Rows++
	v.Last, v.Hash = r.N, r.Hash
	v.logged(r)
	if right && r.Act == cutAct {
		var cut cutDetail
		if json.Unmarshal(r.Detail, &cut) == nil {
			v.cut = &cut
		}
		if cut.To >= v.First {
			v.find(r.N, r.N, notCut)
		}
	}
	return nil
}

// logged compares a row with the log.
func (v *verifier) logged(r Row) {
	switch logged := v.log.rows[r.N]; {
	case len(logged) == 0:
		if r.N > v.log.first && r.N < v.log.last {
			if v.Unlogged++; v.Unlogged == 1 {
				v.FirstUnlogged = r.N
			}
		}
	case !slices.Contains(logged, r.Hash):
		v.find(r.N, r.N, notAsLogged)
	case len(logged) > 1:
		v.find(r.N, r.N, loggedTwice)
	default:
		v.Logged++
	}
}

// swapped reports that a changed row and an earlier one have exchanged their numbers, or everything but their place in the
// chain.
func (v *verifier) swapped(r Row) {
	fits := func(r, in Row) bool {
		moved := r
		moved.N = in.N
		if moved.Sum() == r.Hash {
			return true
		}
		moved.Prev = in.Prev
		return moved.Sum() == in.Hash
	}
	for _, other := range v.wrong {
		if fits(r, other) && fits(other, r) {
			v.found(Finding{other.N, other.N, fmt.Sprintf("swapped with row %d", r.N)})
		}
	}
	if len(v.wrong) < 100 {
		v.wrong = append(v.wrong, r)
	}
}

// end compares the rows with the end of the chain and with the rest of the log.
func (v *verifier) end(n int64, hash Sum) {
	switch {
	case v.First == 1 && v.before != Sum{}:
		v.find(1, 1, unchained)
	case v.First > 1 && v.cut != nil && v.cut.To < v.First-1:
		v.find(v.cut.To+1, v.First-1, uncut)
	case v.First > 1 && (v.cut == nil || v.cut.To != v.First-1 || v.cut.Hash != v.before):
		v.find(1, v.First-1, uncut)
	}
	switch {
	case v.Last < n:
		v.find(v.Last+1, n, cutTail)
	case v.Last > n:
		v.find(n+1, v.Last, behind)
	case v.Hash != hash:
		v.find(n, n, otherHead)
	}
	if before := v.log.rows[v.First-1]; v.First > 1 && len(before) > 0 && !slices.Contains(before, v.before) {
		v.find(v.First-1, v.First-1, notAsLogged)
	}
	for _, logged := range slices.Sorted(maps.Keys(v.log.rows)) {
		if logged > max(v.Last, n) {
			v.find(logged, logged, loggedCutTail)
		}
	}
	var rest []Finding
	for _, f := range v.open {
		rest = append(rest, *f)
	}
	slices.SortFunc(rest, func(a, b Finding) int { return cmp.Compare(a.First, b.First) })
	for _, f := range rest {
		v.found(f)
	}
}
