package web

import (
	"net/http"
	"slices"

	"getwork/assign"
	"getwork/assign/manage"
	"getwork/assign/rights"
)

// managesOthers reports whether the caller may enter and end the absences of others. That is a manager's act.
func (c *Caller) managesOthers() bool {
	return c.Role == Manager && (c.Scopes == nil || slices.Contains(c.Scopes, rights.ScopeManage))
}

// createAbsence enters an absence, the caller's own unless a manager names somebody else.
func (s *server) createAbsence(w http.ResponseWriter, r *http.Request) error {
	var body struct {
		User *string `json:"user"`
		assign.AbsenceWish
	}
	if err := decodeIfAny(w, r, &body); err != nil {
		return err
	}
	c := CallerOf(r)
	user := c.Holder.User
	if body.User != nil {
		user = *body.User
	}
	if user != c.Holder.User && !c.managesOthers() {
		return assign.Refuse(assign.Forbidden, "only a manager can enter the absence of somebody else, with the scope manage; leave user out for your own")
	}
	absence, err := manage.EnterAbsence(r.Context(), s.Engine, user, body.AbsenceWish, c.Holder.User)
	if err != nil {
		return err
	}
	return answer(w, http.StatusCreated, absence)
}

// listAbsences answers with absences that are in force or to come: workers' and agents' own, everybody's for the others.
func (s *server) listAbsences(w http.ResponseWriter, r *http.Request) error {
	v, err := parameters(r)
	if err != nil {
		return err
	}
	c, user := CallerOf(r), v.Get("user")
	if user != "" {
		if err := assign.CheckUser(user); err != nil {
			return err
		}
	}
	if c.Role != Manager && c.Role != Observer {
		if user != "" && user != c.Holder.User {
			return assign.Refuse(assign.NotFound, "there is nothing of %q that you may see", user)
		}
		user = c.Holder.User
	}
	after, limit, err := readCursor(r)
	if err != nil {
		return err
	}
	absences, more, err := readPage(limit, func(limit int) ([]assign.Absence, error) {
		return s.Records.Absences(r.Context(), user, after, limit)
	})
	if err != nil {
		return err
	}
	return answerPage(w, "absences", absences, more, func(a assign.Absence) int64 { return a.ID })
}

// endAbsence ends an absence. Repeating it changes nothing.
func (s *server) endAbsence(w http.ResponseWriter, r *http.Request) error {
	id, err := number(r, "id")
	if err != nil {
		return err
	}
	c := CallerOf(r)
	absence, err := manage.EndAbsence(r.Context(), s.Engine, id, c.Holder.User, c.managesOthers())
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, absence)
}

// importAbsences makes the absences of somebody that came from a source those of the body.
func (s *server) importAbsences(w http.ResponseWriter, r *http.Request) error {
	name, err := segment(r, "name")
	if err != nil {
		return err
	}
	v, err := parameters(r)
	if err != nil {
		return err
	}
	var all []assign.AbsenceWish
	if err := decode(w, r, &all); err != nil {
		return err
	}
	absences, err := manage.ImportAbsences(r.Context(), s.Engine, name, v.Get("source"), all, CallerOf(r).Holder.User)
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, map[string]any{"absences": append([]assign.Absence{}, absences...)})
}
