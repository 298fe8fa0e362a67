package doctor

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"getwork/schema"
)

// oldest is the first server_version_num that getwork works with.
const oldest = 140000

func lookAtVersion(ctx context.Context, x *examination) ([]Finding, error) {
	var text string
	if err := x.db.QueryRow(ctx, `select current_setting('server_version')`).Scan(&text); err != nil {
		return nil, err
	}
	return one(versionFinding(x.version, text))
}

func versionFinding(number int, text string) Finding {
	if number < oldest {
		return failed("upgrade it", "PostgreSQL %s is too old: getwork needs 14 or later", text)
	}
	return fine("PostgreSQL %s", text)
}

func lookAtEncoding(ctx context.Context, x *examination) ([]Finding, error) {
	var encoding string
	if err := x.db.QueryRow(ctx, `select current_setting('server_encoding')`).Scan(&encoding); err != nil {
		return nil, err
	}
	if encoding != "UTF8" {
		return one(warned("move to a database in UTF8 when you can; docs/runbook.md says what fails until then",
			"the database's encoding is %s: text that it can't hold is refused, and fails a run whose query returns it", encoding))
	}
	return one(fine("UTF8"))
}

func lookAtSchema(ctx context.Context, x *examination) ([]Finding, error) {
	current, latest, err := schema.Status(ctx, x.db, x.name)
	if errors.Is(err, schema.ErrUnreleased) {
		return one(failed("save what you need with pg_dump, and use an empty database or another --schema", "the tables in %s were made before getwork 0.1", x.name))
	}
	if err != nil {
		return nil, err
	}
	x.migrated = current == latest
	switch {
	case x.migrated:
		return one(fine("%s is at version %d, which this program needs", x.name, current))
	case current > latest:
		return one(failed("run the newer getwork, or go back with its `getwork migrate down`", "%s is at version %d; this program knows up to %d", x.name, current, latest))
	}
	advice, says := "run `getwork migrate up`", fmt.Sprintf("%s is at version %d; this program needs %d", x.name, current, latest)
	if current == 0 {
		says = fmt.Sprintf("there is no schema %s yet", x.name)
	}
	if x.config.NoMigrate || x.shared {
		return one(failed(advice+" over a direct connection", "%s, and nodes don't migrate", says))
	}
	const may = `select case when to_regnamespace($1) is null then has_database_privilege(current_database(), 'create')
  else (select pg_has_role(nspowner, 'member') from pg_namespace where oid = to_regnamespace($1)) end`
	var able bool
	if err := x.db.QueryRow(ctx, may, x.name.Quoted()).Scan(&able); err != nil {
		return nil, err
	}
	if !able && x.config.ListenDatabaseURL == "" {
		return one(failed("as the database's owner: grant create on database … to the login, or let the schema's owner run `getwork migrate up`", "%s, and the login may not make it", says))
	}
	return one(warned(advice+", or let the first node do it when it starts", "%s", says))
}

// timeouts are settings of a role, a database or a URL that end what getwork does. Getwork replaces statement_timeout and
// idle_session_timeout where it can, and sets lock_timeout and idle_in_transaction_session_timeout in each transaction.
const timeouts = `
select name, setting::bigint * case unit when 's' then 1000 when 'min' then 60000 else 1 end
from pg_settings where name in ('statement_timeout', 'transaction_timeout', 'idle_session_timeout', 'lock_timeout') order by name`

type timeout struct {
	Name string
	MS   int64
}

func lookAtTimeouts(ctx context.Context, x *examination) (found []Finding, err error) {
	longest := 2 * time.Minute
	if x.migrated {
		var seconds *float64
		if err := x.db.QueryRow(ctx, x.name.SQL(longestQuery)).Scan(&seconds); err != nil {
			return nil, err
		}
		if seconds != nil {
			longest = time.Duration(*seconds * float64(time.Second))
		}
	}
	set, err := rowsOf[timeout](ctx, x.db, timeouts)
	if err != nil {
		return nil, err
	}
	found = timeoutFindings(set, longest, "--database-url")
	if x.queries != nil {
		if set, err = rowsOf[timeout](ctx, x.queries, timeouts); err != nil {
			return nil, err
		}
		set = slices.DeleteFunc(set, func(t timeout) bool { return t.Name != "transaction_timeout" }) // the others are set for each query
		found = append(found, timeoutFindings(set, longest, "--query-database-url")...)
	}
	return orFine(found, "none that would end a run or a statement of getwork's")
}

