package history

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"getwork/schema/schematest"
)

func TestMain(m *testing.M) { os.Exit(schematest.Main(m)) }

// Many goroutines record at once; the entries of each stay in order.
func TestRecorder(t *testing.T) {
	r := NewRecorder()
	var all sync.WaitGroup
	for node := range 20 {
		all.Go(func() {
			for range 100 {
				r.Add(Entry{Call: &Call{Kind: Click, Node: node, Began: r.Now()}})
			}
		})
	}
	all.Wait()
	h := r.History(Tables{})
	if len(h.Entries) != 2000 || r.Len() != 2000 {
		t.Fatalf("%d entries were recorded, want 2000", len(h.Entries))
	}
	last := map[int]Clock{}
	for _, e := range h.Entries {
		if e.Call.Began < last[e.Call.Node] {
			t.Fatalf("the entries of %d are not in their order", e.Call.Node)
		}
		last[e.Call.Node] = e.Call.Began
	}
}

// A history reads back as it was written.
func TestFile(t *testing.T) {
	at := time.Date(2026, 7, 1, 9, 0, 0, 123456000, time.UTC)
	paused, after := true, 72*time.Hour
	want := History{
		Entries: []Entry{
			{Call: &Call{Kind: Update, Who: Who{"a", "1"}, Began: 1, Ended: 2, Paused: &paused, Status: 200, Body: json.RawMessage(`{"version":2}`)}},
			{Socket: &Socket{ID: 1, Who: Who{User: "ü\n"}, Live: 3, Ended: 4, Status: -1, Slow: true}},
			{Told: &Told{Socket: 1, At: 3, Type: "snapshot", Body: json.RawMessage(`{"work":[]}`)}},
			{Fault: &Fault{Kind: "kill", Node: -1, Began: 5, Ended: 6}},
			{Sample: &Sample{At: 7, Task: "t", Executions: 1}},
			{Tick: &Tick{Began: 8, Ended: 9, Now: at}},
			{Ranking: &Ranking{Task: "t", Items: []string{"a", "b"}, Cut: true}},
			{Done: &Done{Task: "t", Item: "a", Began: 10, Ended: 11}},
			{Delivery: &Delivery{Message: "msg_1", Began: 12, Ended: 13, Status: 503}},
		},
		Tables: Tables{Now: at, Work: []WorkRow{{ID: 1, Item: "2026/117", AssignedAt: at, ClosedAt: &at, After: &after}}},
	}
	name := filepath.Join(t.TempDir(), "history.jsonl")
	if err := WriteFile(name, want); err != nil {
		t.Fatal(err)
	}
	got, err := ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	b, err := os.ReadFile(name)
	if err != nil || bytes.Count(b, []byte("\n")) != len(want.Entries)+1 {
		t.Errorf("the file has %d lines, want one for each entry and the tables (%v)", bytes.Count(b, []byte("\n")), err)
	}
	cut := b[:bytes.LastIndexByte(bytes.TrimSpace(b), '\n')]
	if _, err := Parse(bytes.NewReader(cut)); err == nil || !strings.Contains(err.Error(), "cut short") {
		t.Errorf("a file without its tables is read: %v", err)
	}
}

