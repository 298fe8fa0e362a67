package assign

import (
	"encoding/json"
	"strings"
	"testing"
)

// What is withheld is left out of the message for some, and stays in the message for others, also where both share the event.
func TestWithheld(t *testing.T) {
	t.Parallel()
	said := "SECRET"
	task := Task{Settings: Settings{Name: "a", Query: "select SECRET", Recheck: "SECRET"}}
	failed := Request{State: Failed, Error: &said}
	for what, e := range map[string]Event{
		"task":     {Type: "task", Body: &task},
		"inbox":    {Type: "task", Body: &Task{Settings: Settings{ConflictsWith: []string{"SECRET"}}}},
		"request":  {Type: "request", Body: &failed, Request: &failed},
		"snapshot": {Type: "snapshot", Body: Pipeline{Requests: []Request{{}, failed, {}}}},
	} {
		for _, e := range []Event{e, e.Shared()} {
			for range 2 {
				for withheld, e := range map[bool]Event{true: e.Withheld(), false: e} {
					b, err := e.AppendMessage(nil)
					if err != nil || strings.Contains(string(b), "SECRET") == withheld {
						t.Errorf("%s, withheld %t: %s (%v)", what, withheld, b, err)
					}
				}
			}
			if r := e.Withheld().Request; r != nil && *r.Error != QueryFailed {
				t.Errorf("%s: %s", what, *r.Error)
			}
			if a, b := e.Withheld(), e.Withheld(); a.once != b.once {
				t.Errorf("%s: each receiver encodes it", what)
			}
		}
	}
	for what, e := range map[string]Event{
		"inbox":    {Type: "task", Body: &Task{}},
		"request":  {Type: "request", Body: &Request{}},
		"snapshot": {Type: "snapshot", Body: Pipeline{Requests: []Request{{}}}},
		"work":     {Type: "work", Body: &Work{Error: &said}}, // what its holder said
	} {
		e = e.Shared()
		if !e.Withheld().Same(e) {
			t.Errorf("%s has nothing to withhold", what)
		}
	}
}

// A program that reads a task can distinguish an inbox from a query that it may not read.
func TestWithheldQueriesAreNoInbox(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		task  Task
		inbox bool
		has   string
	}{
		{Task{Settings: Settings{Query: "select 1", Recheck: "select 2"}}, false, `"query":"select 1"`},
		{Task{Settings: Settings{Query: "select 1"}}.Withheld(), false, `"query_timeout"`},
		{Task{}, true, `"query":null`},
		{Task{}.Withheld(), true, `"query":null`},
	} {
		b, err := json.Marshal(c.task)
		if err != nil || !strings.Contains(string(b), c.has) || strings.Contains(string(b), `"query":`) != strings.Contains(c.has, `"query":`) {
			t.Errorf("%s (%v)", b, err)
		}
		var read Task
		if err := json.Unmarshal(b, &read); err != nil || read.Inbox() != c.inbox || read.Query != c.task.Query || read.Recheck != c.task.Recheck {
			t.Errorf("%s is read as %+v (%v)", b, read, err)
		}
	}
	if err := (&Settings{Name: "a", Query: Withheld}).Check(); err == nil {
		t.Error("a withheld query can be saved")
	}
}
