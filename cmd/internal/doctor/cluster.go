package doctor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/assign/pg"
	"getwork/cmd/internal/serve"
)

// lookAtListen hears its own notification, on a channel that no node listens to.
func lookAtListen(ctx context.Context, x *examination) ([]Finding, error) {
	if x.config.NoListen {
		return one(skipped("--no-listen: nodes poll"))
	}
	conn, err := x.config.ConnectDirectly(ctx)
	if err != nil {
		return one(unreachable("the connection for LISTEN", err))
	}
	defer conn.Close(ctx)
	if shared, err := serve.SharesSessions(ctx, x.config.ConnectDirectly); err != nil || shared {
		return one(failed("name PostgreSQL itself with --listen-database-url", "LISTEN does not work here: the connection goes through a transaction pooler"))
	}
	channel := fmt.Sprintf("getwork doctor %d", time.Now().UnixNano())
	if _, err := conn.Exec(ctx, `listen `+pgx.Identifier{channel}.Sanitize()); err != nil {
		return nil, err
	}
	began := time.Now()
	if _, err := x.db.Exec(ctx, `select pg_notify($1, '')`, channel); err != nil {
		return nil, err
	}
	within, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	if _, err := conn.WaitForNotification(within); err != nil {
		return one(failed("name PostgreSQL itself with --listen-database-url, the same server and database as --database-url",
			"a notification that was sent over --database-url is not heard: %v", err))
	}
	return one(fine("a notification is heard after %s", round(time.Since(began))))
}

const sessionsOf = `select coalesce(application_name, ''), count(*) from pg_stat_activity where datname = current_database() and backend_type = 'client backend' and pid <> pg_backend_pid() group by 1`

// lookAtNodes knows the nodes by their sessions, which end with them.
func lookAtNodes(ctx context.Context, x *examination) ([]Finding, error) {
	type sessions struct {
		Name  string
		Count int
	}
	all, err := rowsOf[sessions](ctx, x.db, sessionsOf)
	if err != nil {
		return nil, err
	}
	versions := map[string][]string{}
	x.live = 0
	for _, s := range all {
		if node, version, is := serve.ParseSessionName(s.Name); is {
			versions[version] = append(versions[version], node)
			x.live++
		}
	}
	var found []Finding
	var texts []string
	for _, version := range slices.Sorted(maps.Keys(versions)) {
		if nodes := versions[version]; version == "" {
			texts = append(texts, fmt.Sprintf("%s of an unknown version", counted(len(nodes), "node")))
		} else {
			texts = append(texts, fmt.Sprintf("%s of version %s", counted(len(nodes), "node"), version))
		}
	}
	switch {
	case len(versions) == 0:
		found = append(found, fine("none is connected to this database"))
	case len(versions) > 1:
		found = append(found, warned("finish the upgrade, or go back: mixed versions are for the time of a rolling upgrade", "nodes of several versions are connected: %s", strings.Join(texts, ", ")))
	default:
		found = append(found, fine("connected: %s", texts[0]))
	}
	for _, address := range x.urls {
		found = append(found, x.lookAtNode(ctx, address)...)
	}
	return found, nil
}

// room is what a server has room for, and who has it now: pg_stat_activity hides what others' sessions are, so those are counted by
// their databases. The query database may be on the same server.
const room = `
select current_setting('max_connections')::int, current_setting('superuser_reserved_connections')::int + coalesce(current_setting('reserved_connections', true)::int, 0),
  (select rolconnlimit from pg_roles where rolname = session_user), (select datconnlimit from pg_database where datname = current_database()),
  (select greatest(0, sum(numbackends) - (select count(*) from pg_stat_activity where application_name ~ '^getwork( |$)')) from pg_stat_database)::int,
  coalesce(host(inet_server_addr()), '') || ':' || coalesce(inet_server_port(), 0) || ' ' || pg_postmaster_start_time()::text`

type roomFor struct {
	Max, Reserved, Login, Database, Others int
	Server                                 string
}

func lookAtConnections(ctx context.Context, x *examination) ([]Finding, error) {
	if x.shared {
		return one(skipped("the pooler decides how many connections there are"))
	}
	c := x.config
	each, eachQuery, err := pg.PoolsConfig{DatabaseURL: c.DatabaseURL, QueryURL: c.QueryDatabaseURL, MaxRuns: c.MaxRuns}.Connections()
	if err != nil {
		return nil, err
	}
	has, err := rowsOf[roomFor](ctx, x.db, room)
	if err != nil {
		return nil, err
	}
	nodes := x.nodes
	if nodes == 0 {
		nodes = max(x.live, 1)
	}
	if x.queries == nil {
		return x.roomFinding(has[0], nodes, each, "")
	}
	there, err := rowsOf[roomFor](ctx, x.queries, room)
	if err != nil {
		return nil, err
	}
	if there[0].Server == has[0].Server {
		has[0].Login, has[0].Database = -1, -1 // these are of two logins, or two databases
		return x.roomFinding(has[0], nodes, each+eachQuery, "")
	}
	found, _ := x.roomFinding(has[0], nodes, each, "")
	more, _ := x.roomFinding(there[0], nodes, eachQuery, " on the query database")
	return append(found, more...), nil
}

