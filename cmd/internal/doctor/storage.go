package doctor

import (
	"context"
	"fmt"
	"strings"
	"time"

	"getwork/schema"
)

const invalid = `select c.relname from pg_index i join pg_class c on c.oid = i.indexrelid where c.relnamespace = to_regnamespace($1) and not (i.indisvalid and i.indisready) order by 1`

type named struct{ Name string }

func lookAtInvalidIndexes(ctx context.Context, x *examination) (found []Finding, err error) {
	all, err := rowsOf[named](ctx, x.db, invalid, x.name.Quoted())
	if err != nil {
		return nil, err
	}
	for _, i := range all {
		found = append(found, failed(fmt.Sprintf("execute reindex index concurrently %s.%s", x.name.Quoted(), i.Name), "the index %s is not valid: nothing is found by it, and it may not keep what is unique so", i.Name))
	}
	return orFine(found, "all indexes are valid")
}

// departures compares the objects of some kinds with what the migrations make: n of them. Each that is missing, other than it should be, or
// one more on getwork's tables, becomes a finding.
func (x *examination) departures(ctx context.Context, of func(kind string) bool, missing, other, more func(is, should schema.Object) Finding) (found []Finding, n int, err error) {
	all, err := schema.Inventory(ctx, x.db, x.name)
	if err != nil {
		return nil, 0, err
	}
	type key struct{ kind, table, name string }
	is, ours := map[key]schema.Object{}, map[string]bool{}
	for _, o := range all {
		is[key{o.Kind, o.Table, o.Name}] = o
	}
	for _, o := range schema.Objects(x.name) {
		ours[o.Table] = o.Table != ""
		k := key{o.Kind, o.Table, o.Name}
		there, has := is[k]
		delete(is, k)
		switch {
		case !of(o.Kind):
			continue
		case !has:
			found = append(found, missing(there, o))
		case there.Definition != o.Definition:
			found = append(found, other(there, o))
		}
		n++
	}
	for _, o := range all { // in their order
		if _, left := is[key{o.Kind, o.Table, o.Name}]; left && of(o.Kind) && ours[o.Table] {
			found = append(found, more(o, schema.Object{}))
		}
	}
	return found, n, nil
}

// lookAtIndexes compares the indexes with those that the migrations make.
func lookAtIndexes(ctx context.Context, x *examination) ([]Finding, error) {
	drop := func(name string) string {
		return fmt.Sprintf("execute drop index concurrently %s.%s", x.name.Quoted(), name)
	}
	found, n, err := x.departures(ctx, func(kind string) bool { return kind == "index" },
		func(_, should schema.Object) Finding {
			return failed("execute "+concurrently(should.Definition), "the index %s is missing: what it finds is searched for in the whole table, and what it keeps unique no longer is", should.Name)
		},
		func(is, should schema.Object) Finding {
			return warned(drop(is.Name)+"; "+concurrently(should.Definition), "the index %s is another than getwork makes: %s", is.Name, is.Definition)
		},
		func(is, _ schema.Object) Finding {
			return warned(drop(is.Name)+", unless you need it: every click writes it", "the index %s is none of getwork's", is.Name)
		})
	if err != nil {
		return nil, err
	}
	return orFine(found, "all %d are there", n)
}

func concurrently(definition string) string {
	return strings.Replace(definition, " INDEX ", " INDEX CONCURRENTLY ", 1)
}

