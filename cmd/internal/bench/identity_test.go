package bench

import (
	"net/http"
	"testing"

	"getwork/schema/schematest"
)

// Users who log in click as others do, whether they show sessions or tokens.
func TestClicksOfUsersWhoLogIn(t *testing.T) {
	t.Parallel()
	p, secret, closes, err := openProvider()
	if err != nil {
		t.Fatal(err)
	}
	defer closes()
	for _, tokens := range []bool{false, true} {
		e := testEnv(t)
		e.DatabaseURL, e.logIns = schematest.Plain(t), &credentials{tokens: tokens, idp: p, secret: secret, known: map[string]http.Header{}}
		err := e.on(t.Context(), 1, func(s *stage) error {
			if err := s.shelf(t.Context(), "clicks", 50); err != nil {
				return err
			}
			u, err := s.user(t.Context(), 0, "clicks", "user 0", wantedEach)
			if err != nil {
				return err
			}
			_, err = u.click()
			u.close()
			if err != nil {
				return err
			}
			how := "Cookie"
			if tokens {
				how = "Authorization"
			}
			if e.logIns.known["user 0"].Get(how) == "" {
				t.Errorf("user 0 shows %v, want %s", e.logIns.known["user 0"], how)
			}
			return s.check(t.Context(), "clicks")
		})
		if err != nil {
			t.Errorf("tokens %v: %v", tokens, err)
		}
	}
}
