package engine

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"getwork/assign"
	"getwork/assign/pg"
	"getwork/assign/ranking"
	"getwork/assign/records"
	"getwork/schema/schematest"
)

// These statements insert work in each state; $1 is the task. How it came to that is not shown here.
const (
	heldRow   = `insert into getwork.work (task_id, item, user_name, slot, exclusive, lease, lease_expires_at) values ($1, $2, $3, $4, $5, '1 hour', clock_timestamp() + '1 hour')`
	closedRow = `insert into getwork.work (task_id, item, user_name, state, closed_at, closed_xid) values ($1, $2, $3, $4, clock_timestamp(), pg_current_xact_id())`
)

func found(t *testing.T, n *node, f assign.WorkFilter) string {
	t.Helper()
	if f.Limit == 0 {
		f.Limit = 100
	}
	works, err := n.WorkHistory(t.Context(), f)
	if err != nil {
		t.Fatalf("%+v: %v", f, err)
	}
	var b strings.Builder
	for _, w := range works {
		fmt.Fprintf(&b, "%d ", w.ID)
	}
	return strings.TrimSpace(b.String())
}

// Work is found by task, user, item and state, in every combination, newest first and page by page. Work of a deleted task
// has the name that the task had, but is not found by it.
func TestWorkHistory(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	db := pool(t, url)
	old := newTask(t, n, "task", `select 1 as item`, nil).ID
	execute(t, db, closedRow, old, "a", "ann", "completed")
	if err := n.DeleteTask(t.Context(), "task", 0); err != nil {
		t.Fatal(err)
	}
	id := newTask(t, n, "task", `select 1 as item`, nil).ID
	other := newTask(t, n, "other", `select 1 as item`, nil).ID
	execute(t, db, closedRow, id, "a", "ann", "completed") // 2
	execute(t, db, closedRow, id, "a", "bob", "expired")
	execute(t, db, closedRow, id, "b", "ann", "expired") // 4
	execute(t, db, closedRow, other, "a", "ann", "completed")
	execute(t, db, heldRow, other, "b", "bob", 1, nil) // 6
	execute(t, db, heldRow, id, "a", "ann", 1, nil)
	for _, c := range []struct {
		f    assign.WorkFilter
		want string
	}{
		{assign.WorkFilter{}, "7 6 5 4 3 2 1"},
		{assign.WorkFilter{Task: "task"}, "7 4 3 2"},
		{assign.WorkFilter{User: "ann"}, "7 5 4 2 1"},
		{assign.WorkFilter{Item: "a"}, "7 5 3 2 1"},
		{assign.WorkFilter{State: "completed"}, "5 2 1"},
		{assign.WorkFilter{State: "held"}, "7 6"},
		{assign.WorkFilter{State: "never"}, ""},
		{assign.WorkFilter{Task: "task", User: "ann"}, "7 4 2"},
		{assign.WorkFilter{Task: "task", Item: "a"}, "7 3 2"},
		{assign.WorkFilter{Task: "other", State: "held"}, "6"},
		{assign.WorkFilter{User: "ann", Item: "a"}, "7 5 2 1"},
		{assign.WorkFilter{User: "ann", State: "completed"}, "5 2 1"},
		{assign.WorkFilter{Item: "a", State: "completed"}, "5 2 1"},
		{assign.WorkFilter{Task: "task", User: "ann", Item: "a", State: "completed"}, "2"},
		{assign.WorkFilter{User: "nobody"}, ""},
		{assign.WorkFilter{Item: "' or true --"}, ""},
		{assign.WorkFilter{Limit: 3}, "7 6 5"},
		{assign.WorkFilter{Limit: 3, Before: 5}, "4 3 2"},
		{assign.WorkFilter{Limit: 2, Before: 7, Task: "task"}, "4 3"},
		{assign.WorkFilter{Limit: 2, Before: 5, User: "ann"}, "4 2"},
		{assign.WorkFilter{Limit: 2, Before: 5, Item: "a"}, "3 2"},
		{assign.WorkFilter{Limit: 2, Before: 7, Item: "a", Task: "task"}, "3 2"},
		{assign.WorkFilter{Before: 1}, ""},
	} {
		if got := found(t, n, c.f); got != c.want {
			t.Errorf("%+v: got %q, want %q", c.f, got, c.want)
		}
	}
	for _, f := range []assign.WorkFilter{{State: "lost"}, {State: "held' or 'a' = 'a"}, {User: "a\x00b"}, {Item: "\xff"}, {Item: strings.Repeat("x", 201)}} {
		_, err := n.WorkHistory(t.Context(), f)
		wantKind(t, err, assign.Invalid)
	}
	for _, name := range []string{"nothing", "a\x00b", "'"} {
		_, err := n.WorkHistory(t.Context(), assign.WorkFilter{Task: name})
		wantKind(t, err, assign.NotFound)
	}
}

