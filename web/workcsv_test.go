package web

import (
	"encoding/csv"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"getwork/assign"
	"getwork/schema/schematest"
)

// Work is found by a value in its details, whatever the case and the detail's name: within one task, and of 31 days.
func TestWorkSearch(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	n := start(t, stationOptions{})
	n.newTask(t, "verify", `select i as item, case i when 2 then 'Ada Lovell' else 'Bruno' end as applicant, i * 100 as amount, null as nothing from generate_series(1, 4) i`, "")
	n.newTask(t, "answer", `select i as item, 'ada' as by from generate_series(1, 4) i`, "")
	n.take(t, "verify", "oliver", 4)
	n.take(t, "answer", "oliver", 1)
	found := func(query string) string {
		t.Helper()
		var items []string
		for _, w := range read[struct{ Work []assign.Work }](n.call(t, "GET", "/api/v1/work?"+query, manager(), "").want(200)).Work {
			items = append(items, w.Item)
		}
		return strings.Join(items, " ")
	}
	for query, want := range map[string]string{
		"task=verify&value=ADA":                            "2",
		"task=verify&value=300":                            "3",
		"task=verify&value=bruno&limit=2":                  "4 3",
		"task=verify&value=bruno&state=held&user=oliver":   "4 3 1",
		"task=verify&value=bruno&item=1&user=oliver":       "1",
		"task=verify&value=bruno&state=completed":          "",
		"task=verify&value=applicant":                      "", // a name is no value
		"task=verify&value=" + url.QueryEscape(`%' or '1`): "",
	} {
		if got := found(query); got != want {
			t.Errorf("%s finds %q, want %q", query, got, want)
		}
	}
	n.exec(t, `update getwork.work set assigned_at = assigned_at - interval '32 days' where item = '2'`)
	if got := found("task=verify&value=ada"); got != "" {
		t.Errorf("of 32 days ago: %q", got)
	}
	n.call(t, "GET", "/api/v1/work?value=ada", manager(), "").refused(400, "invalid", "task")
	n.call(t, "GET", "/api/v1/work?task=verify&value="+strings.Repeat("x", 1001), manager(), "").refused(400, "invalid", "value")
	n.call(t, "GET", "/api/v1/work?task=verify&value=%00", manager(), "").refused(400, "invalid", "value")
	n.call(t, "GET", "/api/v1/work?task=verify&format=xls", manager(), "").refused(400, "invalid", "format")
}

// A file for a spreadsheet has no formulas that strangers wrote, nor others' notes for an observer.
func TestWorkAsCSV(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	n := start(t, stationOptions{})
	n.newTask(t, "verify", `select item, 'a, "b"' as text from unnest(array['=1+1', '@x', '＝1', 'plain']) item`, "")
	for _, w := range n.take(t, "verify", "oliver", 4) {
		n.call(t, "POST", "/api/v1/work/"+strconv.FormatInt(w.ID, 10)+"/disposition", as("oliver"), `{"outcome":"complete","note":"-2 days\r1\n2\r\n3"}`).want(200)
	}
	rows := func(h headers, query string) (items, notes []string) {
		t.Helper()
		r := n.call(t, "GET", "/api/v1/work?format=csv&task=verify"+query, h, "").want(200).
			wantHeader("Content-Type", "text/csv; charset=utf-8").wantHeader("Content-Disposition", `attachment; filename="work.csv"`)
		lines, err := csv.NewReader(strings.NewReader(r.body)).ReadAll()
		if err != nil || strings.Join(lines[0], ",") != "id,task,item,user,instance,state,assigned_at,closed_at,available_at,attempt,error,note,details" {
			t.Fatalf("%v %q", err, lines)
		}
		for _, l := range lines[1:] {
			items, notes = append(items, l[2]), append(notes, l[11])
			if l[12] != `{"text":"a, \"b\""}` || l[5] != "completed" {
				t.Errorf("a row is %q", l)
			}
		}
		return items, notes
	}
	items, notes := rows(manager(), "")
	if diff := cmp.Diff([]string{"plain", "'＝1", "'@x", "'=1+1"}, items); diff != "" {
		t.Error(diff)
	}
	if notes[0] != "'-2 days\r1\n2\n3" { // Go's reader takes \r\n for \n
		t.Errorf("a note is %q", notes[0])
	}
	if _, notes := rows(as("olga", "X-Getwork-Role", "observer"), ""); strings.Join(notes, "") != "" {
		t.Errorf("an observer reads %q", notes)
	}
	r := n.call(t, "GET", "/api/v1/work?format=csv&task=verify&limit=2", manager(), "").want(200)
	next, _, found := strings.Cut(strings.TrimPrefix(r.header.Get("Link"), "<"), `>; rel="next"`)
	if !found {
		t.Fatalf("the rest: %q", r.header.Get("Link"))
	}
	if more := n.call(t, "GET", next, manager(), "").want(200); !strings.Contains(more.body, "'=1+1") || strings.Contains(more.body, "plain") {
		t.Errorf("the rest is %s", more.body)
	} else {
		more.wantHeader("Link", "") // full, and the last
	}
}

// A manager who writes a query sees what it may read: no getwork table, whatever the schema is called.
func TestSchema(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	n := start(t, stationOptions{})
	n.exec(t, `create table loan (id bigint, "Due on" date); create schema books; create view books."Open" as select id from loan`)
	var got []string
	schema := read[assign.Schema](n.call(t, "GET", "/api/v1/schema", manager(), "").want(200))
	for _, table := range schema.Tables {
		for _, c := range table.Columns {
			got = append(got, table.Name+"."+c.Name+" "+c.Type)
		}
	}
	want := []string{`loan.id bigint`, `loan."Due on" date`, `books."Open".id bigint`}
	if diff := cmp.Diff(want, got); diff != "" || schema.Cut {
		t.Error(diff)
	}
	n.call(t, "GET", "/api/v1/schema", as("olga", "X-Getwork-Role", "observer"), "").refused(403, "forbidden")
}
