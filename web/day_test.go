package web

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"getwork/assign"
)

// A day has what its user completed and let go of, the newest first, and what is left under the tasks that are open to them.
func TestDay(t *testing.T) {
	t.Parallel()
	n := start(t, stationOptions{})
	n.newTask(t, "verify", "select i as item, 'loan ' || i as loan from generate_series(1, 5) i", `,"display":{"title":"{loan}, {none}"}`)
	n.newInbox(t, "photos", "")
	n.newInbox(t, "secret", `,"groups":["few"]`)
	day := func(h headers, query string) assign.Day {
		t.Helper()
		return read[assign.Day](n.call(t, "GET", "/api/v1/day"+query, h, "").want(200))
	}
	if diff := cmp.Diff(assign.Day{Ended: []assign.Ended{}, Tasks: 2}, day(as("ann"), "")); diff != "" {
		t.Errorf("before anything: %s", diff)
	}
	for _, task := range []string{"photos", "secret"} {
		n.call(t, "POST", "/api/v1/tasks/"+task+"/items", manager(), fmt.Sprintf(`[{"item":"a","deadline":%q},{"item":"b"}]`, time.Now().Add(-time.Hour).Format(time.RFC3339))).want(200)
	}
	took := n.take(t, "verify", "ann", 4)
	for i, body := range []string{`{"outcome":"complete"}`, `{"outcome":"return","after":"0s"}`, `{"outcome":"complete"}`} {
		n.call(t, "POST", workPath(took[i], "disposition"), as("ann"), body).want(200)
	}
	n.call(t, "POST", workPath(took[3], "reassign"), manager(), `{"user":"bob","force":true}`).want(200)
	n.exec(t, `update getwork.work set closed_at = closed_at - interval '30 hours' where id = $1`, took[0].ID)
	shown := func(d assign.Day) string {
		all := []string{fmt.Sprintf("done %d, left %d, late %d, tasks %d", d.Done, d.Left, d.Late, d.Tasks)}
		for _, e := range d.Ended {
			all = append(all, fmt.Sprintf("%s %s %s", e.Title, e.State, e.Task))
		}
		return strings.Join(all, "; ")
	}
	title := func(i int, state string) string { return fmt.Sprintf("; loan %s, %s verify", took[i].Item, state) }
	lately := title(3, "reassigned") + title(2, "completed") + title(1, "returned")
	since := func(ago time.Duration) string {
		return "?since=" + url.QueryEscape(time.Now().Add(-ago).Format(time.RFC3339Nano))
	}
	for _, one := range []struct{ name, got, want string }{
		{"a day", shown(day(as("ann"), "")), "done 1, left 7, late 1, tasks 2" + lately},
		{"47 hours", shown(day(as("ann"), since(47*time.Hour))), "done 2, left 7, late 1, tasks 2" + lately + title(0, "completed")},
		{"another's", shown(day(as("bob"), "")), "done 0, left 7, late 1, tasks 2"},
		{"a manager's", shown(day(manager(), "")), "done 0, left 9, late 2, tasks 3"},
		{"since now", shown(day(as("ann"), since(0))), "done 0, left 7, late 1, tasks 2"},
	} {
		if one.got != one.want {
			t.Errorf("%s: %s, want %s", one.name, one.got, one.want)
		}
	}
	n.exec(t, `update getwork.work set details = json_build_object('loan', repeat('x', 100) || md5(id::text), 'long', (select string_agg(md5(i::text), '') from generate_series(1, 1000) i)) where id = $1`, took[2].ID)
	if d := day(as("ann"), ""); d.Ended[1].Title != "" {
		t.Errorf("the title of long details is %q", d.Ended[1].Title)
	}
	for _, query := range []string{since(49 * time.Hour), since(-time.Hour), "?since=yesterday"} {
		n.call(t, "GET", "/api/v1/day"+query, as("ann"), "").refused(400, "invalid", "since")
	}
	n.call(t, "GET", "/api/v1/day", observer(), "").refused(403, "forbidden")
}

// A day counts its user's work alone, and lists the newest 200.
func TestDayOfMany(t *testing.T) {
	t.Parallel()
	n := start(t, stationOptions{})
	n.newTask(t, "verify", five, "")
	n.exec(t, `insert into getwork.work (task_id, item, user_name, state, closed_at, closed_xid)
		select s.task_id, i::text, case when i % 1000 = 0 then 'ann' else 'user ' || i % 7 end, 'completed', clock_timestamp(), pg_current_xact_id()
		from getwork.task_state s, generate_series(1, 20000) i`)
	d := read[assign.Day](n.call(t, "GET", "/api/v1/day", as("ann"), "").want(200))
	if d.Done != 20 || len(d.Ended) != 20 {
		t.Errorf("%d done, %d ended", d.Done, len(d.Ended))
	}
	if d := read[assign.Day](n.call(t, "GET", "/api/v1/day", as("user 3"), "").want(200)); d.Done < 2500 || len(d.Ended) != 200 {
		t.Errorf("%d done, %d ended", d.Done, len(d.Ended))
	}
}