// Among a million rows, those of a rare task, user or item are found by their index, even by a generic plan, and by
// statistics that say nothing about them. A page of a frequent one reads no more than the page.
func TestWorkHistoryByIndex(t *testing.T) {
	schematest.Thorough(t)
	t.Parallel()
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	db := pool(t, url)
	common := newTask(t, n, "common", `select 1 as item`, nil).ID
	rare := newTask(t, n, "rare", `select 1 as item`, nil).ID
	// The rare rows are the oldest: walking back from the newest row meets them last.
	execute(t, db, closedRow, rare, "rare", "rare", "completed")
	execute(t, db, `insert into getwork.work (task_id, item, user_name, state, closed_at, closed_xid)
		select $1, 'item ' || i % 300000, 'user ' || i % 7, 'completed', clock_timestamp(), pg_current_xact_id() from generate_series(1, 1000000) i`, common)
	const held = 100
	execute(t, db, `insert into getwork.work (task_id, item, user_name) select $1, 'held ' || i, 'user 3' from generate_series(1, $2::integer) i`, common, held)
	for _, statistics := range []string{"none", "taken"} {
		if statistics == "taken" {
			execute(t, db, `analyze getwork.work`)
		}
		hotStatementsByIndex(t, n, db, common, "statistics "+statistics)
		for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
			for _, c := range []struct {
				f     assign.WorkFilter
				task  int64
				index string
			}{
				{assign.WorkFilter{Task: "rare"}, rare, "held work_past_task"},
				{assign.WorkFilter{Task: "common"}, common, "held work_past_task"},
				{assign.WorkFilter{Task: "common", State: "held"}, common, "held"},
				{assign.WorkFilter{Task: "common", State: "completed"}, common, "work_past_task"},
				{assign.WorkFilter{User: "rare"}, 0, "held work_past_user"},
				{assign.WorkFilter{User: "user 3"}, 0, "held work_past_user"},
				{assign.WorkFilter{User: "user 3", State: "held"}, 0, "held"},
				{assign.WorkFilter{Item: "rare"}, 0, "held work_past_item"},
				{assign.WorkFilter{Item: "item 5"}, 0, "held work_past_item"},
				{assign.WorkFilter{Item: "item 5", Task: "common"}, common, "held work_past_item"},
				{assign.WorkFilter{Item: "item 5", User: "user 3"}, 0, "held work_past_item"},
				{assign.WorkFilter{Item: "item 5", State: "completed"}, 0, "work_completed"},
				{assign.WorkFilter{}, 0, "work_pkey"},
			} {
				c.f.Limit = 50
				index, rows := planned(t, db, mode, c.task, c.f)
				if index != c.index || rows > 60+held {
					t.Errorf("statistics %s, %s, %+v: %d rows read by %q, want %s", statistics, mode, c.f, rows, index, c.index)
				}
			}
		}
	}
	for index, f := range map[string]assign.WorkFilter{"held work_past_user": {User: "rare", Task: "common", Limit: 50}, "held work_past_task": {User: "user 3", Task: "rare", Limit: 50}} {
		task := map[string]int64{"common": common, "rare": rare}[f.Task]
		if by, rows := planned(t, db, "force_custom_plan", task, f); by != index || rows > 60+held {
			t.Errorf("%+v: %d rows read by %q, want %s", f, rows, by, index)
		}
	}
	began := time.Now()
	if got := found(t, n, assign.WorkFilter{Task: "rare"}); got != "1" {
		t.Errorf("found %q", got)
	}
	t.Log("of a rare task in", time.Since(began))
}

