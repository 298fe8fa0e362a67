package checker

import (
	"math"
	"slices"

	"getwork/cmd/lab/torture/history"
)

// judgeAttempts: failures and expiries count as attempts; work that was put off or taken away does not. After anything
// else the next attempt is the first. After the last attempt there is none until a manager redrives the item.
func (t *trial) judgeAttempts() {
	for key, it := range t.items {
		k := t.tasks[key.task]
		if k == nil {
			continue
		}
		least, most := k.attempts()
		for i, w := range it.works {
			t.judged("attempts")
			row := w.row
			if it.single() {
				if want := next(it.works[:i]); row.Attempt != want {
					t.broken(Limits, nil, "attempt %d should have been %d: %s", row.Attempt, want, w.describe())
				}
			}
			over := row.Attempt >= most && (row.State == "failed" || row.State == "expired")
			if row.Attempt > most || over || row.Exhausted && row.Attempt < least {
				t.broken(Limits, nil, "attempt %d of at most %d, exhausted: %t: %s",
					row.Attempt, most, row.Exhausted, w.describe())
			}
		}
	}
}

// next returns the number of the attempt that follows a holding of an item with one place.
func next(before []*work) int {
	if len(before) == 0 {
		return 1
	}
	switch last := before[len(before)-1].row; last.State {
	case "failed", "expired":
		return last.Attempt + 1
	case "returned", "reassigned":
		return last.Attempt
	}
	return 1
}

// attempts returns the lowest and the highest limit that any version of the task had.
func (k *task) attempts() (least, most int) {
	least = math.MaxInt
	for _, v := range k.versions {
		n := math.MaxInt
		if v.MaxAttempts != nil {
			n = *v.MaxAttempts
		}
		least, most = min(least, n), max(most, n)
	}
	return least, most
}

// judgeOpen: nobody holds more of a task than allowed, by the tables or by what users heard.
func (t *trial) judgeOpen() {
	type user struct {
		task int64
		name string
	}
	rows, told := map[user][]*work{}, map[user][]span[*work]{}
	for _, w := range t.works {
		if w.row == nil {
			continue
		}
		u := user{w.row.Task, w.row.User}
		rows[u] = append(rows[u], w)
		if s, _ := t.certainly(w); s.from < s.until {
			told[u] = append(told[u], s)
		}
	}
	for u, works := range rows {
		limit, limited := t.open(u.task)
		if !limited {
			continue
		}
		t.judged("users with a limit")
		if at := most(t.rows(works)); len(at) > limit {
			t.broken(Limits, nil, "%s held %d at a time, of which %d are allowed: %s …",
				u.name, len(at), limit, at[len(at)-1].describe())
		}
		if at := most(told[u]); len(at) > limit {
			_, entries := t.certainly(at[len(at)-1])
			t.broken(Limits, entries, "%s held %d at a time, as they were told, of which %d are allowed: %s …",
				u.name, len(at), limit, at[len(at)-1].describe())
		}
	}
}

// open returns the most that a user may ever have held of a task.
func (t *trial) open(id int64) (limit int, limited bool) {
	k := t.tasks[id]
	if k == nil {
		return 0, false
	}
	for _, v := range k.versions {
		if v.MaxOpen == nil {
			return 0, false
		}
		limit = max(limit, *v.MaxOpen)
	}
	return limit, len(k.versions) > 0
}

// judgeOverAll: nobody holds more over all tasks than any of the limits allowed.
func (t *trial) judgeOverAll() {
	if len(t.tables.Limits) == 0 {
		return
	}
	users := map[string][]*work{}
	for _, w := range t.works {
		if w.row != nil {
			users[w.row.User] = append(users[w.row.User], w)
		}
	}
	for user, works := range users {
		_, limit, limited := t.overAll(user)
		if !limited {
			continue
		}
		t.judged("users with a limit over all tasks")
		if at := most(t.rows(works)); len(at) > limit {
			t.broken(Limits, nil, "%s held %d at a time over all tasks, of which %d are allowed: %s …", user, len(at), limit, at[len(at)-1].describe())
		}
	}
}

// overAll returns the lowest and the highest limit over all tasks that a user ever had. limited: they always had one.
func (t *trial) overAll(user string) (least, greatest int, limited bool) {
	program := slices.ContainsFunc(t.tables.Requests, func(r history.RequestRow) bool { return r.User == user && r.Instance != "" })
	least, limited = math.MaxInt, len(t.tables.Limits) > 0
	for _, l := range t.tables.Limits {
		n, named := l.People[user]
		if !named && !program {
			n = l.Everybody
		}
		if n == nil {
			limited = false
			continue
		}
		least, greatest = min(least, *n), max(greatest, *n)
	}
	return least, greatest, limited
}

// judgeFourEyes: nobody is given an item that they hold, or have completed, under a task that conflicts with the item's
// task.
func (t *trial) judgeFourEyes() {
	for key, it := range t.items {
		for other := range t.tasks {
			before := t.items[itemKey{other, key.item}]
			if before == nil || !t.conflict(key.task, other) {
				continue
			}
			t.judged("items under four eyes")
			for _, b := range it.works {
				for _, a := range before.works {
					_, given := t.stamped(b.row.AssignedAt)
					held := given < t.closed(a.row)
					if a.id < b.id && a.row.User == b.row.User && (held || a.row.State == "completed") {
						t.broken(Limits, nil,
							"%s was given an item that they held or had completed under another task: %s, then %s",
							b.row.User, a.describe(), b.describe())
					}
				}
			}
		}
	}
}

// conflict reports whether two tasks conflict with each other, and always did.
func (t *trial) conflict(a, b int64) bool {
	says := func(one, other int64) bool {
		k := t.tasks[one]
		without := func(v *history.VersionRow) bool { return !slices.Contains(v.Conflicts, other) }
		return k != nil && len(k.versions) > 0 && !slices.ContainsFunc(k.versions, without)
	}
	return a != b && (says(a, b) || says(b, a))
}
