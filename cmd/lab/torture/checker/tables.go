package checker

import (
	"regexp"
	"slices"

	"getwork/cmd/lab/torture/history"
)

// placesColumn matches queries that may set the number of an item's places themselves: they name the column, or select
// all columns.
var placesColumn = regexp.MustCompile(`(?i)\bslots\b|(?:\bselect|\bdistinct|\ball|,|\.)\s*\*`)

// sortTables groups the rows that belong together.
func (t *trial) sortTables() {
	for i := range t.tables.Tasks {
		row := &t.tables.Tasks[i]
		t.tasks[row.ID] = &task{TaskRow: *row, inbox: true, single: true}
		t.name(row.Name, row.ID)
	}
	for i := range t.tables.Versions {
		t.sortVersion(&t.tables.Versions[i])
	}
	for i := range t.tables.Requests {
		t.request(t.tables.Requests[i].ID).row = &t.tables.Requests[i]
	}
	for i := range t.tables.Work {
		row := &t.tables.Work[i]
		w := t.work(row.ID)
		w.row = row
		it := t.item(row.Task, row.Item)
		it.works = append(it.works, w)
		t.notesNeeds(row.Task, row.Needs)
		if row.Request != nil {
			r := t.request(*row.Request)
			r.works = append(r.works, w)
		}
	}
	for i := range t.tables.Items {
		it := t.item(t.tables.Items[i].Task, t.tables.Items[i].Item)
		it.pushed = append(it.pushed, &t.tables.Items[i])
		t.notesNeeds(t.tables.Items[i].Task, t.tables.Items[i].Needs)
	}
	for _, it := range t.items {
		slices.SortFunc(it.works, func(a, b *work) int { return int(a.id - b.id) })
		it.places = t.places(it)
	}
}

// notesNeeds notes that a rule keeps items of the task from some.
func (t *trial) notesNeeds(id int64, needs []string) {
	if k := t.tasks[id]; k != nil && len(needs) > 0 {
		k.rules = true
	}
}

func (t *trial) sortVersion(v *history.VersionRow) {
	k := t.tasks[v.Task]
	if k == nil {
		return
	}
	k.versions = append(k.versions, v)
	k.inbox = k.inbox && v.Query == nil
	k.single = k.single && v.Slots == 1 && (v.DoneBy == nil || *v.DoneBy == 1)
	k.declares = k.declares || v.Query != nil && placesColumn.MatchString(*v.Query)
	k.once = k.once || v.Once && v.Query != nil
	k.rules = k.rules || k.once || len(v.Conflicts) > 0 || len(v.Groups) > 0
	for _, other := range v.Conflicts {
		if o := t.tasks[other]; o != nil {
			o.rules = true
		}
	}
	t.name(v.Name, v.Task)
}

// name records that a task has or had this name.
func (t *trial) name(name string, id int64) {
	if k := t.tasks[id]; k != nil && !slices.Contains(t.named[name], k) {
		t.named[name] = append(t.named[name], k)
		k.names = append(k.names, name)
	}
}

// called reports whether a task has or had this name.
func (t *trial) called(id int64, name string) bool {
	return name == "*" || slices.ContainsFunc(t.named[name], func(k *task) bool { return k.ID == id })
}

// places returns the greatest number of holders that an item may have at a time; 0 means unknown.
func (t *trial) places(it *item) int {
	k := t.tasks[it.key.task]
	if k == nil || k.declares {
		return 0
	}
	most := 1
	for _, v := range k.versions {
		most = max(most, v.Slots)
		if v.DoneBy != nil {
			most = max(most, *v.DoneBy)
		}
	}
	for _, row := range it.pushed {
		if row.Slots != nil {
			most = max(most, *row.Slots)
		}
		if row.DoneBy != nil {
			most = max(most, *row.DoneBy)
		}
	}
	return most
}

// single reports whether an item certainly never had more than one place.
func (it *item) single() bool { return it.places == 1 }

// holder returns the holder of a request.
func (r *request) holder() history.Who {
	return history.Who{User: r.row.User, Instance: r.row.Instance}
}

// holder returns the holder of a piece of work.
func (w *work) holder() history.Who { return history.Who{User: w.row.User, Instance: w.row.Instance} }
