package checker

import (
	"net/http"
	"slices"

	"getwork/cmd/lab/torture/history"
)

// valid are the kinds of calls that are well formed however a run goes, and for which versions of getwork don't differ.
var valid = []history.Kind{history.Click, history.Claim, history.Push, history.Status, history.Cancel, history.Pipeline, history.Extend}

// validJudge judges refusals of valid calls.
type validJudge struct{ *trial }

// judgeValid: no call is refused as malformed, and no click and no push because there is no such task, if its task exists all
// the time and is for everybody. What a run can explain is not judged: refusals for lack of rights, for load, and because
// something has changed meanwhile. An item that is claimed may have gone.
func (t validJudge) judgeValid() {
	for _, i := range t.calls {
		c := t.entries[i].Call
		if !slices.Contains(valid, c.Kind) || c.Status == 0 {
			continue
		}
		t.judged("answers to valid calls")
		switch {
		case c.Status == http.StatusBadRequest:
			t.broken(Accepted, []int{i}, "a %s of %s was answered 400 by node %d, and is valid: %s", c.Kind, c.Who.User, c.Node, c.Type)
		case c.Status == http.StatusNotFound && (c.Kind == history.Click || c.Kind == history.Push) && t.forAll(c.Task):
			t.broken(Accepted, []int{i}, "a %s of %s was answered 404 by node %d, and its task %s exists: %s", c.Kind, c.Who.User, c.Node, c.Task, c.Type)
		}
	}
}

// forAll reports whether a task of that name exists, always had it, and was always for everybody.
func (t validJudge) forAll(name string) bool {
	if len(t.named[name]) != 1 {
		return false
	}
	k := t.named[name][0]
	return !k.Deleted && len(k.names) == 1 && len(k.versions) > 0 && !slices.ContainsFunc(k.versions, func(v *history.VersionRow) bool { return len(v.Groups) > 0 })
}
