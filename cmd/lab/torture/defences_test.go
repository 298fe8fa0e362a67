package torture_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"getwork/schema/schematest"
)

// Every promise is kept by more than one defence, so that a mistake in one loses nothing. Each defence can be switched
// off in a build for tests. Such builds prove that each does its part, and that a test which finds nothing lost can
// also find something.
//
// The defences come in pairs, and each holds what the other lets through; leasecheck, watchdog, and those of late batches and of calls about
// many works stand alone. But
//
//   - any other wake-up of the task, by a click, a closing, a change or a refresh, serves all who wait: a wake-up is lost only
//     until then;
//   - the indexes prevent only that two hold the same item. The assign lock alone keeps items away that were put off or are
//     never to return, and enforces four eyes and max_open;
//   - nothing replaces the isolation level except, now and then, PostgreSQL: above READ COMMITTED it refuses to change a row
//     that was changed since. A transaction that waited for its lock reads what was true when it began to wait, so taking the
//     lock first helps only if the lock was free; and no run ends, since the run does not see its own row.
var defences = map[string][]edit{
	// The check after every round, including one that found nothing; and, after a run, the search for the next task for
	// its slot, which finds the same requests.
	"lookagain": {
		{"assign", "if err == nil && moved || l.again && ctx.Err() == nil {", "if false && (err == nil && moved || l.again && ctx.Err() == nil) {"},
		{"assign", "e.slots.passSlotOn(ctx, moved)", "e.slots.passSlotOn(ctx, false)"},
	},

	// The sweep every two seconds, which serves requests that nobody serves.
	"sweep": {{"assign", "func (r *rescuer) rescue(o orphans) {\n", "func (r *rescuer) rescue(o orphans) {\n\tif true {\n\t\treturn\n\t}\n"}},

	// The unique indexes of held work. A database that exists already keeps them.
	"unique": {
		{"schema", "create unique index work_held_slot", "create index work_held_slot"},
		{"schema", "create unique index work_holder", "create index work_holder"},
		{"schema", "create unique index work_held_exclusive", "create index work_held_exclusive"},
	},

	// The lock under which rounds, claims and reassignments read and decide.
	"assignlock": {{"assign", "where c.task_id = $1)\norder by s.task_id\nfor no key update`", "where c.task_id = $1)\norder by s.task_id`"}},

	// Nothing is read before a lock. Without this defence, and with an isolation level that fixes the snapshot, a
	// transaction's snapshot is half a second older than its lock.
	"lockfirst": {
		{"assign", "select pg_backend_pid() from getwork.task where id = $1",
			"select pg_backend_pid() from getwork.task cross join (select pg_sleep(0.5)) early where id = $1"},
		{"assign", "from getwork.task_state s\nwhere s.task_id in (select $1::bigint union all",
			"from getwork.task_state s cross join (select pg_sleep(0.5)) early\nwhere s.task_id in (select $1::bigint union all"},
	},

	// READ COMMITTED, whatever the server's default is.
	"isolation": {
		{"assign", "`begin isolation level read committed read write; set local lock_timeout", "`begin read write; set local lock_timeout"},
		{"assign", "`begin isolation level read committed read write`", "`begin read write`"},
	},

	// A round's writes repeat the condition that the request they end still waits.
	"pendingcheck": {
		{"assign", "where r.id = a.id and r.state = 'pending'`", "where r.id = a.id`"},
		{"assign", "r.task_id = $2 and r.state = 'pending'`", "r.task_id = $2`"},
	},

	// A round locks the requests that it reads.
	"forupdate": {{"assign", "order by id\nfor update`", "order by id`"}},

	// A holder's writes repeat the condition that the lease is not over. The edit also makes the sweep wait a second
	// after the last: within 50 ms hardly anybody would be too late.
	"leasecheck": {
		{"assign", "o.id = w.id and w.state = 'held' and (w.lease_expires_at is null or w.lease_expires_at > clock_timestamp())\n",
			"o.id = w.id and w.state = 'held'\n"},
		{"assign", "w.state = 'held' and w.lease_expires_at > clock_timestamp()\n", "w.state = 'held'\n"},
		{"assign", "50 * time.Millisecond // the least time between two sweeps", "time.Second // the least time between two sweeps"},
	},

	// A call about many works repeats that condition for each of them, and also closes or extends only what its caller holds. Each edit
	// drops that for all but the first.
	"manylease": {
		{"assign", "(w.lease_expires_at is null or w.lease_expires_at > clock_timestamp())\n      and ($7",
			"(w.lease_expires_at is null or w.id > any($1) or w.lease_expires_at > clock_timestamp())\n      and ($7"},
		{"assign", "where w.id = d.id and case when w.state = 'held' then (w.lease_expires_at is null or",
			"where w.id = d.id and case when w.state = 'held' then (w.lease_expires_at is null or w.id > any($1) or"},
	},
	"manyholder": {
		{"assign", "and ($7 or w.user_name", "and ($7 or w.id > any($1) or w.user_name"},
		{"assign", "where w.id = any($1::bigint[]) and w.user_name = $2 and w.instance = $3 and `",
			"where w.id = any($1::bigint[]) and (w.id > any($1) or w.user_name = $2 and w.instance = $3) and `"},
	},

	// A click is not recorded on a credential that has ended.
	"insertask": {{"assign", "coalesce(c.valid_until > clock_timestamp(), true) and c.credential not in (select e from getwork.ended_among($8) e) end", "coalesce(c.valid_until > clock_timestamp(), true) end"}},

	// A round asks under the assign lock whether the credentials of those whom it would serve have ended: of those who wait, and
	// of clicks that are recorded as they are served.
	"roundask": {
		{"assign", "	if len(asked) == 0 {\n\t\treturn false, nil", "	if true || len(asked) == 0 {\n\t\treturn false, nil"},
		{"assign", "a.ended = len(ended) > 0", "a.ended = false && len(ended) > 0"},
	},

	// Every node looks for requests that a click has recorded beside the end of its credential.
	"endlook": {{"assign", "changeRequests(ctx, e, cancelEnded)", "changeRequests(ctx, e, `select task_id, id from getwork.work_requested where false`)"}},

	// A batch that has waited for its lock leaves out those whose callers have gone meanwhile, and nobody joins it whose caller has.
	"stillwaits": {{"assign", "		if k.left() {\n			k.err = errAllLeft", "		if false {\n			k.err = errAllLeft"}},
	"joinwaits":  {{"assign", "		case k.left():\n", "		case false:\n"}},

	// Who joins such a batch is admitted by what the node remembers of the task, which is compared under the lock.
	"lateadmit":   {{"assign", "k.holder.Instance == \"\" && t.refuses(k) == nil:", "k.holder.Instance == \"\":"}},
	"lateconfirm": {{"assign", "if t.remembered && !t.is(r.state) {", "if false {"}},

	// Such a batch takes the locks of the tasks that conflict with its own, too, in the order of ids.
	"lateorder": {{"assign", "tx.Exec(ctx, e.SQL(lockAssign), t.id)", "tx.Exec(ctx, e.SQL(`select from getwork.task_state where task_id = $1 for no key update`), t.id)"}},

	// A click whose plan is refused begins again.
	"beginagain": {{"assign", "			case errors.Is(err, errBeginAgain):\n", "			case false:\n"}},

	// The listener gives up a connection on which it does not hear its own echo.
	"watchdog": {{"notify", "if p.unanswered.IsZero() {", "if true {"}},
}

// without returns the edits of a build without these defences.
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

// Every text of both tables occurs in the source exactly once: a change of the code needs a change of the table.
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
	schematest.Thorough(t)
	t.Run("defences", func(t *testing.T) {
		t.Parallel()
		compile(t, without(t, slices.Collect(maps.Keys(defences))...))
	})
	var groups [][]edit // plants whose texts do not overlap
	for _, p := range plants {
		same := func(e edit) bool {
			return strings.Contains(e.old, p.edit.old) || strings.Contains(p.edit.old, e.old)
		}
		i := slices.IndexFunc(groups, func(g []edit) bool { return !slices.ContainsFunc(g, same) })
		if i < 0 {
			i, groups = len(groups), append(groups, nil)
		}
		groups[i] = append(groups[i], p.edit)
	}
	for _, g := range groups {
		t.Run("plants", func(t *testing.T) {
			t.Parallel()
			compile(t, g)
		})
	}
}