// Every column that Read reads exists and has the value that was written, in a schema of any name.
func TestRead(t *testing.T) {
	for _, schema := range []string{"getwork", "Bank 2"} {
		t.Run(schema, func(t *testing.T) {
			conn, err := pgx.Connect(t.Context(), schematest.URL(t))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close(t.Context())
			sql := fill
			if schema != "getwork" {
				sql += `alter schema getwork rename to "Bank 2";`
			}
			if _, err := conn.Exec(t.Context(), sql); err != nil {
				t.Fatal(err)
			}
			got, err := Read(t.Context(), conn, schema)
			if err != nil {
				t.Fatal(err)
			}
			if got.Now.IsZero() {
				t.Error("the database's clock was not read")
			}
			got.Now = time.Time{}
			if diff := cmp.Diff(filled(), got, cmp.Comparer(time.Time.Equal)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

const fill = `
insert into getwork.task (id) overriding system value values (1), (2);
insert into getwork.task_version (task_id, version, name, paused, query, slots, max_open, max_attempts, conflicts_with, groups, on_away, fresh_for, stale_for, created_by,
  created_at, done_by, once, require_code, outcomes, on_complete)
values (1, 1, 'one', true, 'select item from loan', 2, 3, 4, '{2}', '{desk}', 'to', '1 minute', '1 hour', 'mary',
    '2026-07-01 09:00+00', null, true, true, '[{"code": "done"}, {"code": "back"}]', '{"task_id": 2, "share": 0.5}'),
  (2, 1, 'two', false, null, 1, null, null, '{}', '{}', null, '0', '0', 'mary', '2026-07-01 09:00+00', 3, null, null, null, null);
insert into getwork.task_state (task_id, name, version, paused, deleted_at, needs)
values (1, 'one', 1, true, null, null), (2, 'two', 1, false, now(), '[{"needs": []}, {"needs": ["french", "german"]}]');
insert into getwork.work_requested (id, task_id, user_name, instance, wanted, requested, assigned, state, reason, error, created_at, linger_until,
  completed_at, round_id, run_id, ranked_at, stale, credential, targets, groups)
overriding system value
values (5, 1, 'ann', 'i', 2, 1, 1, 'partial', 'rules', 'e', '2026-07-01 09:00+00', '2026-07-01 10:00+00', '2026-07-01 09:01+00', 6, 7, '2026-07-01 09:00+00', true, 's:x', '{1}', '{desk}');
insert into getwork.principal (name, name_key, iss, sub, kind) values ('ann', 'ann', 'idp', '1', 'person');
insert into getwork.session (id, public_id, principal, created_at, ends_at, ended_at, ended_by)
select decode(repeat('0f', 32), 'hex'), 'x', id, '2026-07-01 09:00+00', '2026-07-01 19:00+00', '2026-07-01 09:01+00', 'boss' from getwork.principal;
insert into getwork.token (id, hash, kind, principal, label, role, scopes, made_by, created_at, expires_at)
select 'y', decode(repeat('0f', 32), 'hex'), 'personal', id, 'a', 'worker', '{}', id, '2026-07-01 09:01+00', '2026-07-01 19:00+00' from getwork.principal;
insert into getwork.audit (n, at, node, act, object, outcome, detail, prev, hash)
values (1, '2026-07-01 09:00+00', 'n', 'user.block', 'ann', 'done', '{}', decode(repeat('00', 32), 'hex'), decode(repeat('00', 32), 'hex')),
  (2, '2026-07-01 09:01+00', 'n', 'session.change', 'x', 'done', '{"groups": ["desk"]}', decode(repeat('00', 32), 'hex'), decode(repeat('00', 32), 'hex')),
  (3, '2026-07-01 09:01+00', 'n', 'log-in', 'ann', 'done', '{}', decode(repeat('00', 32), 'hex'), decode(repeat('00', 32), 'hex'));
insert into getwork.run (id, task_id, version, node, state, started_at, finished_at, seen_until) overriding system value
values (7, 1, 1, 'n', 'lost', '2026-07-01 09:00+00', '2026-07-01 09:01+00', '2026-07-01 09:00+00');
insert into getwork.work (id, task_id, item, slot, exclusive, user_name, instance, request_id, run_id, rank, attempt, assigned_at, lease, lease_expires_at, state,
  closed_at, closed_by, closed_xid, after, to_others, available_at, note,
  code, result, later_until, needs, from_work)
overriding system value
values (8, 1, 'k', 1, 'g', 'ann', 'i', 5, 7, 9, 2, '2026-07-01 09:00+00', '1h', '2026-07-01 10:00+00', 'returned',
  '2026-07-01 09:01+00', 'mary', '1', '72h', true, '2026-07-01 09:02+00', 'note', 'back', '{"pages":3}', '2026-07-01 09:01+00', '{french}', 4);
insert into getwork.work (id, task_id, item, user_name, state, exhausted, closed_at, closed_xid, redriven_by, available_at, assigned_at) overriding system value
values (9, 1, 'l', 'ann', 'never', true, '2026-07-01 09:01+00', '1', 'boss', '2026-07-01 09:02+00', '2026-07-01 09:00+00');
insert into getwork.item (id, task_id, item, priority, slots, pushed_at, pushed_by, due_at, done_at,
  done_by, completed_by, from_work, class)
values (10, 2, 'k', 3, 2, '2026-07-01 09:00+00', 'bot', 'infinity', null, 2, '{ann}', 8, 2),
  (11, 2, 'l', 0, null, '2026-07-01 09:00+00', 'bot', '2026-07-01 09:02+00', '2026-07-01 09:01+00', null, null, null, 1);
insert into getwork.limits (version, created_by, everybody, people) values (1, 'boss', 3, '{"ann": 4, "bob": null}'), (2, 'boss', null, null);
insert into getwork.absence (id, user_name, from_at, until_at, created_by, ended_at, ended_by) overriding system value
values (15, 'ann', '2026-07-01 09:00+00', '2026-07-01 10:00+00', 'boss', '2026-07-01 09:01+00', 'ann');
insert into getwork.hook (id, task_id, url, events, secret, created_by) overriding system value values (12, 1, 'https://receiver.example', '{work.closed,run.failed}', 'x', 'boss');
insert into getwork.hook_event (id, message, hook_id, task_id, item, type, body, attempts, created_at, next_at) overriding system value
values (13, '01234567-89ab-cdef-0123-456789abcdef', 12, 1, 'k', 'work.closed', '{"data": {"work": "8", "state": "returned"}}', 2, '2026-07-01 09:01+00', '2026-07-01 09:02+00'),
  (14, '01234567-89ab-cdef-0123-456789abcdee', 12, 1, '', 'run.failed', '{"data": {"run": "7"}}', 0, '2026-07-01 09:01+00', '2026-07-01 09:02+00');
`

// filled returns the tables that fill leaves.
func filled() Tables {
	at := func(minute int) *time.Time {
		return pointer(time.Date(2026, 7, 1, 9, minute, 0, 0, time.UTC))
	}
	return Tables{
		Tasks: []TaskRow{{1, "one", false, 1, true}, {2, "two", true, 1, false}},
		Versions: []VersionRow{{1, 1, "one", true, pointer("select item from loan"), 2, pointer(3), pointer(4), []int64{2}, []string{"desk"}, pointer("to"), time.Minute, time.Hour,
			*at(0), nil, true, true, []string{"done", "back"}, pointer(int64(2)), pointer(0.5)},
			{2, 1, "two", false, nil, 1, nil, nil, []int64{}, []string{}, nil, 0, 0, *at(0), pointer(3), false, false, []string{}, nil, nil}},
		Requests: []RequestRow{{5, 1, "ann", "i", 2, 1, 1, "partial", pointer("rules"), pointer("e"), *at(0), at(60), at(1), pointer(int64(6)), pointer(int64(7)), at(0), true, pointer("s:x"), true, []string{"desk"}}},
		Runs:     []RunRow{{7, 1, "n", "lost", *at(0), at(1), at(0)}},
		Work: []WorkRow{
			{ID: 8, Task: 1, Item: "k", Slot: 1, Exclusive: pointer("g"), User: "ann", Instance: "i", Request: pointer(int64(5)), Run: pointer(int64(7)),
				Rank: pointer(int64(9)), Attempt: 2, AssignedAt: *at(0), Lease: pointer(time.Hour), LeaseExpiresAt: at(60), State: "returned", ClosedAt: at(1), ClosedBy: pointer("mary"),
				After: pointer(72 * time.Hour), ToOthers: true, AvailableAt: at(2), Note: pointer("note"), Code: pointer("back"), Result: pointer(`{"pages":3}`), LaterUntil: at(1),
				Needs: []string{"french"}, From: pointer(int64(4))},
			{ID: 9, Task: 1, Item: "l", Slot: 1, User: "ann", Attempt: 1, AssignedAt: *at(0), State: "never", Exhausted: true, ClosedAt: at(1),
				RedrivenBy: pointer("boss"), AvailableAt: at(2)},
		},
		Items: []ItemRow{
			{ID: 10, Task: 2, Item: "k", Priority: 3, Slots: pointer(2), PushedAt: *at(0), PushedBy: "bot", Parked: true, DoneBy: pointer(2),
				CompletedBy: []string{"ann"}, From: pointer(int64(8)), Needs: []string{"french", "german"}},
			{ID: 11, Task: 2, Item: "l", PushedAt: *at(0), PushedBy: "bot", DueAt: at(2), DoneAt: at(1), Needs: []string{}},
		},
		Limits:   []LimitsRow{{pointer(3), map[string]*int{"ann": pointer(4), "bob": nil}}, {}},
		Absences: []AbsenceRow{{15, "ann", *at(0), at(60), at(1)}},
		Hooks:    []HookRow{{12, pointer(int64(1)), []string{"work.closed", "run.failed"}}},
		HookEvents: []HookEventRow{
			{13, "msg_0123456789abcdef0123456789abcdef", 12, 1, "k", "work.closed", 8, "returned", "waiting", 2, *at(1), *at(2)},
			{14, "msg_0123456789abcdef0123456789abcdee", 12, 1, "", "run.failed", 7, "", "waiting", 0, *at(1), *at(2)},
		},
		Credentials: []CredentialRow{
			{Name: "s:x", Secret: "s:" + strings.Repeat("0f", 32), User: "ann", CreatedAt: *at(0), ExpiresAt: *at(600), EndedAt: at(1), EndedBy: pointer("boss")},
			{Name: "t:y", Secret: "t:y", User: "ann", CreatedAt: *at(1), ExpiresAt: *at(600)},
		},
		Acts: []ActRow{{At: *at(0), Act: "user.block", Object: "ann"}, {At: *at(1), Act: "session.change", Object: "x", Groups: pointer(`["desk"]`)}},
	}
}

func pointer[T any](v T) *T { return &v }
