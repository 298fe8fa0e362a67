package torture_test

import (
	"maps"
	"slices"
	"testing"
)

// What must never happen is kept from happening by more than one thing, so that a mistake in one is no loss. To prove that
// each does its part, and that a test which says "nothing was lost" can say no, each can be switched off in a build for tests.
//
// They are in pairs, and what one lets through the other holds; leasecheck and watchdog stand alone. But
//
//   - any other look at the task, by a click, a closing, a change or a refresh, serves all who wait: a wake-up is lost only
//     until then;
//   - the indexes cover that nobody holds what another holds. What was put off or is never to return, four eyes and max_open
//     are kept by the assign lock alone;
//   - nothing covers the level but, now and then, PostgreSQL: above READ COMMITTED it refuses to change a row that was changed
//     since. A lock that had to wait comes with what was true when the waiting began, so to have it first helps only where it
//     was free; and no run ends, since it does not see its own row.
var defences = map[string][]edit{
	// The look after every round, one that found nothing included; and, after a run, the question which task is next for its slot, which
	// finds the same requests.
	"lookagain": {
		{"assign", "if err == nil && moved || l.again && ctx.Err() == nil {", "if false && (err == nil && moved || l.again && ctx.Err() == nil) {"},
		{"assign", "e.passOn(ctx, moved)", "e.passOn(ctx, false)"},
	},

	// The look every two seconds, which serves requests that nobody serves.
	"sweep": {{"assign", "func (e *Engine) rescue(o orphans) {\n", "func (e *Engine) rescue(o orphans) {\n\tif true {\n\t\treturn\n\t}\n"}},

	// The unique indexes of what is held. A database that is there already keeps them.
	"unique": {
		{"schema", "create unique index work_held_slot", "create index work_held_slot"},
		{"schema", "create unique index work_held_holder", "create index work_held_holder"},
		{"schema", "create unique index work_held_exclusive", "create index work_held_exclusive"},
	},

	// The lock under which rounds, claims and reassignments read and decide.
	"assignlock": {{"assign", "where c.task_id = $1)\norder by s.task_id\nfor no key update`", "where c.task_id = $1)\norder by s.task_id`"}},

	// Nothing is read before a lock. Without this, what a transaction sees is fixed half a second before it has its lock, where
	// the level is one that fixes it.
	"lockfirst": {
		{"assign", "select pg_backend_pid() from getwork.task where id = $1",
			"select pg_backend_pid() from getwork.task cross join (select pg_sleep(0.5)) early where id = $1"},
		{"assign", "from getwork.task_state s\nwhere s.task_id in (select $1::bigint union all",
			"from getwork.task_state s cross join (select pg_sleep(0.5)) early\nwhere s.task_id in (select $1::bigint union all"},
	},

	// READ COMMITTED, whatever the server's default is.
	"isolation": {
		{"assign", "`begin isolation level read committed read write; set local lock_timeout", "`begin read write; set local lock_timeout"},
		{"assign", "`begin isolation level read committed read write; set local idle_in", "`begin read write; set local idle_in"},
	},

	// A round's writes repeat that a request which they end still waits.
	"pendingcheck": {
		{"assign", "where r.id = a.id and r.state = 'pending'`", "where r.id = a.id`"},
		{"assign", "r.task_id = $2 and r.state = 'pending'`", "r.task_id = $2`"},
	},

	// A round locks the requests that it reads.
	"forupdate": {{"assign", "order by id\nfor update`", "order by id`"}},

	// A holder's writes repeat that the lease is not over. The sweep comes a second after the last: in 50 ms hardly anybody
	// would be too late.
	"leasecheck": {
		{"assign", "o.id = w.id and w.state = 'held' and (w.lease_expires_at is null or w.lease_expires_at > clock_timestamp())\n",
			"o.id = w.id and w.state = 'held'\n"},
		{"assign", "w.state = 'held' and w.lease_expires_at > clock_timestamp()\n", "w.state = 'held'\n"},
		{"assign", "50 * time.Millisecond // the least time between two sweeps", "time.Second // the least time between two sweeps"},
	},

	// A listener that hears nothing of its own echo is given up.
	"watchdog": {{"notify", "if p.unanswered.IsZero() {", "if true {"}},
}

// without are the edits of a build that does without these defences.
func without(t *testing.T, names ...string) (edits []edit) {
	t.Helper()
	for _, name := range names {
		if defences[name] == nil {
			t.Fatalf("there is no defence %q", name)
		}
		edits = append(edits, defences[name]...)
	}
	return edits
}

// Every text of both tables is in the source, once: whoever changes the code changes the table.
func TestEditsApply(t *testing.T) {
	for name := range defences {
		t.Run(name, func(t *testing.T) { overlay(t, without(t, name)...) })
	}
	for _, p := range plants {
		t.Run(p.name, func(t *testing.T) { overlay(t, p.edit) })
	}
	for name, h := range holes {
		t.Run(name, func(t *testing.T) { overlay(t, without(t, h.defences...)...) })
	}
}

// All edits compile.
func TestEditsCompile(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles the engine")
	}
	t.Run("defences", func(t *testing.T) {
		t.Parallel()
		vet(t, without(t, slices.Collect(maps.Keys(defences))...))
	})
	var groups [][]edit // of plants that do not change the same text
	for _, p := range plants {
		same := func(e edit) bool { return e.old == p.edit.old }
		i := slices.IndexFunc(groups, func(g []edit) bool { return !slices.ContainsFunc(g, same) })
		if i < 0 {
			i, groups = len(groups), append(groups, nil)
		}
		groups[i] = append(groups[i], p.edit)
	}
	for _, g := range groups {
		t.Run("plants", func(t *testing.T) {
			t.Parallel()
			vet(t, g)
		})
	}
}
