package web

import (
	"regexp"
	"strings"
)

// literal is a string or a template in a module.
type literal struct {
	tag    string   // of a template, such as html
	plain  bool     // it is a string, not a template
	parts  []string // what stands between a template's expressions
	before string   // the code before it, on its line
	line   int
}

// key is a template's text as a table has it, with {0} and so on for its expressions.
func (l literal) key() string {
	var b strings.Builder
	for i, part := range l.parts {
		if i > 0 {
			b.WriteString("{" + string(rune('0'+i-1)) + "}")
		}
		b.WriteString(part)
	}
	return b.String()
}

// scanner finds a module's literals. It knows as much of JavaScript as the page's modules use.
type scanner struct {
	text  string
	at    int
	found []literal
}

func literals(text string) []literal {
	s := &scanner{text: text}
	s.code()
	return s.found
}

var (
	tagBefore   = regexp.MustCompile(`[\w$]+$`)
	regexBefore = regexp.MustCompile(`(^|[(,=:\[!&|?{};+>]|\breturn)\s*$`)
)

func (s *scanner) before() string {
	return s.text[strings.LastIndexByte(s.text[:s.at], '\n')+1 : s.at]
}

func (s *scanner) line() int { return 1 + strings.Count(s.text[:s.at], "\n") }

// code reads until the brace that ends a template's expression, or the text's end.
func (s *scanner) code() {
	for depth := 0; s.at < len(s.text); s.at++ {
		rest := s.text[s.at:]
		switch c := s.text[s.at]; {
		case strings.HasPrefix(rest, "//"):
			s.at += strings.IndexByte(rest+"\n", '\n') - 1
		case strings.HasPrefix(rest, "/*"):
			s.at += strings.Index(rest, "*/") + 1
		case c == '/' && regexBefore.MatchString(s.before()):
			s.regex()
		case c == '\'' || c == '"':
			s.string(c)
		case c == '`':
			s.template()
		case c == '{':
			depth++
		case c == '}' && depth == 0:
			return
		case c == '}':
			depth--
		}
	}
}

func (s *scanner) regex() {
	class := false
	for s.at++; s.text[s.at] != '/' || class; s.at++ {
		switch s.text[s.at] {
		case '\\':
			s.at++
		case '[':
			class = true
		case ']':
			class = false
		}
	}
}

func (s *scanner) string(quote byte) {
	l := literal{plain: true, before: s.before(), line: s.line()}
	begin := s.at + 1
	for s.at++; s.text[s.at] != quote; s.at++ {
		if s.text[s.at] == '\\' {
			s.at++
		}
	}
	l.parts = []string{unescaped(s.text[begin:s.at])}
	s.found = append(s.found, l)
}

func (s *scanner) template() {
	n := len(s.found)
	l := literal{before: s.before(), line: s.line(), tag: tagBefore.FindString(s.before())}
	s.found = append(s.found, l)
	begin := s.at + 1
	for s.at++; s.text[s.at] != '`'; s.at++ {
		switch {
		case s.text[s.at] == '\\':
			s.at++
		case strings.HasPrefix(s.text[s.at:], "${"):
			l.parts = append(l.parts, unescaped(s.text[begin:s.at]))
			s.at += 2
			s.code()
			begin = s.at + 1
		}
	}
	l.parts = append(l.parts, unescaped(s.text[begin:s.at]))
	s.found[n] = l
}

func unescaped(text string) string {
	return strings.NewReplacer(`\'`, `'`, "\\`", "`", `\n`, "\n", `\\`, `\`).Replace(text)
}
