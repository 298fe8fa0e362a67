package torture

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"getwork/cmd/lab/torture/history"
)

// books are a world that the ranking query reads and people change. A loan comes up as book-007.0 until somebody has
// finished it, and then as book-007.1. People write it into the books first, and then complete the work at getwork. So
// a query that began before still returns items that are finished by now.
type books struct {
	pool *pgxpool.Pool

	mu    sync.Mutex
	round map[string]int // of each loan, as far as the harness knows
}

const (
	loans    = 60 // as many as openBooks inserts
	bookTask = "books"

	openBooks = `
create schema torture;
create table torture.book (n integer primary key, round integer not null default 0);
insert into torture.book (n) select generate_series(1, 60);
grant usage on schema torture to public;
grant select on torture.book to public`

	rankBooks  = `select 'book-' || to_char(n, 'FM000') || '.' || round as item from nap, torture.book order by n`
	finishBook = `update torture.book set round = greatest(round, $2 + 1) where n = $1`
)

func fromBooks(n nap) job {
	j := job{name: bookTask, keys: "book", items: loans, nap: n, books: true}.asked(rankBooks)
	j.settings["fresh_for"] = "1500ms"
	return j
}

// open creates the books, before any task exists.
func (b *books) open(ctx context.Context, url string) (err error) {
	b.round = map[string]int{}
	if b.pool, err = pgxpool.New(ctx, url); err == nil {
		_, err = b.pool.Exec(ctx, openBooks)
	}
	if err != nil {
		return fmt.Errorf("open the books: %w", err)
	}
	return nil
}

func (b *books) close() {
	if b.pool != nil {
		b.pool.Close()
	}
}

// finish writes into the books that an item is finished. It returns false if it can't know whether that was committed;
// the caller then repeats it.
func (b *books) finish(ctx context.Context, rec *history.Recorder, item string) bool {
	loan, round, ok := ofBook(item)
	if !ok {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	d := history.Done{Task: bookTask, Item: item, Began: rec.Now()}
	n, _ := strconv.Atoi(strings.TrimPrefix(loan, "book-"))
	if _, err := b.pool.Exec(ctx, finishBook, n, round); err != nil {
		return false
	}
	d.Ended = rec.Now()
	rec.Add(history.Entry{Done: &d})
	b.mu.Lock()
	defer b.mu.Unlock()
	b.round[loan] = max(b.round[loan], round+1)
	return true
}

// item returns the key under which a loan comes up now.
func (b *books) item(loan string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return fmt.Sprintf("%s.%d", loan, b.round[loan])
}

func ofBook(item string) (loan string, round int, ok bool) {
	loan, after, ok := strings.Cut(item, ".")
	round, err := strconv.Atoi(after)
	return loan, round, ok && err == nil
}
