package main

import (
	"testing"

	"getwork/assign"
)

// Who holds how much is listed longest first, of one task or several, or of one user, page by page.
func TestWorkHolders(t *testing.T) {
	c := newTerminal(t)
	for _, task := range []string{"photos", "letters"} {
		c.run(0, nil, "task", "create", "--name", task, "--inbox")
		c.run(0, nil, "items", "push", task, "a", "b", "c", "d")
	}
	c.run(0, text("Nobody holds anything of that."), "work", "holders")
	c.run(0, nil, "get", "photos", "--count", "2")
	c.run(0, nil, "get", "photos", "--user", "tracy")
	c.run(0, nil, "get", "letters", "--user", "tracy")
	c.run(0, text("USER    TASK     HELD  SINCE", "oliver  photos   2     20", "tracy   photos   1     20", "tracy   letters  1     20"), "work", "holders")
	c.run(0, text("tracy  photos   1", "tracy  letters  1"), "work", "holders", "--of", "tracy", "--task", "letters,photos")
	c.run(0, text("oliver", "There may be more: --all lists all of it, --cursor "), "work", "holders", "--limit", "1")
	c.run(1, text("no task \"nope\""), "work", "holders", "--task", "nope")
	c.run(1, text("your role is worker"), "work", "holders", "--role", "worker")
	c.run(2, text("--task is empty"), "work", "holders", "--task", "")

	type page struct {
		Holders []assign.Held
		Next    string `json:"next_cursor"`
	}
	var first, rest, all page
	c.decode(0, &first, "work", "holders", "--limit", "1")
	c.decode(0, &rest, "work", "holders", "--cursor", first.Next)
	c.decode(0, &all, "work", "holders", "--all")
	if len(first.Holders) != 1 || len(rest.Holders) != 2 || len(all.Holders) != 3 || rest.Holders[1] != all.Holders[2] || all.Next != "" {
		t.Errorf("first %+v\nrest %+v\nall %+v", first, rest, all)
	}
}
