package doctor

import (
	"context"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"getwork/cmd/internal/e2e"
)

// standbys connects what receives WAL, and changes who must confirm commits. What the doctor says is compared with what a commit
// does. The server is the ward's own.
func (w *ward) standbys() {
	w.t.Helper()
	w.execute("set synchronous_commit = local; create publication p; create table bank.note (n int)")
	sees := []string{"--database-url", w.superuser}
	names := func(names string) string {
		return "alter system set synchronous_standby_names = '" + names + "'; select pg_reload_conf()"
	}
	w.expect(broken{check: "standbys", state: Skipped, says: "no standby"})

	// This connection streams nothing.
	leave := w.receive("s1", "")
	w.expect(broken{check: "standbys", args: sees, state: Skipped, says: "no standby is connected"})
	w.expect(broken{check: "standbys", sql: `alter database "DATABASE" set synchronous_commit = local; ` + names("*"), state: Warning, says: "synchronous_commit = local"})
	w.commits(true)
	w.expect(broken{check: "standbys", sql: `alter database "DATABASE" reset synchronous_commit`, args: sees, state: Error, says: `every commit waits: synchronous_standby_names is "*", which needs 1 standby; connected: "s1" async`})
	w.commits(false)
	w.expect(broken{check: "standbys", state: Skipped, says: `connected: "s1"; LOGIN may not see who confirms commits: grant pg_read_all_stats to LOGIN shows it`})
	w.expect(broken{check: "standbys", sql: names("ANY 2 (*)"), state: Error, says: `which needs 2 standbys; connected: "s1"`})
	leave()
	w.expect(broken{check: "standbys", state: Error, says: "no standby is connected"})

	// This one does what a standby does. A server's process that sends WAL reads the settings when it begins.
	for setting, says := range map[string]string{"*": "", "s9, \"s1\"": "", "S1": "", "First 1 (s9,\ts1)": "", "any 1(s1)": "", "s9": `"s1" async`,
		"1 (s9)": `"s1" async`, "2 (s1, s9)": `which needs 2 standbys; connected: "s1" sync`, "ANY 2 (*)": `connected: "s1" quorum`} {
		w.execute(names(setting))
		leave := w.receive("s1", "START_REPLICATION ")
		if says == "" {
			w.expect(broken{check: "standbys", args: sees, state: OK, says: `commits wait for 1 standby (connected: "s1"`})
		} else {
			w.expect(broken{check: "standbys", args: sees, state: Error, says: says})
		}
		w.commits(says == "")
		leave()
	}
	w.execute(names("*"))
	leave = w.receive("s1", "START_REPLICATION ")
	w.expect(broken{check: "standbys", sql: "grant pg_read_all_stats to LOGIN", state: OK, says: `(connected: "s1" sync; synchronous_commit = on)`})
	w.expect(broken{check: "standbys", sql: "revoke pg_read_all_stats from LOGIN; " + names(""), state: Warning, says: "1 standby is connected, and commits don't wait for it"})
	w.expect(broken{check: "standbys", args: sees, state: Warning, says: "1 standby is connected, and commits don't wait for it"})
	leave()

	// A subscriber can confirm commits, but nobody fails over to it.
	for setting, says := range map[string]string{"": "", "*": `may wait for no more than a logical subscriber (connected: "debezium" sync logical)`, "s1": `connected: "debezium" async logical`} {
		w.execute(names(setting))
		leave := w.receive("debezium", "START_REPLICATION SLOT s LOGICAL ")
		switch setting {
		case "":
			w.expect(broken{check: "standbys", args: sees, state: Skipped, says: "no standby is connected"})
			w.expect(broken{check: "standbys", state: Skipped, says: "no standby is connected"})
		case "*":
			w.expect(broken{check: "standbys", args: sees, state: Warning, says: says})
		default:
			w.expect(broken{check: "standbys", args: sees, state: Error, says: says})
		}
		w.commits(setting != "s1")
		leave()
	}
	w.execute("alter system reset synchronous_standby_names; select pg_reload_conf()")
}

