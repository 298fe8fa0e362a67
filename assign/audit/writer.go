package audit

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/assign/pg"
)

// DB is a database: pools, or a connection.
type DB interface {
	pg.Beginner
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Writer adds rows to the audit. A node has one. A nil Writer adds none.
type Writer struct {
	Node string              // the node's id; direct, for a program that is none
	SQL  func(string) string // puts the schema's name into a statement; nil: the schema is getwork
	Log  *slog.Logger        // gets a line for each row; nil: none does, and Run must not be called
	DB   DB                  // for everything but Write, whose caller has a transaction

	mu     sync.Mutex
	hourly map[seldom]time.Time // when it was written last
}

type seldom struct{ actor, act, object string }

// lockHead waits for the transaction that added the row before, and at READ COMMITTED then reads the head as that one committed it.
// The time is read after the wait, so times go up with the numbers, as long as nobody sets the clock. The detail comes back as jsonb
// prints it, because the hash must be of what a reader gets.
const (
	lockHead = `
with head as materialized (select n, hash from getwork.audit_head for update)
select n + 1, hash, clock_timestamp(), $1::jsonb::text from head`

	insertRow = `
with head as (update getwork.audit_head set n = $1, hash = $13)
insert into getwork.audit (n, at, node, actor, by, credential, address, act, object, outcome, detail, prev, hash)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)`
)

var errNoHead = errors.New("the table audit_head is empty, so every act that is audited is refused; run `getwork audit verify`, which says what is missing")

// Write adds a row for what the actor of ctx does, and one for each act that this caused, in the transaction of the act. It must
// come last before the transaction's announcement: audit_head is locked from here on, so whoever waited for another lock now
// could deadlock with others, and would keep everybody else from every act. If Write fails, the transaction must not be committed.
//
// The transaction must be at READ COMMITTED, as [pg.Transact] begins it. Then the row is also logged, after the commit. The row
// of any other transaction is logged at once, as one that may not have been committed, which proves less.
func (w *Writer) Write(ctx context.Context, tx pgx.Tx, a Act) error {
	if w == nil {
		return nil
	}
	for _, one := range append([]Act{a}, a.Then...) {
		one.Actor = a.Actor
		r, err := w.write(ctx, tx, one)
		if err != nil {
			return fmt.Errorf("write the audit: %w", err)
		}
		if !pg.AfterCommit(tx, func(certain bool) { w.tell(r, certain) }) {
			w.tell(r, false)
		}
	}
	return nil
}

// write locks the head, adds one row, and returns it. The caller logs it when it knows how the transaction ended.
func (w *Writer) write(ctx context.Context, tx pgx.Tx, a Act) (r Row, err error) {
	detail := []byte("{}")
	if a.Detail != nil {
		if detail, err = json.Marshal(a.Detail); err != nil {
			return r, fmt.Errorf("detail: %w", err)
		}
		if detail, err = canonical(detail); err != nil {
			return r, err
		}
	}
	if a.Outcome == "" {
		a.Outcome = Done
	}
	actor := ActorOf(ctx)
	r = Row{Node: storableText(w.Node), Actor: orNull(cmp.Or(actor.User, a.Actor)), By: orNull(actor.By), Credential: orNull(actor.Credential),
		Act: storableText(a.Act), Object: orNull(a.Object), Outcome: storableText(a.Outcome)}
	var address *netip.Addr
	if from := actor.Address.Unmap().WithZone(""); from.IsValid() { // PostgreSQL knows no zones
		text := from.String()
		address, r.Address = &from, &text
	}
	var stored string // as PostgreSQL writes its numbers
	err = tx.QueryRow(ctx, w.sql(lockHead), string(detail)).Scan(&r.N, &r.Prev, &r.At, &stored)
	if errors.Is(err, pgx.ErrNoRows) {
		return r, errNoHead // never ErrNoRows, which means something else to callers
	}
	if err != nil {
		return r, err
	}
	r.At = r.At.UTC()
	if r.Detail, err = canonical([]byte(stored)); err != nil {
		return r, err
	}
	r.Hash = r.Sum()
	_, err = tx.Exec(ctx, w.sql(insertRow), r.N, r.At, r.Node, r.Actor, r.By, r.Credential, address, r.Act, r.Object, r.Outcome, string(r.Detail), r.Prev[:], r.Hash[:])
	return r, err
}

func (w *Writer) sql(statement string) string {
	if w.SQL == nil {
		return statement
	}
	return w.SQL(statement)
}

// The messages of the lines that Verify reads.
const (
	rowMessage  = "audit"
	headMessage = "audit head"
)

// tell logs a row. certain: it is committed. Otherwise another row may get its number.
func (w *Writer) tell(r Row, certain bool) {
	if w.Log == nil {
		return
	}
	or := func(s *string) string {
		if s == nil {
			return ""
		}
		return *s
	}
	line := []any{"n", r.N, "hash", r.Hash.String(), "act", r.Act, "actor", or(r.Actor), "object", or(r.Object), "outcome", r.Outcome}
	if !certain {
		line = append(line, "commit", "unknown")
	}
	w.Log.Info(rowMessage, line...)
}

// WriteAlone adds a row in a transaction of its own, for an act that changes no table. The act may begin when it has returned.
func (w *Writer) WriteAlone(ctx context.Context, a Act) error {
	if w == nil {
		return nil
	}
	return pg.Transact(ctx, w.DB, func(tx pgx.Tx) error { return w.Write(ctx, tx, a) })
}

const hour = time.Hour

// WriteHourly is WriteAlone, unless this node has written that the same actor did the same to the same object less than an
// hour ago, with whatever outcome. It is for what a page repeats by itself. Two calls at the same moment may each write a row.
func (w *Writer) WriteHourly(ctx context.Context, a Act) error {
	key := seldom{ActorOf(ctx).User, a.Act, a.Object}
	w.mu.Lock()
	last, known := w.hourly[key]
	w.mu.Unlock()
	if known && time.Since(last) < hour {
		return nil
	}
	if err := w.WriteAlone(ctx, a); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.hourly == nil {
		w.hourly = map[seldom]time.Time{}
	}
	if len(w.hourly) > 1000 {
		for k, at := range w.hourly {
			if time.Since(at) >= hour {
				delete(w.hourly, k)
			}
		}
	}
	w.hourly[key] = time.Now()
	return nil
}

const selectHead = `select n, hash from getwork.audit_head`

// Run logs the end of the chain, at once and then every hour, until ctx ends. It returns nil.
func (w *Writer) Run(ctx context.Context) error {
	ctx = pg.AsOwn(ctx)
	for {
		next := hour
		if err := w.tellHead(ctx); err != nil && ctx.Err() == nil {
			w.Log.Warn("can't read the end of the audit; it is tried again in a minute", "error", err)
			next = time.Minute
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(next):
		}
	}
}

func (w *Writer) tellHead(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var n int64
	var hash Sum
	if err := w.DB.QueryRow(ctx, w.sql(selectHead)).Scan(&n, &hash); err != nil {
		return err
	}
	w.Log.Info(headMessage, "n", n, "hash", hash.String())
	return nil
}
