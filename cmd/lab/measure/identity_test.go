package measure

import (
	"testing"

	"getwork/cmd/internal/bench/stage"
	"getwork/schema/schematest"
)

// Users who log in click as others do, whether they show sessions or tokens.
func TestClicksOfUsersWhoLogIn(t *testing.T) {
	t.Parallel()
	p, err := openProvider()
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	for _, tokens := range []bool{false, true} {
		e := testEnv(t)
		e.DatabaseURL = schematest.Plain(t)
		err := p.logIn(*e, tokens).On(t.Context(), 1, func(s *stage.Stage) error {
			if err := s.Shelf(t.Context(), "clicks", 50); err != nil {
				return err
			}
			shown, err := s.Show(t.Context(), "user 0", "worker")
			if err != nil {
				return err
			}
			u, err := s.User(t.Context(), 0, "clicks", "user 0", stage.WantedEach)
			if err != nil {
				return err
			}
			_, err = u.Click()
			u.Close()
			if err != nil {
				return err
			}
			how := "Cookie"
			if tokens {
				how = "Authorization"
			}
			if shown.Get(how) == "" {
				t.Errorf("user 0 shows %v, want %s", shown, how)
			}
			return s.Check(t.Context(), "clicks")
		})
		if err != nil {
			t.Errorf("tokens %v: %v", tokens, err)
		}
	}
}
