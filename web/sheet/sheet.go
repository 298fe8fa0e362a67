// Package sheet escapes CSV cells, so that spreadsheets don't execute them.
package sheet

import (
	"strings"
	"unicode/utf8"
)

// formula has the characters with which a formula begins, those of full width too.
const formula = "=+-@\t\r\n\uff1d\uff0b\uff0d\uff20"

// Text puts an apostrophe before what a spreadsheet would execute as a formula: keys and notes are written by strangers. See
// https://owasp.org/www-community/attacks/CSV_Injection
func Text(cell string) string {
	if first, _ := utf8.DecodeRuneInString(cell); cell != "" && strings.ContainsRune(formula, first) {
		return "'" + cell
	}
	return cell
}
