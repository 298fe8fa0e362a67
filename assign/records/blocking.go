package records

// Binding is the work that decides who may have an item now: work that is held, put off, never to return, or returned to others.
// It stands after "from", and a condition on its task and item makes it a look-up in two indexes: one of held work, and one,
// work_put_off, in which such work is one range, and whose expression stands here. Other closed work is in neither, so the length
// of an item's history does not matter. The order is that of work_held_slot: as long as a table has no statistics, work_holder, which
// also has task and item, but last, seems as good, and all that is held would be read for each item. Both look-ups are in one
// statement, because work that is closed between two of them could be seen by neither. The sub-query reads the time once, and after
// the statement has fixed what it sees.
const Binding = `(
  (select * from getwork.work where state = 'held' order by task_id, item, slot)
  union all
  select * from getwork.work
  where state in ('never', 'returned', 'failed')
    and coalesce(case when not to_others then available_at end, 'infinity'::timestamptz) > (select clock_timestamp())
)`

// Blocks is true for a binding work row w that keeps an item with one place from everybody, and an item with several places
// from its own user.
const Blocks = `(w.available_at is null or w.available_at > clock_timestamp())`

// LastOf selects an item's work, of which a further condition says that it is not held. With NewestFirst after it, the newest such
// row is read. It says "between" because the planner drops an order by a column that an equality has fixed, and could then walk
// back through the work of all items until it meets one of this item.
const (
	LastOf      = `w.item between c.item and c.item`
	NewestFirst = `order by w.item desc, w.id desc limit 1`
)
