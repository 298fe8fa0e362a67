package engine

import (
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// complaintEvery is the least time between two complaints about the same that passes by itself: with the database away,
// each of a thousand calls a second would say it.
const complaintEvery = 10 * time.Second

// Complaints decides what of the system's own faults is worth a line in the log. The zero value is ready.
type Complaints struct {
	mu    sync.Mutex
	kinds map[string]*complaint // by SQLSTATE; empty: the database did not answer at all; of what is looked at again and again also by what that is
}

type complaint struct {
	last time.Time
	more int // of its kind since
}

// About returns what is to be logged of an error: the error, how many like it were passed over since the last one, and
// what whoever runs the database can do; nothing, if that was said a moment ago.
func (c *Complaints) About(err error) (facts []any) {
	if !away(err) {
		return []any{"error", err}
	}
	return c.limited(codeOf(err), err)
}

// Again is About for what is tried again and again whatever comes of it: nothing that fails so is said each time, be it a right
// that was revoked.
func (c *Complaints) Again(what string, err error) (facts []any) {
	if away(err) {
		return c.About(err)
	}
	return c.limited(what+" "+codeOf(err), err)
}

func codeOf(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return ""
}

func (c *Complaints) limited(kind string, err error) (facts []any) {
	facts = []any{"error", err}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.kinds == nil {
		c.kinds = map[string]*complaint{}
	}
	k := c.kinds[kind]
	if k == nil {
		k = &complaint{}
		c.kinds[kind] = k
	}
	if time.Since(k.last) < complaintEvery {
		k.more++
		return nil
	}
	if k.more > 0 {
		facts = append(facts, "more_since", k.more)
	}
	if t, found := troubles[codeOf(err)]; found {
		facts = append(facts, "advice", t.advice)
	}
	k.last, k.more = time.Now(), 0
	return facts
}
