package cli

import (
	"fmt"
	"testing"
)

// The program that an agent runs does not get the agent's secrets.
func TestEnvironmentWithoutSecrets(t *testing.T) {
	t.Parallel()
	got := withoutSecrets([]string{"PATH=/bin", "GETWORK_TOKEN=x", "GETWORK_URL=http://127.0.0.1", "PGPASSWORD=x", "DATABASE_URL=x", "GETWORK_QUERY_DATABASE_URL=x", "GETWORK_DATABASE_URL_FILE=x", "GETWORK_TOKEN_FILE=x", "AWS_SECRET_ACCESS_KEY=x", "HOME=/"})
	if want := "[PATH=/bin GETWORK_URL=http://127.0.0.1 HOME=/]"; fmt.Sprint(got) != want {
		t.Errorf("it gets %v, want %s", got, want)
	}
}
