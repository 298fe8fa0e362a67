package engine

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"getwork/assign"
	"getwork/assign/pg"
	"getwork/schema/schematest"
)

// In a database whose encoding is not UTF-8, people, keys and titles keep their names. Read in the database's encoding, two
// loans would become one, and text would be stored wrongly.
func TestDatabaseThatIsNotUTF8(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	for _, encoding := range []string{"LATIN1", "SQL_ASCII"} {
		t.Run(encoding, func(t *testing.T) {
			address := schematest.Encoded(t, encoding)
			db := utf8Pool(t, address)
			execute(t, db, `create table loan as select * from (values (0, repeat('é', 150), ''), (1, 'Zoë', 'ü'), (2, 'Zoé', 'ß')) l (id, name, note)`)
			n := startNode(t, address, nodeOptions{})
			task := newTask(t, n, "task", `select name as item, note from loan order by id`, func(s *assign.Settings) { s.Title = "Prüfen" })
			if got := query[string](t, db, `select title from getwork.task_version where task_id = $1`, task.ID); got != "Prüfen" {
				t.Errorf("the title is stored as %q", got)
			}
			r := n.endedRequest(t, n.click(t, "task", "Jörg", 2).ID)
			if got := fmt.Sprintf("%s %q", r.User, items(r)); got != `Jörg ["Zoë" "Zoé"]` {
				t.Fatalf("handed out: %s", got)
			}
			if got := compact(r.Work[0]); got != `{"note":"ü"}` {
				t.Errorf("details %s", got)
			}
			if got := query[int64](t, db, `select passed_over from getwork.run`); got != 1 {
				t.Errorf("%d passed over, want the one whose key has 300 bytes", got)
			}
			if w, claimed, err := n.Claim(t.Context(), "task", "Zoë", assign.Who{Holder: assign.Holder{User: "Jörg"}}); err != nil || claimed || w.Item != "Zoë" {
				t.Errorf("Jörg claims his own item: %q, %t, %v", w.Item, claimed, err)
			}
		})
	}
}

// A key may be short enough in UTF-8, and too long in the database's encoding, in which its tables count. It is passed over, too:
// otherwise each round that hands it out would fail.
func TestKeyThatIsLongerInTheDatabase(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	address := schematest.Encoded(t, "EUC_TW")
	db := utf8Pool(t, address)
	execute(t, db, `create table loan as select * from (values (0, repeat('乂', 60), null), (1, 'a', repeat('乂', 60)), (2, 'b', null)) l (id, name, team)`)
	if got := query[string](t, db, `select octet_length(name) || ' ' || octet_length(convert_to(name, 'UTF8')) from loan where id = 0`); got != "240 180" {
		t.Fatalf("the key has %s bytes; this test shows nothing", got)
	}
	for where, o := range map[string]nodeOptions{"here": {}, "elsewhere": {Queries: reader(t, address, "loan")}} {
		n := startNode(t, address, o)
		newTask(t, n, where, `select name as item, team as exclusive from loan order by id`, nil)
		if r := n.endedRequest(t, n.click(t, where, "Ann", 3).ID); fmt.Sprint(items(r)) != "[b]" {
			t.Errorf("%s: handed out: %q, %s", where, items(r), r.State)
		}
		_, _, err := n.Claim(t.Context(), where, strings.Repeat("乂", 60), assign.Who{Holder: assign.Holder{User: "Bob"}})
		wantKind(t, err, assign.NotFound)
		newTask(t, n, where+"-twice", `select name as item from loan order by id`, func(s *assign.Settings) { s.Slots = 2 })
		if r := n.endedRequest(t, n.click(t, where+"-twice", "Ann", 3).ID); fmt.Sprint(items(r)) != "[a b]" {
			t.Errorf("%s: handed out: %q, %s", where, items(r), r.State)
		}
	}
	if got := query[string](t, db, `select string_agg(passed_over + blocked || '', ' ' order by passed_over + blocked) from getwork.run`); got != "1 1 2 2" {
		t.Errorf("%s passed over or blocked, want 2 in each run of the first tasks, and 1 in the others", got)
	}
}

// What can't be converted to UTF-8 harms nobody while it stands in a row that is no item.
func TestNoTextInARowThatIsNoItem(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	address := schematest.Encoded(t, "SQL_ASCII")
	execute(t, utf8Pool(t, address), `create table loan as select * from (values (1, null, E'Zo\xe9'), (2, '2', 'ü')) l (id, name, note)`)
	n := startNode(t, address, nodeOptions{})
	newTask(t, n, "task", `select name as item, note from loan order by id`, nil)
	if r := n.endedRequest(t, n.click(t, "task", "Ann", 1).ID); fmt.Sprint(items(r)) != "[2]" {
		t.Errorf("handed out: %q, %s, %v", items(r), r.State, r.Error)
	}
}

// utf8Pool is a pool that speaks UTF-8, since its encoding is not what the test is about.
func utf8Pool(t *testing.T, address string) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(address)
	if err != nil {
		t.Fatal(err)
	}
	config.ConnConfig.RuntimeParams["client_encoding"] = "UTF8"
	p, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// A database in SQL_ASCII may hold bytes that are not text. A query that returns some fails, and says so; otherwise another