// slots keep WAL for a reader that confirms nothing, and up to a limit if there is one. What is lost can't be read on.
func (w *ward) slots() {
	w.t.Helper()
	all := func(l *limits) { l.retained = -1 }
	leave := w.receive("debezium", "START_REPLICATION SLOT s LOGICAL ")
	w.expect(broken{check: "slots", state: OK, says: "1 replication slot, none without a reader"})
	w.expect(broken{check: "slots", limits: all, state: Warning, says: "the replication slot s has a reader, and keeps"})
	leave()
	w.expect(broken{check: "slots", sql: "select pg_create_physical_replication_slot('p', true)", limits: all, state: Error, says: "until the disk is full"})
	w.expect(broken{check: "slots", sql: "alter system set max_slot_wal_keep_size = '1MB'; select pg_reload_conf()", limits: all, state: Error, says: "until max_slot_wal_keep_size"})
	w.expect(broken{check: "slots", sql: "create table bank.some (n int); select pg_switch_wal(); create table bank.more (n int); select pg_switch_wal(); checkpoint", state: Warning, says: "the replication slot p is lost: what read it can't go on", mend: "advice"})
	w.execute("alter system reset max_slot_wal_keep_size; select pg_reload_conf()")
}

// receive connects as a receiver of WAL does, and starts to stream unless start is empty. It returns when the server has heard what
// the receiver has. leave returns when the server no longer knows the receiver.
func (w *ward) receive(name, start string) (leave func()) {
	w.t.Helper()
	config, err := pgconn.ParseConfig(w.superuser)
	if err != nil {
		w.t.Fatal(err)
	}
	logical := strings.Contains(start, " LOGICAL ")
	config.RuntimeParams["application_name"] = name
	config.RuntimeParams["replication"] = "true"
	if logical {
		config.RuntimeParams["replication"] = "database"
	}
	ctx, cancel := context.WithCancel(w.t.Context())
	conn, err := pgconn.ConnectConfig(ctx, config)
	if err != nil {
		cancel()
		w.t.Fatal(err)
	}
	ended := make(chan struct{})
	leave = func() {
		cancel()
		<-ended
		e2e.Await(w.t, name+" is gone", e2e.Soon, func() bool { return w.is(`not exists (select from pg_stat_replication)`) })
	}
	if start == "" {
		go func() {
			defer close(ended)
			<-ctx.Done()
			_ = conn.Close(context.Background())
		}()
		return leave
	}
	var from string
	if err := w.admin.QueryRow(ctx, `select pg_current_wal_flush_lsn()::text`).Scan(&from); err != nil {
		w.t.Fatal(err)
	}
	start += from
	if logical {
		if _, err := conn.Exec(ctx, "CREATE_REPLICATION_SLOT s TEMPORARY LOGICAL pgoutput").ReadAll(); err != nil {
			w.t.Fatal(err)
		}
		start += " (proto_version '1', publication_names 'p')"
	}
	conn.Frontend().SendQuery(&pgproto3.Query{String: start})
	if err := conn.Frontend().Flush(); err != nil {
		w.t.Fatal(err)
	}
	go func() {
		defer close(ended)
		defer conn.Close(context.Background())
		_ = confirm(ctx, conn, from)
	}()
	e2e.Await(w.t, name+" streams", e2e.Soon, func() bool {
		return w.is(`exists (select from pg_stat_replication where state = 'streaming' and replay_lsn is not null)`)
	})
	return leave
}

// confirm says that what has arrived is on disk, and replayed.
func confirm(ctx context.Context, conn *pgconn.PgConn, from string) error {
	var high, low uint32
	if _, err := fmt.Sscanf(from, "%X/%X", &high, &low); err != nil {
		return err
	}
	has := uint64(high)<<32 | uint64(low)
	for {
		status := []byte{'r'}
		for range 3 { // written, on disk, replayed
			status = binary.BigEndian.AppendUint64(status, has)
		}
		conn.Frontend().Send(&pgproto3.CopyData{Data: append(status, make([]byte, 9)...)}) // no time, and no answer wanted
		if err := conn.Frontend().Flush(); err != nil {
			return err
		}
		m, err := conn.ReceiveMessage(ctx)
		if err != nil {
			return err
		}
		data, is := m.(*pgproto3.CopyData)
		switch {
		case !is:
		case data.Data[0] == 'w':
			has = max(has, binary.BigEndian.Uint64(data.Data[1:])+uint64(len(data.Data)-25))
		case data.Data[0] == 'k':
			has = max(has, binary.BigEndian.Uint64(data.Data[1:]))
		}
	}
}

