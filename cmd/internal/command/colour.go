package command

import (
	"fmt"
	"io"
	"os"
)

// Colour is how a word looks on a terminal, as a parameter of ECMA-48's select graphic rendition.
type Colour string

// The colours. They are the terminal's own, so that they suit a dark and a light background.
const (
	Usual  Colour = ""
	Bold   Colour = "1"
	Red    Colour = "31"
	Green  Colour = "32"
	Yellow Colour = "33"
)

// Coloured reports whether w is a terminal that shows colours, and the user wants them: NO_COLOR (no-color.org) is not set.
func Coloured(w io.Writer) bool {
	f, is := w.(*os.File)
	terminal := os.Getenv("TERM")
	return is && IsTerminal(f) && os.Getenv("NO_COLOR") == "" && terminal != "" && terminal != "dumb"
}

// Paint writes text to w, in a colour if w is a [Visible] with colours. The text may be data: it can't change the terminal itself.
func Paint(w io.Writer, c Colour, text string) error {
	v, is := w.(*Visible)
	if !is || !v.Colour || c == Usual {
		_, err := io.WriteString(w, text)
		return err
	}
	if _, err := fmt.Fprintf(v.W, "\x1b[%sm", c); err != nil {
		return err
	}
	_, err := io.WriteString(v, text)
	if _, reset := io.WriteString(v.W, "\x1b[m"); err == nil {
		err = reset
	}
	return err
}

// ColourOf returns the colour of a state or an outcome: green for what went well, yellow for what is to be looked at, red for what failed.
// Everything else is usual.
func ColourOf(state string) Colour { return coloursOf[state] }

var coloursOf = map[string]Colour{
	"ok": Green, "completed": Green, "assigned": Green, "finished": Green, "delivered": Green,
	"warning": Yellow, "paused": Yellow, "expired": Yellow, "partial": Yellow, "lost": Yellow, "never": Yellow,
	"error": Red, "failed": Red, "dead": Red,
}
