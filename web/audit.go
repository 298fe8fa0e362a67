package web

import (
	"net/http"

	"getwork/assign/audit"
)

// listAudit answers with who did what, newest first.
func (s *server) listAudit(w http.ResponseWriter, r *http.Request) error {
	v, err := parameters(r)
	if err != nil {
		return err
	}
	filter := audit.Filter{Act: v.Get("act"), Actor: v.Get("actor")}
	for _, field := range []string{"act", "actor"} {
		if !isText(v.Get(field)) {
			return refuseField(field, "%s is UTF-8 text without NUL", field)
		}
	}
	before, limit, err := readCursor(r)
	if err != nil {
		return err
	}
	filter.Before = before
	rows, more, err := readPage(limit, func(limit int) ([]audit.Row, error) {
		filter.Limit = limit
		return s.Audit.List(r.Context(), filter)
	})
	if err != nil {
		return err
	}
	return answerPage(w, "audit", rows, more, func(row audit.Row) int64 { return row.N })
}
