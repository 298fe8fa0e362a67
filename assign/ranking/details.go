package ranking

import "strings"

// RowDetails is a whole row of a query as JSON, in the order of its columns; DetailsOf takes off what getwork reads
// itself. Left to PostgreSQL, the latter would cost ten times as much as the former.
const RowDetails = `row_to_json(r)::text`

// DetailsOf is what the query said of an item besides item, slots and exclusive: a JSON object, whose members stand as
// they came.
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

// memberEnd is where the first member of an object's inside ends: at its comma, or with all.
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
