package command

import (
	"bytes"
	"fmt"
	"io"
	"unicode"
	"unicode/utf8"
)

// Visible writes text to a terminal. Item keys, titles and errors are data of the bank and of the authors of queries.
// Characters that would control the terminal or reorder a line are written as escapes, which JSON reads as the same
// characters.
type Visible struct {
	W      io.Writer
	Colour bool // whether [Paint] has an effect
}

// Write implements [io.Writer].
func (v Visible) Write(text []byte) (int, error) {
	if bytes.IndexFunc(text, obeyed) < 0 && utf8.Valid(text) {
		return v.W.Write(text)
	}
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
	if _, err := v.W.Write(shown); err != nil {
		return 0, err
	}
	return len(text), nil
}

// obeyed reports whether a terminal would obey a character: control characters other than line ends and tabs, and
// characters that change the direction of the text after them.
func obeyed(r rune) bool {
	return unicode.IsControl(r) && r != '\n' && r != '\t' || unicode.Is(unicode.Bidi_Control, r)
}
