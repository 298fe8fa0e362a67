package cli

import (
	"testing"

	"getwork/assign"
	"getwork/cmd/internal/e2e"
)

func TestAwayAndBack(t *testing.T) {
	t.Parallel()
	c := e2e.NewTerminal(t)
	c.Run(0, nil, "task", "create", "--name", "inbox", "--inbox", "--on-away", "to")
	c.Run(0, nil, "items", "push", "inbox", "a", "b")
	c.Run(0, nil, "get", "inbox", "--user", "tracy")
	c.Run(0, nil, "get", "inbox", "--user", "oliver")
	var a assign.Absence
	c.Decode(0, &a, "away", "--user", "oliver", "--until", "2h", "--substitute", "tracy")
	if a.User != "oliver" || a.Until == nil || a.CreatedBy != "oliver" {
		t.Errorf("absent: %+v", a)
	}
	var p assign.Pipeline
	if c.Decode(0, &p, "pipeline", "--user", "tracy"); len(p.Work) != 2 {
		t.Errorf("tracy holds %+v", p.Work)
	}
	c.Run(1, e2e.Text("you are away, and get no work; `getwork back`"), "get", "inbox", "--user", "oliver")
	c.Run(1, e2e.Text("oliver is away until"), "work", "reassign", "1", "--to", "oliver")
	c.Run(0, e2e.Text("USER", "oliver", "tracy", "ENDED"), "back", "--user", "oliver")
	c.Run(0, e2e.Text("oliver is not away"), "back", "--user", "oliver")
	c.Run(0, e2e.Text("oliver", "somebody ends it"), "away", "--of", "oliver")
	c.Run(0, nil, "away", "--of", "oliver", "--from", "5h")
	var list struct{ Absences []assign.Absence }
	if c.Decode(0, &list, "back", "--of", "oliver"); len(list.Absences) != 1 || list.Absences[0].EndedBy == nil {
		t.Errorf("back: %+v", list)
	}
	c.Run(1, e2e.Text("an absence ends after it begins"), "away", "--from", "5h", "--until", "4h")
	c.Run(2, e2e.Text("--from must be a time"), "away", "--from", "later")
	c.Run(1, e2e.Text("nobody called"), "away", "--substitute", "typo")
	c.Run(2, nil, "away", "--until", "soon")
	c.Run(1, e2e.Text("only a manager can enter"), "away", "--of", "tracy", "--role", "worker")
}
