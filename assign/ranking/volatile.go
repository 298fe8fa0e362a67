package ranking

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// forbidden are the names of functions that a query must not call, and finds them in its text.
//
// It reads no SQL. It looks for names anywhere, in comments and strings, too, because a reader of SQL that went wrong once, or
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

// calls tells names that are called from others.
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
