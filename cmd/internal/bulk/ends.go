package bulk

import "bufio"

// ends reads text as encoding/csv needs it, and so that every line ends with LF.
//
// The first line end of a file says what all end with. If that is CR alone, as old programs of the Mac write it, each CR becomes LF:
// otherwise the whole file would be one row, the names of the columns. Quoted text in CSV stays as it is.
//
// encoding/csv takes away a CR before LF within quotation marks, too, and a key would come back from an export as another one. So it
// gets a second.
type ends struct {
	from  *bufio.Reader
	comma byte // of CSV; 0: nothing is quoted

	known, cr bool // whether the first line end was read, and is CR alone
	doubled   bool // a second CR comes next

	// Where it is in CSV, as encoding/csv sees that: after a misplaced quotation mark none counts until the line ends.
	within, begun, closed, broken bool // quotation marks, a cell that has begun, marks that were closed or are the first of two
}

// Read implements [io.Reader]. It returns as soon as it has something, so that a slow pipe is pushed as it comes.
func (e *ends) Read(p []byte) (n int, err error) {
	for n < len(p) && (n == 0 || e.doubled || e.from.Buffered() > 0) {
		if e.doubled {
			e.doubled = false
			p[n] = '\r'
			n++
			continue
		}
		c, err := e.from.ReadByte()
		if err != nil {
			return n, err
		}
		if c == '\r' {
			next, _ := e.from.Peek(1)
			before := len(next) > 0 && next[0] == '\n'
			if !e.known && !e.within {
				e.known, e.cr = true, !before
			}
			switch {
			case e.within:
				e.doubled = before
			case e.cr && !before:
				c = '\n'
			}
		}
		e.follow(c)
		p[n] = c
		n++
	}
	return n, nil
}

// follow keeps track of quotation marks.
func (e *ends) follow(c byte) {
	switch {
	case e.comma == 0:
		e.known = e.known || c == '\n'
	case e.within:
		e.within, e.closed = c != '"', c == '"'
	case c == '\n':
		e.known, e.begun, e.closed, e.broken = true, false, false, false
	case e.broken:
	case c == '"' && (!e.begun || e.closed):
		e.within, e.begun, e.closed = true, true, false
	case c == '"' || e.closed && c != e.comma && c != '\r':
		e.broken = true
	default:
		e.begun, e.closed = c != e.comma, false
	}
}

// lines reads on which line a byte is.
type lines struct {
	from   *bufio.Reader
	err    error // of reading
	read   int64
	ends   []int64 // those after the last that was asked for
	passed int
}

// Read implements [io.Reader].
func (l *lines) Read(p []byte) (int, error) {
	n, err := l.from.Read(p)
	for i, c := range p[:n] {
		if c == '\n' {
			l.ends = append(l.ends, l.read+int64(i))
		}
	}
	l.read += int64(n)
	l.err = err
	return n, err
}

// at returns the line of a byte that is not before the last one that was asked for.
func (l *lines) at(offset int64) int {
	for len(l.ends) > 0 && l.ends[0] < offset {
		l.ends, l.passed = l.ends[1:], l.passed+1
	}
	return l.passed + 1
}