// planned returns the indexes by which a page is read, and how many of their rows that touches. The two indexes of held work are
// "held": it is small, so that the planner takes either, as chance has it in its statistics.
func planned(t *testing.T, db *pgxpool.Pool, mode string, task int64, f assign.WorkFilter) (index string, rows int) {
	t.Helper()
	statement, args := records.History(task, f)
	var plan []byte
	err := pgx.BeginTxFunc(t.Context(), db, pg.ReadOnly, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), "set local plan_cache_mode = "+mode); err != nil {
			return err
		}
		return tx.QueryRow(t.Context(), "explain (analyze, format json) "+statement, args...).Scan(&plan)
	})
	if err != nil {
		t.Fatalf("%+v: %v", f, err)
	}
	type node struct {
		Index   string  `json:"Index Name"`
		Rows    float64 `json:"Actual Rows"`
		Loops   float64 `json:"Actual Loops"`
		Removed float64 `json:"Rows Removed by Filter"`
		Plans   []json.RawMessage
	}
	var used []string
	var walk func(raw json.RawMessage)
	walk = func(raw json.RawMessage) {
		var p node
		if err := json.Unmarshal(raw, &p); err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(p.Index, "work_") {
			if p.Index == "work_holder" || p.Index == "work_held_slot" {
				p.Index = "held"
			}
			used = append(used, p.Index)
			rows += int((p.Rows + p.Removed) * p.Loops)
		}
		for _, child := range p.Plans {
			walk(child)
		}
	}
	var parts []struct{ Plan json.RawMessage }
	if err := json.Unmarshal(plan, &parts); err != nil {
		t.Fatal(err)
	}
	walk(parts[0].Plan)
	slices.Sort(used)
	return strings.Join(used, " "), rows
}

// hotStatementsByIndex checks that no statement of a click, a holder or a sweep reads all work, or a whole index of the past: not
// by a generic plan either, which is what a node's connections have after a few calls.
func hotStatementsByIndex(t *testing.T, n *node, db *pgxpool.Pool, task int64, when string) {
	t.Helper()
	const blocked = `select c.item from unnest($2::text[]) c (item) where exists (select from getwork.blocked b where b.task_id = $1 and b.item = c.item)`
	limit, _ := atMost(10)
	for name, c := range map[string]struct {
		sql  string
		args []any
	}{
		"selectNamed":        {selectNamed, []any{task, []int64{}, "item 5", 1, nil, nil, nil, false, 0}},
		"selectNamed, eyes":  {selectNamed, []any{task, []int64{task + 1}, "item 5", 1, nil, nil, nil, false, 0}},
		"selectInbox":        {selectInboxAlone + limit, []any{task, []int64{}, 1, 1}},
		"selectInbox, eyes":  {selectInbox + limit, []any{task, []int64{task + 1}, 1, 1}},
		"insertItems":        {insertItems, []any{task, "ann", []string{"a"}, []int32{1}, []*time.Time{nil}, []*int32{nil}, []string{""}, []string{"{}"}, 1, []*time.Time{nil}, []*int{nil}, 1, []*string(nil), []*time.Time(nil)}},
		"expireWork":         {expireWork, []any{500}},
		"warnHolders":        {warnHolders, []any{500}},
		"nextLease":          {nextLease, nil},
		"extendWork":         {extendWork, []any{1, "ann", ""}},
		"closeWork":          {closeWork, []any{1, "completed", "ann", nil, false, nil, nil, nil, nil, nil}},
		"lockWork":           {lockWork, []any{1, "ann"}},
		"countHeld":          {countHeld, []any{task, []string{"ann"}, []*string{nil}, []bool{false}}},
		"insertRequests":     {insertRequests, []any{task, []string{"ann"}, []string{""}, []int32{1}, []int64{0}, []*int64{nil}, []*string{nil}, []*string{nil}, []*time.Time{nil}, []*string(nil), []*string(nil), []*string(nil), []bool(nil)}},
		"selectKeys":         {selectKeys, []any{[]int64{task}, []string{"ann"}, []string{"k"}}},
		"selectHeld":         {selectHeld, []any{task, "item 5", "ann", ""}},
		"selectGiven":        {selectGiven, []any{task, "item 5", "ann", ""}},
		"BlockedItems":       {ranking.BlockedItems, []any{task, []string{"item 5"}, time.Now(), []*string{nil}, []int{1}}},
		"blocked":            {blocked, []any{task, []string{"item 5", "item 6"}}},
		"blocked as a whole": {`select item from getwork.blocked where task_id = $1`, []any{task}},
	} {
		for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
			err := pgx.BeginFunc(t.Context(), db, func(tx pgx.Tx) error {
				if _, err := tx.Exec(t.Context(), "set local plan_cache_mode = "+mode); err != nil {
					return err
				}
				lines, err := tx.Query(t.Context(), "explain "+n.SQL(c.sql), c.args...)
				if err != nil {
					return err
				}
				plan, err := pgx.CollectRows(lines, pgx.RowTo[string])
				for i, line := range plan {
					bare := strings.Contains(line, " using work_past_") || strings.Contains(line, " using work_pkey")
					if bare && (i+1 == len(plan) || !strings.Contains(plan[i+1], "Index Cond")) || strings.Contains(line, "Seq Scan on work ") {
						t.Errorf("%s, %s, %s reads all work:\n%s", name, when, mode, strings.Join(plan, "\n"))
						break
					}
				}
				return err
			})
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}
