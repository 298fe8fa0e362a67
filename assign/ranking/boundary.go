package ranking

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
)

// A query could do more than read by calling one of PostgreSQL's functions: leave its role, switch its time-out off, take
// locks that outlive it, write files, execute SQL that nobody has seen. Such functions are volatile. So a task's query and its
// recheck are refused if they name a volatile function of the server or of an extension, or one of a few others that execute
// text. This prevents nothing alone. The boundary is what the query's login may do; docs/security.md says more.
//
// The check needs the list of the server on which the query is executed, which may be newer than getwork. So it takes place
// on that connection.

// selectVolatile lists the volatile functions, and whether their names count without a bracket behind them. For the server's
// own, that is always so. A function of an extension can be called without one, as a column of a row.
//
// Left out are functions that do no harm, and those that a query can't call, among which the sampling methods system and
// bernoulli have usual names.
const selectVolatile = `
select p.proname, bool_or(p.pronamespace = 'pg_catalog'::regnamespace
    or p.pronargs > 0 and p.pronargs - p.pronargdefaults <= 1 and exists (
      select from pg_catalog.pg_type t where t.oid = p.proargtypes[0] and t.typtype in ('c', 'p')))
from pg_catalog.pg_proc p
where p.provolatile = 'v'
  and (p.pronamespace = 'pg_catalog'::regnamespace
    or exists (select from pg_catalog.pg_depend d where d.classid = 'pg_catalog.pg_proc'::regclass and d.objid = p.oid and d.deptype = 'e'))
  and p.proname <> all (array['clock_timestamp', 'timeofday', 'random', 'gen_random_uuid', 'current_query'])
  and not exists (
    select from pg_catalog.pg_type t
    where t.oid = any (p.proargtypes::oid[] || p.prorettype) and t.typtype = 'p'
      and (t.typname in ('internal', 'trigger', 'event_trigger') or t.typname like '%\_handler'))
group by p.proname`

// relistAfter is how long a connection's list is used. Meanwhile somebody may have made an extension, or a pooler may have
// taken another server.
const relistAfter = time.Minute

// listed is the list of a connection's server. It is kept with the connection, so that another server's is never used.
type listed struct {
	names *forbidden
	until time.Time
}

const listedKey = "volatile functions"

// forbiddenOn returns what queries must not name on the connection's server.
func forbiddenOn(ctx context.Context, tx pgx.Tx) (*forbidden, error) {
	kept := tx.Conn().PgConn().CustomData()
	if l, ok := kept[listedKey].(listed); ok && time.Now().Before(l.until) {
		return l.names, nil
	}
	names := newForbidden()
	until := time.Now().Add(relistAfter)
	// Cancelling a statement would lose the run lock, and a query's time-out is not meant for this one.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	// The transaction may be about to run a query for minutes, so the locks on the catalog end here.
	err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, selectVolatile)
		if err != nil {
			return err
		}
		var name string
		var everywhere bool
		if _, err = pgx.ForEachRow(rows, []any{&name, &everywhere}, func() error {
			names.add(name, everywhere)
			return nil
		}); err != nil {
			return err
		}
		if len(names.anywhere) == 0 {
			return errors.New("the server names none")
		}
		return errListed
	})
	if !errors.Is(err, errListed) {
		return nil, fmt.Errorf("%w: list the functions that a query must not call: %w", errOurs, err)
	}
	kept[listedKey] = listed{names, until}
	return names, nil
}

// errListed makes a transaction roll back.
var errListed = errors.New("listed")

// admit refuses a user's SQL that names a function which it must not call, with [assign.QueryRefused]. field is "query" or
// "recheck". It must come before the text is executed, and before PostgreSQL plans it: planning already executes some calls.
func (q *Ranker) admit(ctx context.Context, tx pgx.Tx, field string, text assign.Query) error {
	if !q.Confined || text == "" {
		return nil
	}
	names, err := forbiddenOn(ctx, tx)
	if err != nil {
		return err
	}
	name, before := names.find(string(text))
	switch name {
	case "":
		return nil
	case disguise:
		return queryRefusal(field, "a %s must not contain %s, which can disguise the name of a function; write the name as it is; it stands at position %d of the %s",
			field, disguise, before+1, field)
	}
	return queryRefusal(field, "a %s must not name %s, not even in a comment or a string, because that function does more than read; leave it out, "+
		"or call a function of your own database that does what you need; it stands at position %d of the %s", field, name, before+1, field)
}

// admitRun is admit for a run, which fails with the refusal's text.
func (q *Ranker) admitRun(ctx context.Context, tx pgx.Tx, s assign.Settings) error {
	err := q.admit(ctx, tx, "query", s.Query)
	if err == nil {
		err = q.admit(ctx, tx, "recheck", s.Recheck)
	}
	var refusal *assign.Refusal
	if errors.As(err, &refusal) {
		return &ErrQuery{refusal.Detail}
	}
	return err
}

// forbidden are the names of functions that a query must not call, and finds them in its text.
//
// It reads no SQL. It finds names anywhere, in comments and strings, too, because a reader of SQL that went wrong once, or
// knew less than the server's own, would let a call pass. Everything but ASCII letters, digits and the underscore ends a word.
// So a name is also found in the middle of an identifier such as a$set_config, which is not the function; that refuses more
// than PostgreSQL would call, and never less.
type forbidden struct {
	anywhere map[string]bool // the server's own functions
	called   map[string]bool // functions of extensions, which have names like schedule: only before a bracket
	odd      []string        // those of them with names that are no words, folded
}

