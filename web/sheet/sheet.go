// Package sheet escapes CSV cells, so that spreadsheets don't execute them, and reads them back.
package sheet

import (
	"strings"
	"unicode/utf8"
)

// formula has the characters with which a formula begins, those of full width too.
const formula = "=+-@\t\r\n\uff1d\uff0b\uff0d\uff20"

// Text puts an apostrophe before what a spreadsheet would execute as a formula: keys and notes are written by strangers. See
// https://owasp.org/www-community/attacks/CSV_Injection
//
// What begins like a cell that it has escaped gets one more apostrophe, or Plain would take away its own.
func Text(cell string) string {
	if escapable(cell) {
		return "'" + cell
	}
	return cell
}

// Plain returns the text of a cell that Text has written, and leaves all others as they are.
func Plain(cell string) string {
	if strings.HasPrefix(cell, "'") && escapable(cell) {
		return cell[1:]
	}
	return cell
}

// escapable reports whether a cell begins like a formula, after any number of apostrophes.
func escapable(cell string) bool {
	rest := strings.TrimLeft(cell, "'")
	first, _ := utf8.DecodeRuneInString(rest)
	return rest != "" && strings.ContainsRune(formula, first)
}