// key would be handed out.
func TestQueryGivesNoText(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	address := schematest.Encoded(t, "SQL_ASCII")
	execute(t, utf8Pool(t, address), `create table loan as select E'Zo\xe9' as name`)
	n := startNode(t, address, nodeOptions{})
	newTask(t, n, "task", `select name as item from loan`, nil)
	failsWith(t, n, "task", `invalid byte sequence for encoding "UTF8"`)
	newTask(t, n, "mended", `select convert_from(convert(convert_to(name, 'SQL_ASCII'), 'LATIN1', 'UTF8'), 'SQL_ASCII') as item from loan`, nil) // as docs/runbook.md advises
	if r := n.endedRequest(t, n.click(t, "mended", "Ann", 1).ID); fmt.Sprint(items(r)) != "[Zoé]" {
		t.Errorf("as it should be converted: %q", items(r))
	}
}

// Among people who click together, only those whose names the database can't store are refused, and read why.
func TestNamesThatTheDatabaseCannotHold(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	address := schematest.Encoded(t, "LATIN1")
	g := newGate(StepRecorded)
	n := startNode(t, address, nodeOptions{Steps: g.hold})
	newInbox(t, n, "task", nil)
	users := []string{"Ann", "木村", "Bob", "Cyd", "Łukasz"}
	errs := make([]error, len(users))
	click := func(user string) error {
		_, err := n.GetWork(t.Context(), "task", assign.Click{Holder: assign.Holder{User: user}, Count: 1})
		return err
	}
	var clicks sync.WaitGroup
	clicks.Go(func() { _ = click("first") })
	<-g.reached
	for i, user := range users {
		clicks.Go(func() { errs[i] = click(user) })
	}
	await(t, "all are in one batch", func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		d := n.dispatches["task"]
		return d != nil && len(d.queue) == len(users)
	})
	close(g.open)
	clicks.Wait()
	for i, user := range users {
		told := ""
		if errs[i] != nil {
			p, _ := pg.ProblemOf(errs[i])
			told = fmt.Sprint(p.Status, " ", p.Detail)
		}
		if wrong := user == "木村" || user == "Łukasz"; wrong != strings.HasPrefix(told, "400 the database can't store this text") || !wrong && told != "" {
			t.Errorf("%s got %q", user, told)
		}
	}

	for _, user := range users {
		_, err := n.Snapshots(t.Context(), []assign.Holder{{User: user}})
		if refused := pg.Unheld(err); refused != (user == "木村" || user == "Łukasz") || !refused && err != nil {
			t.Errorf("%s's pipeline: %v", user, err)
		}
	}
}

// Text that can't be stored is refused in any single call, too, and U+0000 in any database.
func TestTextThatTheDatabaseCannotHold(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	for encoding, text := range map[string]string{"LATIN1": "木村", "UTF8": "a\x00b"} {
		n := startNode(t, schematest.Encoded(t, encoding), nodeOptions{})
		_, err := n.Pipeline(t.Context(), assign.Holder{User: text})
		if p, logged := pg.ProblemOf(err); p.Status != 400 || logged {
			t.Errorf("%s: %v is shown as %+v", encoding, err, p)
		}
	}
}

// A query of another database that returns text that this one can't store fails at once, and says so. Repeating it for
// minutes would not help.
func TestQueryGivesWhatTheDatabaseCannotHold(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	elsewhere := schematest.URL(t)
	execute(t, pool(t, elsewhere), `create table loan as select '木村' as name`)
	n := startNode(t, schematest.Encoded(t, "LATIN1"), nodeOptions{Queries: reader(t, elsewhere, "loan")})
	newTask(t, n, "keys", `select name as item from loan`, nil)
	newTask(t, n, "details", `select 1 as item, name from loan`, nil)
	for _, task := range []string{"keys", "details"} {
		r := n.endedRequest(t, n.click(t, task, "Ann", 1).ID)
		if r.State != assign.Failed || !strings.Contains(*r.Error, "can't store") {
			t.Errorf("%s: %s, %v", task, r.State, r.Error)
		}
	}
}

// While the task is paused its requests stay, also if the run's result can't be stored. A changed query serves them.
func TestWhatCannotBeHeldAfterAPause(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	for name, stop := range map[string]func(*assign.Settings){
		"paused":  func(s *assign.Settings) { s.Paused = true },
		"changed": func(s *assign.Settings) { s.Query = `select 'a' as item` },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			elsewhere := schematest.URL(t)
			execute(t, pool(t, elsewhere), `create table loan as select '木村' as name`)
			address := schematest.Encoded(t, "LATIN1")
			queried := newGate(StepQueried)
			n := startNode(t, address, nodeOptions{Queries: reader(t, elsewhere, "loan"), Steps: queried.hold})
			db := utf8Pool(t, address)
			newTask(t, n, "task", `select name as item from loan`, nil)
			r := n.click(t, "task", "Ann", 1)
			<-queried.reached
			if _, err := n.change(t, "task", stop); err != nil {
				t.Fatal(err)
			}
			close(queried.open)
			await(t, "the run is given up", func() bool {
				return query[string](t, db, `select state from getwork.run order by id limit 1`) != "running"
			})
			if got := query[string](t, db, `select state || ': ' || error from getwork.run order by id limit 1`); got != "cancelled: "+errStopped.Error() {
				t.Errorf("the run is %s", got)
			}
			if name == "paused" {
				n.idle(t)
				if got := query[string](t, db, `select state from getwork.work_requested`); got != "pending" {
					t.Errorf("Ann's request is %s", got)
				}
				if _, err := n.change(t, "task", func(s *assign.Settings) { s.Query, s.Paused = `select 'a' as item`, false }); err != nil {
					t.Fatal(err)
				}
			}
			if r = n.endedRequest(t, r.ID); fmt.Sprint(items(r)) != "[a]" {
				t.Errorf("Ann got %s %v", r.State, items(r))
			}
		})
	}
}