func (x *examination) roomFinding(has roomFor, nodes, each int, at string) ([]Finding, error) {
	need, free := nodes*each, has.Max-has.Reserved
	what := fmt.Sprintf("%s with up to %d connections%s need %d", counted(nodes, "node"), each, at, need)
	var found []Finding
	for limit, sql := range map[int]string{has.Login: "alter role … connection limit -1", has.Database: "alter database … connection limit -1"} {
		if limit >= 0 && limit < need {
			found = append(found, failed("execute "+sql, "%s; the login or the database may have %d", what, limit))
		}
	}
	switch {
	case need > free:
		found = append(found, failed("raise max_connections, lower --max-runs, or put a pooler in between (--pooled)", "%s; the server has room for %d", what, free))
	case need+has.Others > free:
		found = append(found, warned("raise max_connections, or have the others use fewer", "%s; the server has room for %d, and others have %d now", what, free, has.Others))
	}
	return orFine(found, "%s; the server has room for %d, and others have %d now", what, free, has.Others)
}

func lookAtNotifyQueue(ctx context.Context, x *examination) ([]Finding, error) {
	var used float64
	if err := x.db.QueryRow(ctx, `select pg_notification_queue_usage()`).Scan(&used); err != nil {
		return nil, err
	}
	if state, bad := severe(used, x.limits.queue, 5*x.limits.queue); bad {
		return one(Finding{State: state, Found: fmt.Sprintf("the queue of notifications is %.2g %% full; when it is full, every transaction that notifies fails", used*100),
			Advice: "end the session that listens and stays in a transaction: select pid, xact_start, query from pg_stat_activity where state like 'idle in%' order by xact_start"})
	}
	return one(fine("%.2g %% full", used*100))
}

const durability = `
select current_setting('fsync'), current_setting('full_page_writes'), current_setting('synchronous_commit'), current_setting('synchronous_standby_names')`

type durable struct {
	Fsync, FullPages, Commit, Names string
}

func lookAtDurability(ctx context.Context, x *examination) ([]Finding, error) {
	is, err := rowsOf[durable](ctx, x.db, durability)
	if err != nil {
		return nil, err
	}
	var found []Finding
	for _, s := range []struct{ name, value string }{{"fsync", is[0].Fsync}, {"full_page_writes", is[0].FullPages}, {"synchronous_commit", is[0].Commit}} {
		if s.value == "off" {
			found = append(found, failed("switch it on, in postgresql.conf and for the role and the database", "%s is off: a crash of the server loses work that people were told they have", s.name))
		}
	}
	return orFine(found, "what was committed survives a crash (synchronous_commit = %s)", is[0].Commit)
}

const replica = `
select pg_is_in_recovery(),
  case when not pg_is_in_recovery() then 0 when pg_last_wal_receive_lsn() = pg_last_wal_replay_lsn() then 0
    else coalesce(extract(epoch from clock_timestamp() - pg_last_xact_replay_timestamp()), 0) end::float8,
  case when pg_is_in_recovery() then pg_is_wal_replay_paused() else false end,
  (select count(*) from pg_stat_wal_receiver)::int,
  current_setting('hot_standby_feedback') = 'on',
  (select setting::float8 / 1000 from pg_settings where name = 'max_standby_streaming_delay')`

type replicaOf struct {
	Standby   bool
	Lag       float64
	Paused    bool
	Receivers int
	Feedback  bool
	Delay     float64 // seconds for which a query may hold replay up; negative: for ever
}

func lookAtReplica(ctx context.Context, x *examination) (found []Finding, err error) {
	is, err := rowsOf[replicaOf](ctx, x.queries, replica)
	if err != nil {
		return nil, err
	}
	r := is[0]
	if !r.Standby {
		return one(fine("--query-database-url leads to a primary"))
	}
	var longest *float64
	if err := x.db.QueryRow(ctx, x.name.SQL(longestQuery)).Scan(&longest); err != nil {
		return nil, err
	}
	if r.Paused {
		found = append(found, failed("execute select pg_wal_replay_resume() there", "the replica's replay is paused: queries see an old state"))
	}
	if r.Receivers == 0 {
		found = append(found, warned("look at the replica's log", "the replica receives nothing from its primary just now"))
	}
	if lag := time.Duration(r.Lag * float64(time.Second)); lag > x.limits.lag {
		found = append(found, warned("look for long queries and a slow disk there", "the replica is %s behind: queries see what was so long ago, and items closed since then are left out", round(lag)))
	}
	if longest != nil && !r.Feedback && r.Delay >= 0 && r.Delay < *longest {
		found = append(found, warned("set hot_standby_feedback = on there, or max_standby_streaming_delay above the longest query_timeout",
			"the replica cancels a query that holds its replay up for %.0f s, and queries here may take %.0f s", r.Delay, *longest))
	}
	return orFine(found, "a standby, %.1f s behind", r.Lag)
}
