package checker

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"

	"getwork/cmd/lab/torture/history"
)

// ownCodes are what the server itself says when work ends so.
var ownCodes = map[string]string{"failed": "_failed", "expired": "_expired", "reassigned": "_reassigned"}

// judgeCodes: whatever is let go of under a task that requires a reason has one: a code of a version that was in force then, or one
// of the server's own.
func (t *trial) judgeCodes() {
	for _, w := range t.works {
		if w.row == nil || w.row.ClosedAt == nil {
			continue
		}
		k := t.tasks[w.row.Task]
		if k == nil || len(k.versions) == 0 || slices.ContainsFunc(k.versions, func(v *history.VersionRow) bool { return !v.RequireCode }) {
			continue
		}
		t.judged("reasons where one is required")
		own := w.row.Code != nil && strings.HasPrefix(*w.row.Code, "_")
		switch says := ownCodes[w.row.State]; {
		case w.row.Code == nil:
			t.broken(Coded, w.let, "work was let go of without a reason: %s", w.describe())
		case !own && !t.inForce(k, w):
			t.broken(Coded, w.let, "work was let go of for a reason that its task did not have then, %q: %s", *w.row.Code, w.describe())
		case says != "" && *w.row.Code != says, says == "" && own && w.row.State == "completed":
			t.broken(Coded, w.let, "the reason %q is not that of its end: %s", *w.row.Code, w.describe())
		}
	}
}

// inForce reports whether a version with the work's code may have been in force when it was closed. A closing may have stood still
// between its read and its commit, so the version before counts for a while.
func (t *trial) inForce(k *task, w *work) bool {
	for _, v := range k.versions {
		if !slices.Contains(v.Codes, *w.row.Code) {
			continue
		}
		if t.clock.jumped() {
			return true
		}
		next := slices.IndexFunc(k.versions, func(o *history.VersionRow) bool { return o.Version == v.Version+1 })
		if !v.CreatedAt.After(*w.row.ClosedAt) && (next < 0 || w.row.ClosedAt.Sub(k.versions[next].CreatedAt) < unordered) {
			return true
		}
	}
	return false
}

// saysSo reports whether a row has the reason and the result of a disposition. One without a code leaves the server's own.
func saysSo(c *history.Call, row *history.WorkRow) bool {
	code := ""
	if row.Code != nil && !strings.HasPrefix(*row.Code, "_") {
		code = *row.Code
	}
	if c.Code != code {
		return false
	}
	var one, other any
	if len(c.Result) > 0 && json.Unmarshal(c.Result, &one) != nil || row.Result != nil && json.Unmarshal([]byte(*row.Result), &other) != nil {
		return false
	}
	return reflect.DeepEqual(one, other)
}
