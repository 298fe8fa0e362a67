package ranking

import "strings"

// RowDetails is a whole row of a query as JSON, in the order of its columns. DetailsOf removes the columns that getwork reads
// itself; PostgreSQL would take ten times as long to remove them as to write the row.
const RowDetails = `row_to_json(r)::text`

// DetailsOf returns what the query said of an item besides item, slots and exclusive: a JSON object whose members are
// unchanged.
func DetailsOf(row string) string {
	var kept strings.Builder
	kept.Grow(len(row))
	kept.WriteByte('{')
	for rest := strings.TrimSuffix(strings.TrimPrefix(row, "{"), "}"); rest != ""; {
		end := memberEnd(rest)
		member := rest[:end]
		rest = strings.TrimPrefix(rest[end:], ",")
		if strings.HasPrefix(member, `"item":`) || strings.HasPrefix(member, `"slots":`) || strings.HasPrefix(member, `"exclusive":`) {
			continue
		}
		if kept.Len() > 1 {
			kept.WriteByte(',')
		}
		kept.WriteString(member)
	}
	kept.WriteByte('}')
	return kept.String()
}

// memberEnd returns where the first of an object's members ends: at its comma, or at the end of s.
func memberEnd(s string) int {
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
