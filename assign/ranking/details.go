package ranking

import "bytes"

// RowDetails is a whole row of a query as JSON, in the order of its columns. DetailsOf removes the columns that getwork reads
// itself; PostgreSQL would take ten times as long to remove them as to write the row.
const RowDetails = `row_to_json(r)::text`

// DetailsOf returns what the query said of an item besides item, slots and exclusive: a JSON object whose members are
// unchanged.
func DetailsOf(row string) string { return string(appendDetails(nil, []byte(row))) }

// appendDetails appends DetailsOf(row) to text.
func appendDetails(text, row []byte) []byte {
	text = append(text, '{')
	begin := len(text)
	for rest := bytes.TrimSuffix(bytes.TrimPrefix(row, []byte("{")), []byte("}")); len(rest) > 0; {
		end := memberEnd(rest)
		member := rest[:end]
		rest = bytes.TrimPrefix(rest[end:], []byte(","))
		if bytes.HasPrefix(member, []byte(`"item":`)) || bytes.HasPrefix(member, []byte(`"slots":`)) || bytes.HasPrefix(member, []byte(`"exclusive":`)) {
			continue
		}
		if len(text) > begin {
			text = append(text, ',')
		}
		text = append(text, member...)
	}
	return append(text, '}')
}

// memberEnd returns where the first of an object's members ends: at its comma, or at the end of s.
func memberEnd(s []byte) int {
	depth, quoted := 0, false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			depth--
		case c == ',' && depth == 0:
			return i
		}
	}
	return len(s)
}
