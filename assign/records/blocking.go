package records

// Binding selects the work that decides who may have an item now: work that is held, put off, never to return, or returned to
// others. These rows are one range of the index work_binding, whose expression Binding repeats. Finished work is not in that
// range, so the length of an item's history does not matter. The sub-query reads the time once, and after the statement has
// fixed what it sees.
const Binding = `w.state in ('held', 'never', 'returned', 'failed')
    and coalesce(case when not w.to_others then w.available_at end, 'infinity'::timestamptz) > (select clock_timestamp())`

// Blocks is true for a binding work row w that keeps an item with one place from everybody, and an item with several places
// from its own user.
const Blocks = `(w.available_at is null or w.available_at > clock_timestamp())`

// LastOf selects an item's work. With a further condition and NewestFirst after it, the newest such row is read. It says
// "between" because the planner drops an order by a column that an equality has fixed, and could then walk back through the
// work of all items until it meets one of this item.
const (
	LastOf      = `w.item between c.item and c.item`
	NewestFirst = `order by w.item desc, w.id desc limit 1`
)
