package pg

import "strings"

// briefly is how many bytes of a text of PostgreSQL's are kept.
const briefly = 2000

// Brief cuts off a text of PostgreSQL's that is too long to be stored and shown. PostgreSQL quotes the value that an error is about,
// however large it is, and the text is stored with the run, the task, and each request that waits.
func Brief(text string) string {
	if len(text) <= briefly {
		return text
	}
	return strings.ToValidUTF8(text[:briefly], "") + "…"
}
