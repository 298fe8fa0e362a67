package web

import (
	"net/http"

	"getwork/assign"
)

// alerts answers with what is wrong with the tasks that the caller may see.
func (s *server) alerts(w http.ResponseWriter, r *http.Request) error {
	all, err := s.Records.Tasks(r.Context())
	if err != nil {
		return err
	}
	c := CallerOf(r)
	var tasks []assign.Task
	for i := range all {
		if c.Who().May(all[i].Groups) && c.covers(all[i].Name) {
			tasks = append(tasks, shown(c.Who(), all[i]))
		}
	}
	alerts, err := s.Records.Alerts(r.Context(), tasks)
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, alerts)
}