// lookAtDefinitions compares everything else: what the tables refuse and fill in, their triggers, and the functions.
func lookAtDefinitions(ctx context.Context, x *examination) ([]Finding, error) {
	alter := func(o schema.Object, format string, args ...any) string {
		return fmt.Sprintf("as the owner, execute alter table %s.%s ", x.name.Quoted(), o.Table) + fmt.Sprintf(format, args...)
	}
	found, _, err := x.departures(ctx, func(kind string) bool { return kind != "index" },
		func(_, should schema.Object) Finding {
			advice := fmt.Sprintf("restore it from a database that this getwork has migrated (pg_dump --schema-only), where it is: %s", should.Definition)
			switch should.Kind {
			case "constraint":
				advice = alter(should, "add constraint %s %s", should.Name, should.Definition)
			case "trigger":
				advice = "as the owner, execute " + should.Definition
			}
			return failed(advice, "the %s %s is missing: getwork relies on it", should.Kind, placed(should))
		},
		func(is, should schema.Object) Finding {
			advice := fmt.Sprintf("make it, as the owner, what the migrations make: %s", should.Definition)
			switch is.Kind {
			case "table":
				advice = alter(is, "set logged")
			case "constraint":
				advice = alter(is, "drop constraint %s, add constraint %[1]s %s", is.Name, should.Definition)
			case "trigger":
				advice = fmt.Sprintf("as the owner, execute drop trigger %s on %s.%s; %s", is.Name, x.name.Quoted(), is.Table, should.Definition)
			case "function":
				advice = "restore the function from a database that this getwork has migrated (pg_dump --schema-only)"
			}
			if is.Kind == "table" {
				return failed(advice, "the table %s is unlogged: a crash of PostgreSQL empties it", is.Name)
			}
			return failed(advice, "the %s %s is another than getwork makes: %s", is.Kind, placed(is), is.Definition)
		},
		func(is, _ schema.Object) Finding {
			return warned("drop it, unless you need it: writes may fail by it, and the next migration does not know it", "the %s %s is none of getwork's: %s", is.Kind, placed(is), is.Definition)
		})
	if err != nil {
		return nil, err
	}
	return orFine(found, "columns, constraints, triggers and functions are as the migrations make them")
}

// placed names an object with its table.
func placed(o schema.Object) string {
	if o.Table == "" || o.Kind == "table" {
		return o.Name
	}
	return o.Table + "." + o.Name
}

const ids = `
select t, coalesce(pg_sequence_last_value(pg_get_serial_sequence('getwork.' || t, 'id')::regclass), 0), coalesce(case t when 'task' then (select max(id) from getwork.task)
  when 'item' then (select max(id) from getwork.item) when 'run' then (select max(id) from getwork.run)
  when 'work' then (select max(id) from getwork.work) when 'hook' then (select max(id) from getwork.hook)
  when 'hook_event' then (select max(id) from getwork.hook_event) when 'principal' then (select max(id) from getwork.principal) else (select max(id) from getwork.work_requested) end, 0)
from unnest('{task,item,run,work,work_requested,principal,hook,hook_event}'::text[]) t
union all
select 'round', coalesce(pg_sequence_last_value('getwork.round'::regclass), 0), coalesce((select max(round_id) from getwork.work_requested), 0)`

// lookAtIDs finds sequences that a restore or logical replication left behind their tables.
func lookAtIDs(ctx context.Context, x *examination) (found []Finding, err error) {
	type sequence struct {
		Table     string
		Last, Max int64
	}
	all, err := rowsOf[sequence](ctx, x.db, x.name.SQL(ids))
	if err != nil {
		return nil, err
	}
	for _, s := range all {
		if s.Last < s.Max {
			found = append(found, failed("stop the nodes, and raise the ids as docs/upgrade.md says (Backup and restore)", "the ids of %s go on from %d, and there is %d already: new rows are refused or mixed up with old ones", s.Table, s.Last, s.Max))
		}
	}
	return orFine(found, "new ids are above the old ones")
}

const vacuums = `
select c.relname, coalesce(array_to_string(c.reloptions, ','), '') ~ 'autovacuum_enabled=(false|off|no|0)'
from pg_class c where c.relnamespace = to_regnamespace($1) and c.relkind = 'r' order by 1`

func lookAtAutovacuum(ctx context.Context, x *examination) (found []Finding, err error) {
	var autovacuum, counts string
	if err := x.db.QueryRow(ctx, `select current_setting('autovacuum'), current_setting('track_counts')`).Scan(&autovacuum, &counts); err != nil {
		return nil, err
	}
	if autovacuum != "on" || counts != "on" {
		found = append(found, failed("set autovacuum = on and track_counts = on", "autovacuum does not run: tables grow with every click, and rounds become slow"))
	}
	type table struct {
		Name string
		Off  bool
	}
	all, err := rowsOf[table](ctx, x.db, vacuums, x.name.Quoted())
	if err != nil {
		return nil, err
	}
	for _, t := range all {
		if t.Off {
			found = append(found, warned(fmt.Sprintf("execute alter table %s.%s reset (autovacuum_enabled)", x.name.Quoted(), t.Name), "autovacuum is switched off for %s", t.Name))
		}
	}
	return orFine(found, "on, for all of getwork's tables")
}

