package pg

import (
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// logEvery is the least time between two log lines about the same passing condition. Without it each of a thousand calls a
// second would write one while the database is away.
const logEvery = 10 * time.Second

// LogLimiter limits how often the same kind of fault is logged. The zero value is ready for use.
type LogLimiter struct {
	mu    sync.Mutex
	kinds map[string]*limited // by SQLSTATE, empty if the database did not answer; Again puts the name of the repeated work before it
}

type limited struct {
	last time.Time
	more int // errors of this kind since
}

// About returns what to log about an error: the error itself, how many like it were withheld since the last one, and advice
// for the operator. It returns nil, and nothing is to be logged, if such an error was logged a moment ago. Errors other than those
// of [Away] are never withheld.
func (c *LogLimiter) About(err error) (facts []any) {
	if !Away(err) {
		return []any{"error", err}
	}
	return c.limited(codeOf(err), err)
}

// Again is About for work that is repeated whatever its result. It limits every error, also one that does not pass, such as a
// revoked right.
func (c *LogLimiter) Again(what string, err error) (facts []any) {
	if Away(err) {
		return c.About(err)
	}
	return c.limited(what+" "+codeOf(err), err)
}

// Withheld returns the largest number of errors of one kind that were withheld since the last one that was logged.
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