// nameLimit is the most bytes of a name in PostgreSQL, which cuts longer ones off.
const nameLimit = 63

// textRunners are functions of extensions, or the beginnings of their names, that execute SQL which they get as text, though
// they are not marked as volatile.
var (
	textRunners       = map[string]bool{"connectby": true, "xpath_table": true, "cypher": true}
	textRunnersBeginS = []string{"crosstab", "pgr_", "_pgr_", "st_mapalgebra", "_st_mapalgebra"}
)

// newForbidden returns an empty list.
func newForbidden() *forbidden {
	return &forbidden{anywhere: map[string]bool{}, called: map[string]bool{}}
}

// add adds a function. everywhere: its name counts without a bracket behind it.
func (f *forbidden) add(name string, everywhere bool) {
	name = strings.Map(fold, name)
	switch {
	case strings.IndexFunc(name, func(r rune) bool { return r > unicode.MaxASCII || !inWord(byte(r)) }) >= 0:
		f.odd = append(f.odd, strings.ReplaceAll(name, `"`, `""`))
	case everywhere:
		f.anywhere[name] = true
	default:
		f.called[name] = true
	}
}

// disguise begins an identifier with Unicode escapes, which can spell any name: U&"\0073et_config".
const disguise = `u&"`

// find returns the first forbidden name of a text, or the beginning of an escaped identifier, and how many characters come
// before it; "" if the text has none.
func (f *forbidden) find(text string) (name string, before int) {
	text = strings.Map(fold, text)
	at := strings.Index(text, disguise)
	if at >= 0 {
		name, text = disguise, text[:at+len(disguise)]
	}
	c := calls{text, 8*len(text) + 1<<16}
	for _, odd := range f.odd {
		for from := 0; ; {
			i := strings.Index(text[from:], odd)
			if i < 0 {
				break
			}
			if from += i + len(odd); name != "" && from > at {
				break
			}
			if c.bracket(from) {
				name, at = odd, from-len(odd)
			}
		}
	}
	for i := 0; i < len(text) && (name == "" || i < at); i++ {
		if !inWord(text[i]) {
			continue
		}
		from := i
		for i < len(text) && inWord(text[i]) {
			i++
		}
		if word := f.inRun(text[from:i], i, &c); word != "" && (name == "" || from < at) {
			name, at = word, from+max(0, strings.Index(text[from:i], word))
		}
	}
	if name == "" {
		return "", 0
	}
	return name, utf8.RuneCountInString(text[:at])
}

// inRun returns the forbidden name that a run of letters, digits and underscores is, or ""; end is where it ends in the text.
func (f *forbidden) inRun(run string, end int, c *calls) string {
	if f.is(run, end, c) {
		return run
	}
	if len(run) > nameLimit && f.is(run[:nameLimit], end, c) {
		return run[:nameLimit]
	}
	if run[0] < '0' || run[0] > '9' {
		return ""
	}
	// Before version 15, PostgreSQL reads 1pg_sleep as a number and a name.
	for i := max(1, len(run)-nameLimit); i < len(run); i++ {
		if f.is(run[i:], end, c) {
			return run[i:]
		}
	}
	return ""
}

func (f *forbidden) is(word string, end int, c *calls) bool {
	return f.anywhere[word] || (f.called[word] || runsText(word)) && c.bracket(end)
}

func runsText(word string) bool {
	if textRunners[word] {
		return true
	}
	for _, beginning := range textRunnersBeginS {
		if strings.HasPrefix(word, beginning) {
			return true
		}
	}
	return false
}

// calls distinguishes names that are called from others.
type calls struct {
	text   string
	effort int // how many more bytes may be read: each name could have the rest of a large text as its comment
}

// bracket reports whether the next thing from there is an opening bracket, behind closing quotes, blanks and comments. It also
// reports so when finding out would take too long.
func (c *calls) bracket(from int) bool {
	for i := from; i < len(c.text); i++ {
		if c.effort < 0 {
			return true
		}
		switch c.text[i] {
		case '(':
			return true
		case '"', ' ', '\t', '\n', '\r', '\f', '\v':
		case '-', '/':
			end := commentEnd(c.text[i:])
			if end == 0 {
				return false
			}
			i += end - 1
		default:
			return false
		}
		c.effort -= i + 1 - from
		from = i + 1
	}
	return false
}

// commentEnd returns the length of the comment that a text begins with, 0 for none. Comments between /* and */ nest. One that
// is not closed ends with the text.
func commentEnd(text string) int {
	switch {
	case strings.HasPrefix(text, "--"):
		if end := strings.IndexAny(text, "\n\r"); end >= 0 {
			return end
		}
		return len(text)
	case !strings.HasPrefix(text, "/*"):
		return 0
	}
	depth := 0
	for i := 0; i+1 < len(text); i++ {
		switch text[i : i+2] {
		case "/*":
			depth++
			i++
		case "*/":
			depth--
			i++
		}
		if depth == 0 {
			return i + 1
		}
	}
	return len(text)
}

// fold makes letters small as PostgreSQL does in the names of its functions, and a little more: in a Turkish database, İ
// becomes i.
func fold(r rune) rune {
	if r < utf8.RuneSelf {
		if 'A' <= r && r <= 'Z' {
			r += 'a' - 'A'
		}
		return r
	}
	return unicode.ToLower(r)
}

func inWord(c byte) bool {
	return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '_'
}
