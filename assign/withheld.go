package assign

import (
	"encoding/json"
	"slices"
)

// A query can name what its workers must not know of, and PostgreSQL's message about one that failed can quote rows of the
// bank. So a task's query and recheck, and the error of a request, are for managers and observers. To others a task with a
// query has no member query, and an error says only that there was one. Nor do they read which tasks it conflicts with, since these
// may be for groups that they must not know of.

// MayReadQueries reports whether the caller may read tasks' queries, and why they failed.
func (w Who) MayReadQueries() bool { return w.Anything && !w.Counts }

// Withheld stands for a query that the caller may not read. It is left out of JSON, and no task can have it.
const Withheld Query = " "

// IsZero makes encoding/json leave a withheld query out.
func (q Query) IsZero() bool { return q == Withheld }

// QueryFailed is the error of a request, as others than managers and observers read it.
const QueryFailed = "the task's query failed; managers and observers can see why"

// Withheld returns the task without its query and recheck, without why it failed, and without its conflicts. An inbox still says
// that it has no query.
func (t Task) Withheld() Task {
	t.LastError, t.ConflictsWith = nil, []string{}
	if !t.Inbox() {
		t.Query, t.Recheck = Withheld, Withheld
	}
	return t
}

// UnmarshalJSON notes that a query was withheld: the task is no inbox.
func (t *Task) UnmarshalJSON(b []byte) error {
	type task Task
	read := task(*t)
	read.Query, read.Recheck = Withheld, Withheld
	err := json.Unmarshal(b, &read)
	*t = Task(read)
	return err
}

// WhyFailed returns why a failed request's query failed, as far as the reader may know, in words that end a sentence.
func (r *Request) WhyFailed() string {
	if r.Error == nil || *r.Error == QueryFailed {
		return "managers and observers can see why"
	}
	return *r.Error
}

// Withheld returns the request without the reason why its query failed.
func (r Request) Withheld() Request {
	if r.Error != nil {
		said := QueryFailed
		r.Error = &said
	}
	return r
}

// Withheld returns the pipeline without the reasons why queries failed.
func (p Pipeline) Withheld() Pipeline {
	if slices.ContainsFunc(p.Requests, failed) {
		p.Requests = slices.Clone(p.Requests) // other connections share them
		for i := range p.Requests {
			p.Requests[i] = p.Requests[i].Withheld()
		}
	}
	return p
}

func failed(r Request) bool { return r.Error != nil }

// Withheld returns the event as it is for others than managers and observers.
func (e Event) Withheld() Event {
	if e.once == nil {
		return e.withheld()
	}
	e.once.withhold.Do(func() { e.once.withheld = e.withheld().Shared() })
	return e.once.withheld
}

// withheld returns e itself if it has nothing to withhold.
func (e Event) withheld() Event {
	switch body := e.Body.(type) {
	case *Task:
		if !body.Inbox() || len(body.ConflictsWith) > 0 {
			task := body.Withheld()
			return Event{Type: e.Type, Body: &task}
		}
	case *Request:
		if failed(*body) {
			request := body.Withheld()
			return Event{Type: e.Type, Body: &request, Request: &request}
		}
	case Pipeline:
		if slices.ContainsFunc(body.Requests, failed) {
			return Event{Type: e.Type, Body: body.Withheld()}
		}
	}
	return e
}