const longestQuery = `
select extract(epoch from max(v.query_timeout))::float8 from getwork.task_state s join getwork.task_version v using (task_id, version) where s.deleted_at is null`

func timeoutFindings(set []timeout, longest time.Duration, flag string) (found []Finding) {
	for _, t := range set {
		lasts := time.Duration(t.MS) * time.Millisecond
		remove := fmt.Sprintf("execute alter role … reset %s, or alter database … reset %[1]s, or take it out of the URL", t.Name)
		switch {
		case lasts == 0:
		case t.Name == "transaction_timeout" && lasts < longest+time.Minute:
			found = append(found, failed(remove, "transaction_timeout = %s on %s ends each run that takes longer; a query here may take %s, and its result has to be written", lasts, flag, longest))
		case t.Name == "transaction_timeout":
			found = append(found, warned(remove, "transaction_timeout = %s on %s ends runs and migrations that take longer", lasts, flag))
		case t.Name == "statement_timeout" && lasts < longest+time.Minute:
			found = append(found, failed(remove, "statement_timeout = %s on %s interrupts getwork's own statements, such as filling a shelf", lasts, flag))
		case t.Name == "statement_timeout":
			found = append(found, warned(remove, "statement_timeout = %s on %s interrupts getwork's own statements, such as a clean-up after a long outage", lasts, flag))
		case t.Name == "idle_session_timeout":
			found = append(found, warned(remove, "idle_session_timeout = %s on %s closes the listener and idle connections again and again", lasts, flag))
		case t.Name == "lock_timeout" && lasts < time.Second:
			found = append(found, warned(remove, "lock_timeout = %s on %s fails calls that wait for a lock only a moment", lasts, flag))
		}
	}
	return found
}

// sessions are settings that getwork relies on, with the value that they should have.
const sessions = `
select name, setting, should from pg_settings join (values ('enable_indexscan', 'on'), ('enable_indexonlyscan', 'on'), ('enable_nestloop', 'on'),
  ('session_replication_role', 'origin'), ('row_security', 'on'), ('array_nulls', 'on'), ('standard_conforming_strings', 'on')) as s (of, should) on of = name
where setting <> should order by name`

func lookAtSession(ctx context.Context, x *examination) (found []Finding, err error) {
	type setting struct{ Name, Is, Should string }
	set, err := rowsOf[setting](ctx, x.db, sessions)
	if err != nil {
		return nil, err
	}
	for _, s := range set {
		advice := fmt.Sprintf("execute alter role … reset %s, or alter database … reset %[1]s, or correct postgresql.conf", s.Name)
		why := "getwork's statements are made for the other value, and become slow or fail"
		if s.Name == "session_replication_role" {
			why = "constraints and triggers that guard getwork's tables are switched off"
			found = append(found, failed(advice, "%s = %s: %s", s.Name, s.Is, why))
			continue
		}
		found = append(found, warned(advice, "%s = %s: %s", s.Name, s.Is, why))
	}
	var login, role string
	if err := x.db.QueryRow(ctx, `select session_user, current_user`).Scan(&login, &role); err != nil {
		return nil, err
	}
	if login != role {
		found = append(found, warned("execute alter role "+login+" reset role, and grant the login what it needs", "the login %s works as the role %s", login, role))
	}
	return orFine(found, "as getwork needs them")
}

func lookAtClientCheck(ctx context.Context, x *examination) ([]Finding, error) {
	_, err := x.db.Exec(ctx, `begin read only`)
	if err == nil {
		_, err = x.db.Exec(ctx, `set local client_connection_check_interval = '500ms'`)
		if _, failed := x.db.Exec(ctx, `rollback`); failed != nil {
			return nil, failed
		}
	}
	return one(clientCheckFinding(err))
}

