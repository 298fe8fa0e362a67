package records

// Binding is what has a say in who may have an item now: held, put off, never to return, or returned to others. It is one
// range of the index work_binding, whose expression it repeats; what is over is not in it, so the length of an item's history
// does not matter. As a sub-query the time is read once, and after the statement has fixed what it sees.
const Binding = `w.state in ('held', 'never', 'returned', 'failed')
    and coalesce(case when not w.to_others then w.available_at end, 'infinity'::timestamptz) > (select clock_timestamp())`

// Blocks tells of work w that binds whether it keeps the item from everybody, if that has one place, or else its own user.
const Blocks = `(w.available_at is null or w.available_at > clock_timestamp())`

// LastOf begins a look at the newest row of an item's work, with a condition of its own and NewestFirst behind it. "between",
// because of an order by a column that is known the planner makes nothing: it would be free to walk back through the work of
// all items until it comes to one of this.
const (
	LastOf      = `w.item between c.item and c.item`
	NewestFirst = `order by w.item desc, w.id desc limit 1`
)
