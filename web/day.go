package web

import (
	"net/http"
	"time"
)

// day answers with what became of the caller's own work lately, and with what is left to do.
func (s *server) day(w http.ResponseWriter, r *http.Request) error {
	v, err := parameters(r)
	if err != nil {
		return err
	}
	var since *time.Time
	if text := v.Get("since"); text != "" {
		at, err := time.Parse(time.RFC3339, text)
		if err != nil {
			return refuseField("since", "since is a time such as 2026-08-01T12:00:00Z, not %q; a plus sign in an address is written %%2B", text)
		}
		since = &at
	}
	c := CallerOf(r)
	d, err := s.Records.Day(r.Context(), c.Holder.User, since, c.Tasks)
	if err != nil {
		return err
	}
	all, err := s.Records.Tasks(r.Context())
	if err != nil {
		return err
	}
	for i := range all {
		if c.Who().May(all[i].Groups) && c.covers(all[i].Name) {
			d.Count(&all[i])
		}
	}
	return answer(w, http.StatusOK, d)
}