func clientCheckFinding(err error) Finding {
	var refused *pgconn.PgError
	if errors.As(err, &refused) {
		return warned("run PostgreSQL on Linux, or expect a killed node's run to delay the next one", "the server can't detect that a client is gone while a query runs (%s)", refused.Message)
	}
	if err != nil {
		return failed("look at the server's log", "can't be checked: %v", err)
	}
	return fine("the server ends the query of a node that died within half a second")
}

func lookAtKeepalives(ctx context.Context, x *examination) ([]Finding, error) {
	if host := x.db.Config().Host; len(host) > 0 && host[0] == '/' {
		return one(skipped("the connection is a socket of this machine"))
	}
	var idle, interval, count int
	const settings = `select current_setting('tcp_keepalives_idle')::int, current_setting('tcp_keepalives_interval')::int, current_setting('tcp_keepalives_count')::int`
	if err := x.db.QueryRow(ctx, settings).Scan(&idle, &interval, &count); err != nil {
		return nil, err
	}
	after := time.Duration(idle+interval*count) * time.Second
	if after > time.Minute {
		return one(warned("set tcp_keepalives_idle = 5, tcp_keepalives_interval = 3 and tcp_keepalives_count = 3, on the server if the nodes connect through a pooler; and tcp_keepalive in the pooler",
			"the server notices only after %s that the host of a node, or of the pooler, has vanished; until then it keeps its locks", after))
	}
	return one(fine("the server gives up a host that has vanished after %s", after))
}

// lookAtClock compares the best of three readings, each as of the middle of its round trip.
func lookAtClock(ctx context.Context, x *examination) ([]Finding, error) {
	var best, doubt time.Duration
	for i := range 3 {
		began := time.Now()
		var at time.Time
		if err := x.db.QueryRow(ctx, `select clock_timestamp()`).Scan(&at); err != nil {
			return nil, err
		}
		trip := time.Since(began)
		if i == 0 || trip/2 < doubt {
			best, doubt = at.Sub(began.Add(trip/2)), trip/2
		}
	}
	return one(x.clockFinding("the database's clock", best, doubt))
}

func (x *examination) clockFinding(whose string, by, doubt time.Duration) Finding {
	state, bad := severe(by.Abs()-doubt, x.limits.clock, 10*x.limits.clock)
	if !bad {
		return fine("%s agrees with this machine's within %s", whose, max(round(by.Abs()+doubt), 100*time.Microsecond))
	}
	than := "ahead of"
	if by < 0 {
		than = "behind"
	}
	return Finding{State: state, Found: fmt.Sprintf("%s is %s %s this machine's", whose, round(by.Abs()), than),
		Advice: "make both follow NTP: leases, put-off times and the ends of sessions go by the database's clock, what people read and tokens of issuers by the node's"}
}

// lookAtNode asks a node whether it is ready, and what time it is there, which its answer says to the second.
func (x *examination) lookAtNode(ctx context.Context, address string) []Finding {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimRight(address, "/")+"/readyz", nil)
	if err != nil {
		return []Finding{failed("give an address such as http://10.1.2.3:8080", "--node-url %s: %v", address, err)}
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 5 * time.Second}
	began := time.Now()
	answer, err := client.Do(r)
	if err != nil {
		return []Finding{failed("start it, or look at its log", "%s does not answer: %v", address, err)}
	}
	_ = answer.Body.Close()
	var found []Finding
	if answer.StatusCode != http.StatusOK {
		found = append(found, failed("look at its log, or ask its /readyz?verbose as a manager", "%s is not ready: it answers with status %d", address, answer.StatusCode))
	}
	at, err := http.ParseTime(answer.Header.Get("Date"))
	if err != nil {
		return append(found, warned("is it a node?", "%s does not say what time it is there", address))
	}
	trip := time.Since(began)
	f := x.clockFinding("the clock of "+address, at.Add(time.Second/2).Sub(began.Add(trip/2)), trip/2+time.Second/2)
	if len(found) == 0 || f.State != OK {
		found = append(found, f)
	}
	return found
}