// is asks the server.
func (w *ward) is(condition string, args ...any) (so bool) {
	w.t.Helper()
	if err := w.admin.QueryRow(w.t.Context(), `select `+condition, args...).Scan(&so); err != nil {
		w.t.Fatal(err)
	}
	return so
}

// commits writes a row, and reports an error unless the commit returns, or waits although everybody who streams has it.
func (w *ward) commits(want bool) {
	w.t.Helper()
	conn, err := pgx.Connect(w.t.Context(), w.superuser)
	if err != nil {
		w.t.Fatal(err)
	}
	defer conn.Close(context.Background())
	pid := conn.PgConn().PID()
	done := make(chan error, 1)
	write := func() {
		_, err := conn.Exec(w.t.Context(), `insert into bank.note values (1)`)
		done <- err
	}
	returned := func() bool {
		select {
		case err := <-done:
			if err != nil {
				w.t.Fatal(err)
			}
			return true
		default:
			return false
		}
	}
	go write()
	if want {
		e2e.Await(w.t, "the commit returns", e2e.Soon, returned)
		return
	}
	const waits = `exists (select from pg_stat_activity where pid = $1 and wait_event = 'SyncRep')`
	e2e.Await(w.t, "a commit waits", e2e.Soon, func() bool {
		if returned() { // the server has not read its settings everywhere
			go write()
		}
		return w.is(waits, pid) && w.is(`not exists (select from pg_stat_replication where flush_lsn < pg_current_wal_flush_lsn())`) && w.is(waits, pid)
	})
	w.is(`pg_cancel_backend($1)`, pid) // it stops waiting
	e2e.Await(w.t, "the wait is cancelled", e2e.Soon, returned)
}

// The number is read from the names as PostgreSQL reads it.
func TestConfirmations(t *testing.T) {
	t.Parallel()
	for names, want := range map[string]int{
		"s1": 1, "*": 1, "s1, s2": 1, "2": 1, `"2 (a, b)"`: 1, `"a""b", ü$1`: 1, " first \t3\n( a ,b, * ) ": 3, "any 2(a,b)": 2, "2(2, 3)": 2, "2 (\"a)\", b)": 2, "firsts": 1,
		"": 0, "0 (a)": 0, "some 2 (a)": 0, "2 (a": 0, "a b": 0, "2 (a) b": 0, "99999999999999999999 (a)": 0, "a,": 0, `"a`: 0, "ANY 2": 0,
	} {
		n, understood := confirmations(names)
		if n != want || understood != (want > 0) {
			t.Errorf("%q needs %d (%t), want %d", names, n, understood, want)
		}
	}
}

// Several that confirm, and names that only a later PostgreSQL understands.
func TestStandbysFinding(t *testing.T) {
	t.Parallel()
	standby, other, subscriber := sender{Name: "s1", Sync: "quorum", Replays: true}, sender{Name: "s2", Sync: "quorum", Replays: true}, sender{Name: "d", Sync: "quorum", Replays: true, Logical: true}
	for _, c := range []struct {
		names string
		all   []sender
		state State
		says  string
	}{
		{"ANY 1 (*)", []sender{standby, subscriber}, Warning, "a commit may wait for no more than a logical subscriber"},
		{"ANY 2 (*)", []sender{standby, subscriber}, OK, "commits wait for 2 standbys"},
		{"ANY 2 (*)", []sender{standby, other, subscriber}, OK, "commits wait for 2 standbys"},
		{"ANY 3 (*)", []sender{standby, other}, Error, `which needs 3 standbys; connected: "s1" quorum, "s2" quorum`},
		{"MOST (s1)", []sender{standby}, Skipped, "can't tell"},
		{"MOST (s1)", nil, Error, "no standby is connected"},
	} {
		f := standbysFinding(durable{Commit: "on", Names: c.names}, c.all, "bank")
		if f.State != c.state || !strings.Contains(f.Found, c.says) {
			t.Errorf("%s with %v: %+v, want %s: %s", c.names, c.all, f, c.state, c.says)
		}
	}
}