// The fourth column is five times what autovacuum waits for. With PostgreSQL's own settings that is as many dead rows as live ones.
const dead = `
select s.relname, s.n_live_tup, s.n_dead_tup,
  (5 * (coalesce(o.threshold, current_setting('autovacuum_vacuum_threshold'))::float8
    + coalesce(o.factor, current_setting('autovacuum_vacuum_scale_factor'))::float8 * s.n_live_tup))::bigint,
  greatest(s.last_vacuum, s.last_autovacuum)
from pg_stat_user_tables s
join pg_class c on c.oid = s.relid
cross join lateral (
  select max(option_value) filter (where option_name = 'autovacuum_vacuum_threshold') as threshold,
    max(option_value) filter (where option_name = 'autovacuum_vacuum_scale_factor') as factor
  from pg_options_to_table(c.reloptions)) o
where s.schemaname = $1
order by s.n_dead_tup desc`

func lookAtBloat(ctx context.Context, x *examination) (found []Finding, err error) {
	type table struct {
		Name             string
		Live, Dead, Late int64
		Vacuumed         *time.Time
	}
	all, err := rowsOf[table](ctx, x.db, dead, string(x.name))
	if err != nil {
		return nil, err
	}
	for _, t := range all {
		if t.Dead > x.limits.dead && t.Dead > t.Late {
			when := "never"
			if t.Vacuumed != nil {
				when = round(time.Since(*t.Vacuumed)).String() + " ago"
			}
			found = append(found, warned(fmt.Sprintf("execute vacuum (analyze) %s.%s, and see the check old-transactions; if it comes again, raise autovacuum_vacuum_cost_limit and autovacuum_max_workers", x.name.Quoted(), t.Name),
				"%s has %d dead rows beside %d live ones; vacuumed %s", t.Name, t.Dead, t.Live, when))
		}
	}
	return orFine(found, "no table has many dead rows")
}

// holding lists what keeps vacuum from removing rows. Of other roles' sessions a plain login sees little.
const holding = `
select 'session ' || pid || ' of ' || coalesce(usename, '?') || ' (' || coalesce(nullif(application_name, ''), 'no name') || ', ' || coalesce(state, '?') || ')', extract(epoch from clock_timestamp() - xact_start)::float8,
  'end it: select pg_terminate_backend(' || pid || ')'
from pg_stat_activity where xact_start is not null and pid <> pg_backend_pid() and backend_type = 'client backend' and datname = current_database()
union all
select 'prepared transaction ' || gid || ' of ' || owner, extract(epoch from clock_timestamp() - prepared)::float8, 'commit prepared or rollback prepared ' || quote_literal(gid)
from pg_prepared_xacts where database = current_database()
order by 2 desc`

func lookAtOldTransactions(ctx context.Context, x *examination) (found []Finding, err error) {
	type holder struct {
		What    string
		Seconds float64
		Advice  string
	}
	all, err := rowsOf[holder](ctx, x.db, holding)
	if err != nil {
		return nil, err
	}
	for _, h := range all {
		if age := time.Duration(h.Seconds * float64(time.Second)); age > x.limits.transaction {
			found = append(found, warned(h.Advice, "%s has been in a transaction for %s: what was deleted since then can't be removed", h.What, round(age)))
		}
	}
	return orFine(found, "none that this login sees is older than %s", x.limits.transaction)
}

