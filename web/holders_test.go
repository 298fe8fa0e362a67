package web

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"getwork/assign"
	"getwork/schema/schematest"
)

// holdersPage is a page of holders as a program reads it.
type holdersPage struct {
	Holders []assign.Held     `json:"holders"`
	Total   *assign.HeldTotal `json:"total"`
	Next    string            `json:"next_cursor"`
}

func (n *station) holders(t *testing.T, query string) holdersPage {
	t.Helper()
	return read[holdersPage](n.call(t, "GET", "/api/v1/holders"+query, observer(), "").want(200))
}

// shown has a line for each holder, without times.
func (p holdersPage) shown() string {
	var all []string
	for _, h := range p.Holders {
		line := fmt.Sprintf("%s:%s:%d", h.User, h.Task, h.Held)
		if h.Instances > 0 {
			line += fmt.Sprintf("/%d", h.Instances)
		}
		all = append(all, line)
	}
	return strings.Join(all, " ")
}

// A row for each user and task, the user's instances together, with the oldest item's time and the first lease's end.
func TestHolders(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	n := start(t, stationOptions{})
	for _, task := range []string{"verify", "answer", "idle"} {
		n.newTask(t, task, five, "")
	}
	if r := n.call(t, "GET", "/api/v1/holders", observer(), "").want(200); r.body != `{"holders":[],"total":{"users":0,"held":0}}`+"\n" {
		t.Errorf("nobody holds anything: %s", r.body)
	}
	first := n.take(t, "verify", "oliver", 2)
	n.take(t, "verify", "tracy", 1)
	n.take(t, "answer", "oliver", 2)
	bot := func(instance string) headers {
		return asAgent("bot", "X-Getwork-Instance", instance, "Prefer", "wait=60")
	}
	n.call(t, "POST", "/api/v1/tasks/answer/requests", bot("one"), `{"count":2,"lease":"1h"}`).want(201)
	n.call(t, "POST", "/api/v1/tasks/answer/requests", bot("two"), `{"count":1,"lease":"10m"}`).want(201)
	n.call(t, "POST", "/api/v1/tasks/verify/requests", bot("one"), `{"count":1}`).want(201)

	all := n.holders(t, "")
	if got := all.shown(); got != "oliver:verify:2 tracy:verify:1 oliver:answer:2 bot:answer:3/2 bot:verify:1/1" {
		t.Errorf("all: %s", got)
	}
	if diff := cmp.Diff(&assign.HeldTotal{Users: 3, Held: 9}, all.Total); diff != "" || all.Next != "" {
		t.Errorf("together they hold %s, next %q", diff, all.Next)
	}
	if at := all.Holders[0].OldestAt; !at.Equal(first[0].AssignedAt) || all.Holders[0].LeaseExpiresAt != nil {
		t.Errorf("%v, want since %v without a lease", all.Holders[0], first[0].AssignedAt)
	}
	if at := all.Holders[3].LeaseExpiresAt; at == nil || time.Until(*at) > 10*time.Minute || time.Until(*at) < 5*time.Minute {
		t.Errorf("the first lease is over at %v", at)
	}
	for query, want := range map[string]string{
		"?task=verify":          "oliver:verify:2 tracy:verify:1 bot:verify:1/1, 3 hold 4",
		"?task=verify,idle":     "oliver:verify:2 tracy:verify:1 bot:verify:1/1, 3 hold 4",
		"?task=answer,verify":   all.shown() + ", 3 hold 9",
		"?user=oliver":          "oliver:verify:2 oliver:answer:2, 1 hold 4",
		"?user=bot&task=answer": "bot:answer:3/2, 1 hold 3",
		"?user=nobody":          ", 0 hold 0",
		"?task=idle":            ", 0 hold 0",
	} {
		got := n.holders(t, query)
		if text := fmt.Sprintf("%s, %d hold %d", got.shown(), got.Total.Users, got.Total.Held); text != want {
			t.Errorf("%s: %s, want %s", query, text, want)
		}
	}
	n.call(t, "POST", workPath(first[0], "disposition"), as("oliver"), `{"outcome":"complete"}`).want(200)
	if h := n.holders(t, "?user=oliver&task=verify").Holders[0]; h.Held != 1 || !h.OldestAt.Equal(first[1].AssignedAt) {
		t.Errorf("of the other task: %+v", h)
	}
	n.call(t, "POST", workPath(first[1], "disposition"), as("oliver"), `{"outcome":"complete"}`).want(200)
	if got := n.holders(t, "?task=verify").shown(); got != "tracy:verify:1 bot:verify:1/1" {
		t.Errorf("without oliver: %s", got)
	}
}

