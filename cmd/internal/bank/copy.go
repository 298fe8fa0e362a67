package bank

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// row appends one line of COPY's text format, column by column. It does not use pgx's binary rows: two million rows of
// boxed values and big integers would cost several times as much.
type row struct {
	buf   []byte
	begun bool
}

func (r *row) column() {
	if r.begun {
		r.buf = append(r.buf, '\t')
	}
	r.begun = true
}

func (r *row) null() {
	r.column()
	r.buf = append(r.buf, `\N`...)
}

func (r *row) int(v int) {
	r.column()
	r.buf = strconv.AppendInt(r.buf, int64(v), 10)
}

// text appends s unescaped: it must hold no tab, newline or backslash. All text comes from this package's own lists,
// and a test reads it back.
func (r *row) text(s string) {
	r.column()
	r.buf = append(r.buf, s...)
}

// cents appends hundredths as a number with two decimals.
func (r *row) cents(v int64) {
	r.column()
	if v < 0 {
		r.buf = append(r.buf, '-')
		v = -v
	}
	r.buf = strconv.AppendInt(r.buf, v/100, 10)
	r.buf = append(r.buf, '.', byte('0'+v/10%10), byte('0'+v%10))
}

func (r *row) date(t time.Time) {
	r.column()
	r.buf = t.AppendFormat(r.buf, time.DateOnly)
}

// time appends a moment, or null for the zero time.
func (r *row) time(t time.Time) {
	if t.IsZero() {
		r.null()
		return
	}
	r.column()
	r.buf = t.AppendFormat(r.buf, time.RFC3339)
}

func (r *row) end() {
	r.buf = append(r.buf, '\n')
	r.begun = false
}

// stream is a reader that makes rows on demand, so that generating keeps pace with COPY and no table is held in memory.
// more appends some rows, and reports whether others follow.
//
// COPY reads it in a goroutine of pgconn's. A lost or cancelled connection leaves that goroutine behind for as long as
// one Read takes; close ends it.
type stream struct {
	mu sync.Mutex // held by Read, so that close waits for it
	row
	more func(*row) bool
	rest []byte
	done bool
}

func (s *stream) Read(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.rest) == 0 {
		if s.done {
			return 0, io.EOF
		}
		s.buf = s.buf[:0]
		for len(s.buf) < 64<<10 && !s.done {
			s.done = !s.more(&s.row)
		}
		s.rest = s.buf
	}
	n := copy(p, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

// close returns when no Read is under way, and lets no later Read make a row.
func (s *stream) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rest, s.done = nil, true
}

// copyRows fills a table that this transaction created, because only then COPY accepts freeze. Frozen rows are written
// as visible to all, so neither the first query nor a vacuum has to rewrite two million of them.
func copyRows(ctx context.Context, conn *pgconn.PgConn, table string, more func(*row) bool) error {
	s := &stream{more: more}
	defer s.close()
	_, err := conn.CopyFrom(ctx, s, "copy bank."+table+" from stdin with (freeze)")
	if err != nil {
		return fmt.Errorf("copy into %s: %w", table, err)
	}
	return nil
}