func lookAtTransactionIDs(ctx context.Context, x *examination) (found []Finding, err error) {
	type database struct {
		Name        string
		Age, Multis int64
	}
	all, err := rowsOf[database](ctx, x.db, `select datname, age(datfrozenxid)::int8, mxid_age(datminmxid)::int8 from pg_database order by 2 desc`)
	if err != nil {
		return nil, err
	}
	for _, d := range all {
		age, what := d.Age, "transaction id"
		if d.Multis > age {
			age, what = d.Multis, "multixact id"
		}
		if state, bad := severe(age, x.limits.ids, x.limits.idsEnd); bad {
			found = append(found, Finding{State: state, Found: fmt.Sprintf("the oldest %s of database %s is %d old; PostgreSQL stops writing at 2.1 thousand million", what, d.Name, age),
				Advice: "execute vacuum (freeze) in " + d.Name + " as its owner, and see the checks autovacuum, old-transactions and slots"})
		}
	}
	return orFine(found, "the oldest is %d old, in database %s", all[0].Age, all[0].Name)
}

const slots = `
select slot_name, active, coalesce(wal_status, ''), current_setting('max_slot_wal_keep_size') <> '-1', coalesce(case when pg_is_in_recovery() then 0 else pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn) end, 0)::int8 from pg_replication_slots order by 1`

func lookAtSlots(ctx context.Context, x *examination) (found []Finding, err error) {
	type slot struct {
		Name     string
		Active   bool
		Status   string
		Bounded  bool
		Retained int64
	}
	all, err := rowsOf[slot](ctx, x.db, slots)
	if err != nil {
		return nil, err
	}
	for _, s := range all {
		drop := fmt.Sprintf("execute select pg_drop_replication_slot('%s')", s.Name)
		until := "until the disk is full"
		if s.Bounded {
			until = "until max_slot_wal_keep_size is reached and the slot is lost"
		}
		switch {
		case s.Status == "lost":
			found = append(found, warned(drop+", and make what read it anew", "the replication slot %s is lost: what read it can't go on", s.Name))
		case s.Active && s.Retained > x.limits.retained:
			found = append(found, warned("look for long transactions, and at what reads it: it is slow, or confirms nothing", "the replication slot %s has a reader, and keeps %s of WAL all the same, %s", s.Name, size(s.Retained), until))
		case s.Active:
		case s.Retained > x.limits.retained:
			found = append(found, failed("start what reads it, or "+drop, "nobody reads the replication slot %s, and it keeps %s of WAL, %s", s.Name, size(s.Retained), until))
		default:
			found = append(found, warned("start what reads it, or "+drop, "nobody reads the replication slot %s: it keeps WAL (%s so far), and may hold vacuum back", s.Name, size(s.Retained)))
		}
	}
	return orFine(found, "%s, none without a reader", counted(len(all), "replication slot"))
}

// lookAtDisk sees the server's disk only if the server is on this machine, and the login may know where its data is.
func lookAtDisk(ctx context.Context, x *examination) ([]Finding, error) {
	var bytes int64
	var folder *string
	const space = `select pg_database_size(current_database()), case when pg_has_role('pg_read_all_settings', 'member') then current_setting('data_directory') end`
	if err := x.db.QueryRow(ctx, space).Scan(&bytes, &folder); err != nil {
		return nil, err
	}
	if folder == nil || !local(x.db.Config().Host) {
		return one(skipped("the database has %s; the disk can't be seen from here", size(bytes)))
	}
	free, total, err := available(*folder)
	if err != nil {
		return one(skipped("the database has %s; %s can't be seen from here", size(bytes), *folder))
	}
	share := float64(free) / float64(total)
	what := fmt.Sprintf("%s of %s are free (%.0f %%); the database has %s", size(free), size(total), share*100, size(bytes))
	const advice = "make room: a full disk stops PostgreSQL"
	switch {
	case share < x.limits.free/3:
		return one(failed(advice, "%s", what))
	case share < x.limits.free:
		return one(warned(advice, "%s", what))
	}
	return one(fine("%s", what))
}

// size writes a number of bytes for people.
func size(bytes int64) string {
	const names = "KMGTP"
	value, unit := float64(bytes), -1
	for value >= 1024 && unit < len(names)-1 {
		value, unit = value/1024, unit+1
	}
	if unit < 0 {
		return fmt.Sprintf("%d B", bytes)
	}
	return fmt.Sprintf("%.3g %ciB", value, names[unit])
}
