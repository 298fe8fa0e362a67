package assign

import (
	"bytes"
	"strconv"
)

// LoneSurrogate reports whether a string in valid JSON has half of a character: an escape from \ud800 to \udfff that is not one of
// a pair. encoding/json reads each as U+FFFD, so that two different keys would become one.
func LoneSurrogate(text []byte) bool {
	for {
		i := bytes.IndexByte(text, '\\')
		if i < 0 {
			return false
		}
		half := escapedUnit(text[i:])
		switch {
		case half < 0xd800 || half > 0xdfff:
			text = text[min(i+2, len(text)):] // what follows \u are digits
		case half >= 0xdc00, !low(escapedUnit(text[i+6:])):
			return true
		default:
			text = text[i+12:]
		}
	}
}

// escapedUnit returns the number of the escape \u and four digits that the text begins with, or 0.
func escapedUnit(text []byte) uint64 {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return 0
	}
	n, _ := strconv.ParseUint(string(text[2:6]), 16, 16)
	return n
}

func low(unit uint64) bool { return unit >= 0xdc00 && unit <= 0xdfff }
