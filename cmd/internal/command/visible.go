package command

import (
	"bytes"
	"fmt"
	"io"
	"sync"
	"unicode"
	"unicode/utf8"
)

// Visible writes text to a terminal, or to a pipe, behind which may be one. All that a command prints goes through it, but for what
// [Streams.Data] is for, and the output of an agent's program. Item keys, titles and errors are data of the bank and of the authors of queries.
// Characters that would control the terminal or reorder a line are written as escapes, which JSON reads as the same
// characters. It may be used by several goroutines.
type Visible struct {
	W       io.Writer
	Colour  bool // whether [Paint] has an effect
	Columns int  // how wide the terminal is; 0: no terminal, or nobody knows

	mu   sync.Mutex
	rest []byte // the first bytes of a character whose others come with the next write, as a buffer in front cuts it
}

// Write implements [io.Writer].
func (v *Visible) Write(text []byte) (int, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	all := text
	if len(v.rest) > 0 {
		all = append(v.rest, text...)
	}
	whole := len(all) - cut(all)
	all, v.rest = all[:whole], bytes.Clone(all[whole:])
	if Obeyed(all) {
		all = escaped(all)
	}
	if _, err := v.W.Write(all); err != nil {
		return 0, err
	}
	return len(text), nil
}

// Obeyed reports whether text has what [Visible] writes as escapes.
func Obeyed(text []byte) bool { return bytes.IndexFunc(text, obeyed) >= 0 || !utf8.Valid(text) }

// cut returns how many bytes at the end are the beginning of a character.
func cut(text []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(text); n++ {
		if end := text[len(text)-n:]; utf8.RuneStart(end[0]) {
			if utf8.FullRune(end) {
				return 0
			}
			return n
		}
	}
	return 0
}

// escaped has escapes for all characters that a terminal would obey.
func escaped(text []byte) []byte {
	shown := make([]byte, 0, len(text)+16)
	for rest := text; len(rest) > 0; {
		r, size := utf8.DecodeRune(rest)
		switch {
		case r == utf8.RuneError && size == 1: // not UTF-8: some terminals take 0x9b for the start of a command
			shown = fmt.Appendf(shown, `\x%02x`, rest[0])
		case obeyed(r):
			shown = fmt.Appendf(shown, `\u%04x`, r)
		default:
			shown = append(shown, rest[:size]...)
		}
		rest = rest[size:]
	}
	return shown
}

// obeyed reports whether a terminal would obey a character: control characters other than line ends and tabs, and
// characters that change the direction of the text after them.
func obeyed(r rune) bool {
	return unicode.IsControl(r) && r != '\n' && r != '\t' || unicode.Is(unicode.Bidi_Control, r)
}
