package checker

import (
	"getwork/cmd/lab/torture/history"
)

// task returns the only task that has or had this name. It returns nil if there are none or several.
func (t *trial) task(name string) *task {
	if len(t.named[name]) != 1 {
		return nil
	}
	return t.named[name][0]
}

// judgePushes: each item of a push that was answered 200 exists, and no push created an item twice.
func (t *trial) judgePushes() {
	type key struct {
		itemKey
		by string
	}
	type pusher struct {
		task int64
		by   string
	}
	calls, accepted, first := map[key]int{}, map[pusher]int{}, map[key]int{}
	for _, i := range t.calls {
		c := t.entries[i].Call
		k := t.task(c.Task)
		if c.Kind != history.Push || refused(c) || k == nil {
			continue
		}
		done := c.Status/100 == 2
		if body, _ := t.bodies[i].(*countBody); done && body != nil {
			accepted[pusher{k.ID, c.Who.User}] += body.Accepted
		}
		named := map[string]bool{}
		for _, item := range c.Items {
			if named[item] {
				continue
			}
			named[item] = true
			at := key{itemKey{k.ID, item}, c.Who.User}
			calls[at]++
			if calls[at] == 1 {
				first[at] = i
			}
			t.judged("pushed items")
			if it := t.items[at.itemKey]; done && (it == nil || len(it.pushed) == 0) {
				t.broken(Kept, []int{i}, "item %q was pushed to %s, answered 200, and there is no such row", item, c.Task)
			}
		}
	}
	rows, of := map[pusher]int{}, map[key]int{}
	for i := range t.tables.Items {
		row := &t.tables.Items[i]
		rows[pusher{row.Task, row.PushedBy}]++
		of[key{itemKey{row.Task, row.Item}, row.PushedBy}]++
	}
	for p, n := range accepted {
		if rows[p] < n {
			t.broken(Kept, nil, "%d items of %s were accepted, and there are %d rows", n, p.by, rows[p])
		}
	}
	for at, n := range calls {
		if of[at] > n {
			t.broken(Kept, []int{first[at]}, "item %q was pushed by %s %d times, and there are %d rows",
				at.item, at.by, n, of[at])
		}
	}
}

// judgeCounts: there are as many rows as the answers to releases and redrives counted.
func (t *trial) judgeCounts() {
	type action struct {
		kind         history.Kind
		by, of, task string
	}
	counts, last := map[action]int{}, map[action]int{}
	for _, i := range t.calls {
		c := t.entries[i].Call
		body, _ := t.bodies[i].(*countBody)
		if c.Kind != history.Release && c.Kind != history.Redrive || body == nil || body.Token != "" {
			continue
		}
		t.judged("releases and redrives")
		a := action{c.Kind, c.Who.User, c.To, c.Task}
		counts[a] += body.Count
		last[a] = i
	}
	for a, n := range counts {
		rows := 0
		for i := range t.tables.Work {
			row := &t.tables.Work[i]
			if a.task != "" && !t.called(row.Task, a.task) {
				continue
			}
			switch a.kind {
			case history.Release:
				if row.State == "returned" && row.ClosedBy != nil && *row.ClosedBy == a.by && (a.of == "" || a.of == row.User) {
					rows++
				}
			default:
				if row.RedrivenBy != nil && *row.RedrivenBy == a.by {
					rows++
				}
			}
		}
		if rows < n {
			t.broken(Kept, []int{last[a]}, "%s said that it was about %d (by %s, of %q, task %q); there are %d such rows",
				a.kind, n, a.by, a.of, a.task, rows)
		}
	}
}

// judgePipelines: an answer has everything that a holder certainly held or waited for during the whole call, and
// nothing that is over or somebody else's.
func (t *trial) judgePipelines() {
	held, waiting := map[history.Who][]span[*work]{}, map[history.Who][]span[*request]{}
	for _, w := range t.works {
		if s, _ := t.certainly(w); s.from < s.until {
			who := history.Who{User: w.seen[0].User, Instance: w.seen[0].Instance}
			held[who] = append(held[who], s)
		}
	}
	for _, r := range t.requests {
		if s, _ := r.waited(); s.from < s.until {
			who := history.Who{User: r.seen[0].User, Instance: r.seen[0].Instance}
			waiting[who] = append(waiting[who], s)
		}
	}
	for _, i := range t.calls {
		c := t.entries[i].Call
		body, _ := t.bodies[i].(*pipelineBody)
		if body == nil || c.To != "" {
			continue
		}
		t.judged("pipelines")
		t.judgePipeline(i, c.Who, body)
		listed := map[int64]bool{}
		for j := range body.Work {
			listed[body.Work[j].ID] = true
		}
		for _, s := range held[c.Who] {
			if s.from < c.Began && s.until > c.Ended && !listed[s.of.id] {
				t.broken(ToldTheSame, []int{i},
					"%s%s held work %d from %s to %s, by the holder's own answers, and the pipeline did not have it",
					c.Who.User, instance(c.Who.Instance), s.of.id, seconds(s.from), seconds(s.until))
			}
		}
		asked := map[int64]bool{}
		for j := range body.Requests {
			asked[body.Requests[j].ID] = true
		}
		for _, s := range waiting[c.Who] {
			if s.from < c.Began && s.until > c.Ended && !asked[s.of.id] {
				t.broken(ToldTheSame, []int{i},
					"request %d of %s%s waited from %s to %s, by its owner's own answers, and the pipeline did not have it",
					s.of.id, c.Who.User, instance(c.Who.Instance), seconds(s.from), seconds(s.until))
			}
		}
	}
	for i := range t.entries {
		e := &t.entries[i]
		if body, _ := t.bodies[i].(*pipelineBody); body != nil && e.Told != nil {
			if s := t.sockets[e.Told.Socket]; s.Socket != nil {
				t.judgePipeline(i, s.Who, body)
			}
		}
	}
}

func (t *trial) judgePipeline(i int, who history.Who, body *pipelineBody) {
	for j := range body.Work {
		if w := &body.Work[j]; !w.held() || w.User != who.User || w.Instance != who.Instance {
			t.broken(ToldTheSame, []int{i}, "the pipeline of %s%s has work %d of %s%s, which is %s",
				who.User, instance(who.Instance), w.ID, w.User, instance(w.Instance), w.State)
		}
	}
	for j := range body.Requests {
		if r := &body.Requests[j]; !r.pending() || r.User != who.User || r.Instance != who.Instance {
			t.broken(ToldTheSame, []int{i}, "the pipeline of %s%s has request %d of %s%s, which is %s",
				who.User, instance(who.Instance), r.ID, r.User, instance(r.Instance), r.State)
		}
	}
}