// Hundreds of holders come page by page, each once, also if many began at the same time; new holders come last.
func TestHoldersPaged(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	n := start(t, stationOptions{})
	n.newTask(t, "verify", five, `,"paused":true`)
	n.newTask(t, "answer", five, `,"paused":true`)
	const hold = `insert into getwork.work (task_id, item, user_name, assigned_at)
		select s.task_id, u || '-' || i, 'user ' || u, timestamptz '2026-03-01 12:00+00' + (u / 50 + i * 100) * interval '0.000001 seconds'
		from getwork.task_state s, generate_series($1::integer, $2) u, generate_series(1, 3) i where s.name = 'verify' or u % 5 = 0
		order by u * 7919 % 1009` // not in the order of the times
	n.exec(t, hold, 0, 449)
	want := n.holders(t, "?limit=1000")
	if len(want.Holders) != 540 || want.Next != "" || *want.Total != (assign.HeldTotal{Users: 450, Held: 1620}) {
		t.Fatalf("%d holders, next %q, %+v", len(want.Holders), want.Next, want.Total)
	}
	if !slices.IsSortedFunc(want.Holders, func(a, b assign.Held) int { return a.OldestAt.Compare(b.OldestAt) }) {
		t.Error("not in the order of their oldest")
	}
	for _, limit := range []int{1, 7, 50, 100, 200, 540} {
		var got holdersPage
		query, pages := fmt.Sprintf("?limit=%d", limit), 0
		for next := ""; pages == 0 || next != ""; pages++ {
			page := n.holders(t, query+"&cursor="+url.QueryEscape(next))
			if (page.Total != nil) != (pages == 0) || len(page.Holders) > limit {
				t.Fatalf("page %d has %d holders and the total %+v", pages, len(page.Holders), page.Total)
			}
			got.Holders, next = append(got.Holders, page.Holders...), page.Next
			if limit == 1 && pages == 20 {
				break
			}
		}
		if wanted := want.Holders[:min(len(got.Holders), len(want.Holders))]; !cmp.Equal(got.Holders, wanted) || limit > 1 && len(got.Holders) != 540 {
			t.Errorf("by %d: %d holders, not as in one page: %s", limit, len(got.Holders), cmp.Diff(wanted, got.Holders))
		}
	}
	if page := n.holders(t, ""); len(page.Holders) != pageSize || page.Next == "" {
		t.Errorf("a page has %d", len(page.Holders))
	}

	page := n.holders(t, "?limit=400")
	n.exec(t, `update getwork.work set state = 'completed', closed_at = now(), closed_xid = pg_current_xact_id()
		where id in (select min(id) from getwork.work where user_name = 'user 0' or user_name = 'user 449' group by user_name)`)
	n.exec(t, `insert into getwork.work (task_id, item, user_name) select task_id, 'new', 'newcomer' from getwork.task_state where name = 'answer'`)
	rest := n.holders(t, "?limit=400&cursor="+page.Next)
	users := map[string]bool{}
	for _, h := range append(page.Holders, rest.Holders...) {
		users[h.User] = true
	}
	if last := rest.Holders[len(rest.Holders)-1]; len(users) != 451 || last.User != "newcomer" {
		t.Errorf("%d users, the last of whom is %s", len(users), last.User)
	}
}

func TestHoldersRefused(t *testing.T) {
	t.Parallel()
	n := start(t, stationOptions{})
	n.newTask(t, "verify", five, "")
	for query, field := range map[string]string{"limit=0": "limit", "limit=1001": "limit", "cursor=x": "cursor", "cursor=1": "cursor", "cursor=-1-1": "cursor",
		"cursor=1-x": "cursor", "cursor=1-1-1": "cursor", "cursor=99999999999999999-1": "cursor", "user=%00": "user"} {
		n.call(t, "GET", "/api/v1/holders?"+query, observer(), "").refused(400, "invalid", field)
	}
	n.call(t, "GET", "/api/v1/holders?task=%zz", observer(), "").refused(400, "invalid")
	for _, task := range []string{"nothing", "verify,nothing", "verify,", "%00", "%ff", "VERIFY"} {
		n.call(t, "GET", "/api/v1/holders?task="+task, observer(), "").refused(404, "not-found")
	}
	for _, role := range []string{"worker", "agent"} {
		n.call(t, "GET", "/api/v1/holders", as("oliver", "X-Getwork-Role", role), "").refused(403, "forbidden")
	}
	n.holders(t, "?cursor=72000000000000000-9223372036854775807") // far in the future: nobody
}
