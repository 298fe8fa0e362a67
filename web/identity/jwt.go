package identity

import (
	"errors"
	"net/http"

	"getwork/assign"
	"getwork/assign/rights"
	"getwork/web"
	"getwork/web/identity/oidc"
)

// Programs come in with access tokens that an issuer gave them.
type Programs struct {
	JWT    *oidc.JWT
	Rights *rights.Registry
}

// Judge returns the rights of an access token. A [rights.Rejection] says why it gives none.
func (p *Programs) Judge(r *http.Request, token string) (rights.Rights, error) {
	l, err := p.JWT.Verify(r.Context(), token)
	var f *oidc.Failure
	switch {
	case errors.As(err, &f):
		return rights.Rights{}, &rights.Rejection{Why: f.Reason, Refusal: f.Refusal}
	case err != nil:
		return rights.Rights{}, err
	}
	e := rights.Entry{Iss: l.Iss, Sub: l.Sub, Name: l.Name, Role: assign.Role(l.Role), Groups: l.Groups, From: web.ClientAddress(r)}
	return p.Rights.JWT(r.Context(), e, l.EndsAt)
}
