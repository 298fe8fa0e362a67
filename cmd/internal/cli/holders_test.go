package cli

import (
	"testing"

	"getwork/assign"
	"getwork/cmd/internal/e2e"
	"getwork/schema/schematest"
)

// Holders are listed longest first, of one task or several, or of one user, page by page.
func TestWorkHolders(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	c := e2e.NewTerminal(t)
	for _, task := range []string{"photos", "letters"} {
		c.Run(0, nil, "task", "create", "--name", task, "--inbox")
		c.Run(0, nil, "items", "push", task, "a", "b", "c", "d")
	}
	c.Run(0, e2e.Text("Nobody holds such work."), "work", "holders")
	c.Run(0, nil, "get", "photos", "--count", "2")
	c.Run(0, nil, "get", "photos", "--user", "tracy")
	c.Run(0, nil, "get", "letters", "--user", "tracy")
	c.Run(0, e2e.Text("USER    TASK     HELD  SINCE", "oliver  photos   2     20", "tracy   photos   1     20", "tracy   letters  1     20"), "work", "holders")
	c.Run(0, e2e.Text("tracy  photos   1", "tracy  letters  1"), "work", "holders", "--of", "tracy", "--task", "letters,photos")
	c.Run(0, e2e.Text("oliver", "There may be more: --all lists everything, --cursor "), "work", "holders", "--limit", "1")
	c.Run(1, e2e.Text("no task \"nope\""), "work", "holders", "--task", "nope")
	c.Run(1, e2e.Text("your role is worker"), "work", "holders", "--role", "worker")
	c.Run(2, e2e.Text("--task is empty"), "work", "holders", "--task", "")

	type page struct {
		Holders []assign.Held
		Next    string `json:"next_cursor"`
	}
	var first, rest, all page
	c.Decode(0, &first, "work", "holders", "--limit", "1")
	c.Decode(0, &rest, "work", "holders", "--cursor", first.Next)
	c.Decode(0, &all, "work", "holders", "--all")
	if len(first.Holders) != 1 || len(rest.Holders) != 2 || len(all.Holders) != 3 || rest.Holders[1] != all.Holders[2] || all.Next != "" {
		t.Errorf("first %+v\nrest %+v\nall %+v", first, rest, all)
	}
}
