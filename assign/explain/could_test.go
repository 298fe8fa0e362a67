package explain_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"getwork/assign"
	"getwork/assign/enginetest"
	"getwork/schema/schematest"
)

// Whom an explanation calls able to have an item gets it by a claim in their name, and everybody else is refused it in the same words:
// for each rule, wherever the item is found.
func TestCouldAgreesWithClaims(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	url := schematest.URL(t)
	n := enginetest.Start(t, url, enginetest.Options{})
	db := enginetest.Pool(t, url)
	for _, user := range []string{"ann", "bob", "cyd", "dan", "eve", "otto"} { // otto only looks on
		groups := map[string][]string{"ann": {"vip"}, "bob": {"vip", "desk"}}[user]
		stream := n.Feed.Open(assign.Who{Holder: assign.Holder{User: user}}, func() {})
		t.Cleanup(stream.Close)
		if err := stream.Start(t.Context(), string(map[bool]assign.Role{true: assign.RoleObserver, false: assign.RoleWorker}[user == "otto"])); err != nil {
			t.Fatal(err)
		}
		enginetest.Execute(t, db, `insert into getwork.principal (name, name_key, iss, sub, kind, role, groups, seen_at)
			values ($1, $1, 'bank', $1, 'person', 'worker', $2, clock_timestamp())`, user, append([]string{}, groups...))
	}
	enginetest.NewTask(t, n, "before", `select 1 as item`, nil)
	hold := func(t *testing.T, task, item, user string) assign.Work {
		t.Helper()
		w, _, err := n.Claim(t.Context(), task, item, assign.Who{Holder: assign.Holder{User: user}, Anything: true})
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	// In each case item 1 is asked about.
	for _, c := range []struct {
		name   string
		set    func(*assign.Settings)
		happen func(t *testing.T, task string)
		may    string            // all of them, in the order of their names
		not    map[string]string // what some of the others are refused with
	}{
		{"nothing", nil, nil, "ann bob cyd dan eve", nil},
		{"four eyes", func(s *assign.Settings) { s.ConflictsWith = []string{"before"} }, func(t *testing.T, _ string) {
			n.Let(t, hold(t, "before", "1", "ann"), assign.Disposition{Outcome: "complete"})
		}, "bob cyd dan eve", map[string]string{"ann": "(four eyes)"}},
		{"returned to others", nil, func(t *testing.T, task string) {
			d := enginetest.GiveBack(0)
			d.To = new("others")
			n.Let(t, hold(t, task, "1", "bob"), d)
		}, "ann cyd dan eve", map[string]string{"bob": "returned item"}},
		{"at the limit", func(s *assign.Settings) { s.MaxOpen = new(1) }, func(t *testing.T, task string) {
			hold(t, task, "2", "cyd")
		}, "ann bob dan eve", map[string]string{"cyd": "as one user may (1)"}},
		{"groups", func(s *assign.Settings) { s.Groups = []string{"desk", "vip"} }, nil, "ann bob", map[string]string{"dan": "in none of them"}},
		{"holds it", func(s *assign.Settings) { s.Slots = 2 }, func(t *testing.T, task string) {
			hold(t, task, "1", "dan")
		}, "ann bob cyd eve", map[string]string{"dan": "dan holds item"}},
		{"held", nil, func(t *testing.T, task string) { hold(t, task, "1", "dan") }, "",
			map[string]string{"dan": "dan holds item", "ann": "somebody else holds"}},
		{"full", func(s *assign.Settings) { s.Slots = 2 }, func(t *testing.T, task string) {
			hold(t, task, "1", "dan")
			hold(t, task, "1", "eve")
		}, "", map[string]string{"dan": "dan holds item", "ann": "all 2 places"}},
		{"group held", nil, func(t *testing.T, task string) { hold(t, task, "3", "ann") }, "", map[string]string{"ann": `of the group "g"`, "bob": `of the group "g"`}},
		{"put off", nil, func(t *testing.T, task string) { n.Let(t, hold(t, task, "1", "ann"), enginetest.GiveBack(time.Hour)) }, "", map[string]string{"bob": "is put off"}},
		{"never", nil, func(t *testing.T, task string) {
			n.Let(t, hold(t, task, "1", "ann"), assign.Disposition{Outcome: "never"})
		}, "", map[string]string{"bob": "a manager can redrive it"}},
		{"closed since the run", nil, func(t *testing.T, task string) { n.Let(t, hold(t, task, "1", "ann"), enginetest.GiveBack(0)) }, "ann bob cyd dan eve", nil},
		{"paused", nil, func(t *testing.T, task string) {
			if _, err := n.SetPaused(t.Context(), task, true, 0, "boss"); err != nil {
				t.Fatal(err)
			}
		}, "", map[string]string{"bob": "is paused"}},
		{"blocked", nil, func(t *testing.T, _ string) {
			enginetest.Execute(t, db, `update getwork.principal set blocked_at = clock_timestamp() where name = 'eve'`)
		}, "ann bob cyd dan", map[string]string{"eve": "eve is blocked"}},
	} {
		for _, source := range []string{"inbox", "query", "shelf"} {
			t.Run(c.name+" "+source, func(t *testing.T) {
				task := strings.ReplaceAll(c.name, " ", "-") + "-" + source
				enginetest.Execute(t, db, `delete from getwork.work`)
				enginetest.Execute(t, db, `update getwork.principal set blocked_at = null`)
				enginetest.NewTask(t, n, task, map[string]string{"inbox": ""}[source], func(s *assign.Settings) {
					if source != "inbox" {
						s.Query = assign.Query("select i as item, case when i in (1, 3) and " + fmt.Sprint(c.name == "group held") + " then 'g' end as exclusive from generate_series(0, 4) i")
					}
					if source == "shelf" {
						s.FreshFor = assign.Duration(time.Hour)
					}
					if c.set != nil {
						c.set(s)
					}
				})
				if source == "inbox" {
					for i := range 4 {
						item := assign.NewItem{Item: fmt.Sprint(i + 1)}
						if c.name == "group held" && i%2 == 0 {
							item.Exclusive = new("g")
						}
						n.PushItems(t, task, item)
					}
				}
				if source == "shelf" { // its run leaves the rest
					r, err := n.GetWork(t.Context(), task, assign.Click{Holder: assign.Holder{User: "fay"}, Count: 1, Anything: true})
					if err != nil {
						t.Fatal(err)
					}
					n.EndedRequest(t, r.ID)
				}
				if c.happen != nil {
					c.happen(t, task)
				}
				x, err := n.Explain(t.Context(), task, "1")
				if err != nil {
					t.Fatal(err)
				}
				if x.Source != source && c.name != "held" {
					t.Errorf("found in the %s", x.Source)
				}
				var may []string
				told := map[string]assign.Recipient{}
				for _, r := range x.Could {
					if told[r.User] = r; r.May && r.User != "fay" {
						may = append(may, r.User)
					}
				}
				slices.Sort(may)
				if got := strings.Join(may, " "); got != c.may {
					t.Errorf("%s may have it, want %s: %+v", got, c.may, x.Could)
				}
				for user, because := range c.not {
					if r := told[user]; r.May || !strings.Contains(r.Because, because) {
						t.Errorf("%+v, want %q", r, because)
					}
				}
				for _, r := range x.Could {
					w, given, err := n.Give(t.Context(), task, "1", assign.Reassignment{User: r.User})
					var refusal *assign.Refusal
					switch errors.As(err, &refusal); {
					case r.May != given, r.May && r.Because != "", !r.May && r.Because == "":
						t.Errorf("%+v, and a claim is answered %+v, %t, %v", r, w, given, err)
					case refusal != nil && refusal.Detail != r.Because:
						t.Errorf("%s is refused it with %q, and it was said: %q", r.User, refusal.Detail, r.Because)
					case given: // as before
						enginetest.Execute(t, db, `delete from getwork.work where id = $1`, w.ID)
						enginetest.Execute(t, db, `update getwork.item set due_at = null where item = '1'`)
					case err == nil && !strings.Contains(r.Because, "holds item"):
						t.Errorf("%+v, and held it before", r)
					}
				}
			})
		}
	}
}

// What changes between the list and the click is refused: a claim in somebody's name that waits for the lock sees what its holder did.
func TestLimitReachedBesideAGift(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := enginetest.Start(t, url, enginetest.Options{})
	db := enginetest.Pool(t, url)
	id := enginetest.NewInbox(t, n, "inbox", func(s *assign.Settings) { s.MaxOpen = new(1) }).ID
	n.PushKeys(t, "inbox", "1", "2")
	n.Let(t, n.Take(t, "inbox", "ann"), assign.Disposition{Outcome: "complete"})
	x := explained(t, n, "inbox", "2")
	if len(x.Could) != 1 || !x.Could[0].May || x.Could[0].User != "ann" {
		t.Fatalf("could: %+v", x.Could)
	}
	tx, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(t.Context(), `select from getwork.task_state where task_id = $1 for no key update`, id); err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), enginetest.HeldRow, id, "3", "ann", 1, nil); err != nil {
		t.Fatal(err)
	}
	answer := make(chan error, 1)
	go func() {
		_, _, err := n.Give(context.Background(), "inbox", "2", assign.Reassignment{User: "ann"})
		answer <- err
	}()
	enginetest.Await(t, "the gift waits for the lock", func() bool {
		return enginetest.Query[bool](t, db, `select exists (select from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database())`)
	})
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	err = <-answer
	if enginetest.WantKind(t, err, assign.NotAvailable); !strings.Contains(err.Error(), "as one user may (1)") {
		t.Error(err)
	}
}
