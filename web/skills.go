package web

import (
	"net/http"

	"getwork/assign"
	"getwork/assign/manage"
)

// showSkills answers with what somebody can: workers' and agents' own, everybody's for the others.
func (s *server) showSkills(w http.ResponseWriter, r *http.Request) error {
	name, err := segment(r, "name")
	if err != nil {
		return err
	}
	if c := CallerOf(r); c.Role != Manager && c.Role != Observer && name != c.Holder.User {
		return assign.Refuse(assign.NotFound, "there is nothing of %q that you may see", name)
	}
	if err := assign.CheckUser(name); err != nil {
		return err
	}
	skills, err := s.Records.Skills(r.Context(), name)
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, skills)
}

// setSkills replaces what somebody can.
func (s *server) setSkills(w http.ResponseWriter, r *http.Request) error {
	name, err := segment(r, "name")
	if err != nil {
		return err
	}
	var skills []string
	if err := decode(w, r, &skills); err != nil {
		return err
	}
	if skills, err = manage.SetSkills(r.Context(), s.Engine, name, skills, CallerOf(r).Holder.User); err != nil {
		return err
	}
	return answer(w, http.StatusOK, skills)
}
