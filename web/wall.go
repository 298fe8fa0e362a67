package web

import (
	"net/http"
	"time"

	"getwork/assign"
	"getwork/assign/rights"
)

// createWall answers 201 with a link for a screen on a wall, the only time that it is shown. The code is behind the #: neither
// logs nor a program that looks at links for somebody get it.
func (s people) createWall(w http.ResponseWriter, r *http.Request) error {
	body := struct {
		User      string          `json:"user"`
		ExpiresIn assign.Duration `json:"expires_in"`
	}{"wall", assign.Duration(rights.WallMost)}
	if err := decode(w, r, &body); err != nil {
		return err
	}
	if s.LogInPath == "" {
		return assign.Refuse(assign.NotFound, "nobody logs in with a browser here, so a screen can't either; give its browser's program a token with the scope read")
	}
	code, made, err := s.Rights.CreateWall(r.Context(), body.User, time.Duration(body.ExpiresIn))
	if err != nil {
		return err
	}
	return answer(w, http.StatusCreated, struct {
		URL string `json:"url"`
		rights.NewWall
	}{s.PublicURL.String() + "/auth/wall#" + code, made})
}
