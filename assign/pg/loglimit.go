package pg

import (
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// logEvery is the least time between two complaints about the same that passes by itself: with the database away,
// each of a thousand calls a second would say it.
const logEvery = 10 * time.Second

// LogLimiter decides what of the system's own faults is worth a line in the log. The zero value is ready.
type LogLimiter struct {
	mu    sync.Mutex
	kinds map[string]*limited // by SQLSTATE; empty: the database did not answer at all; of what is looked at again and again also by what that is
}

type limited struct {
	last time.Time
	more int // of its kind since
}

// About returns what is to be logged of an error: the error, how many like it were passed over since the last one, and
// what whoever runs the database can do; nothing, if that was said a moment ago.
func (c *LogLimiter) About(err error) (facts []any) {
	if !Away(err) {
		return []any{"error", err}
	}
	return c.limited(codeOf(err), err)
}

// Again is About for what is tried again and again whatever comes of it: nothing that fails so is said each time, be it a right
// that was revoked.
func (c *LogLimiter) Again(what string, err error) (facts []any) {
	if Away(err) {
		return c.About(err)
	}
	return c.limited(what+" "+codeOf(err), err)
}

// Withheld is the largest number of errors of one kind that were passed over since the last one that was worth a line.
func (c *LogLimiter) Withheld() (most int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range c.kinds {
		most = max(most, k.more)
	}
	return most
}

func codeOf(err error) string {
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) {
		return pgErr.Code
	}
	return ""
}

func (c *LogLimiter) limited(kind string, err error) (facts []any) {
	facts = []any{"error", err}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.kinds == nil {
		c.kinds = map[string]*limited{}
	}
	k := c.kinds[kind]
	if k == nil {
		k = &limited{}
		c.kinds[kind] = k
	}
	if time.Since(k.last) < logEvery {
		k.more++
		return nil
	}
	if k.more > 0 {
		facts = append(facts, "more_since", k.more)
	}
	if t, found := conditions[codeOf(err)]; found {
		facts = append(facts, "advice", t.advice)
	}
	k.last, k.more = time.Now(), 0
	return facts
}
