package story

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"getwork/assign"
	"getwork/cmd/internal/e2e"
	"getwork/schema/postgres"
	"getwork/schema/schematest/timeout"
)

const verifyStatements = "verify-statements.sql"

// bankFolder is the folder with a real bank's data, which GETWORK_BERKA names. The data may not be redistributed, so it is not part
// of the project.
func bankFolder(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("GETWORK_BERKA")
	if dir == "" {
		t.Skip("the real bank's data is missing: GETWORK_BERKA names the folder that has its load.sql and " + verifyStatements)
	}
	return dir
}

// loadBank has psql load the data, since load.sql copies from files on the client's side.
func (s *site) loadBank(dir string) (query string) {
	s.T.Helper()
	psql := "psql"
	if found, err := postgres.Find(); err == nil {
		if beside := filepath.Join(found.Dir, "psql"); fileExists(beside) {
			psql = beside
		}
	}
	load := exec.CommandContext(s.T.Context(), psql, "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", s.URL, "-f", "load.sql")
	load.Dir = dir
	if out, err := load.CombinedOutput(); err != nil {
		s.T.Fatalf("load the bank: %v\n%s", err, out)
	}
	text, err := os.ReadFile(filepath.Join(dir, verifyStatements))
	if err != nil {
		s.T.Fatal(err)
	}
	return e2e.Marker + "\n" + string(text)
}

func fileExists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// bankDesk is what the ten people know of each other: who holds which loan, and how often each was handed out. It is
// kept apart from the database, to find the database's errors.
type bankDesk struct {
	*site
	mu    sync.Mutex
	held  map[string]string // by loan, its holder
	gone  map[string]bool   // put off, or never to return
	times map[string]int
}

const loans = 137

// Ten people on three nodes empty the queue of a real bank, and let go of its loans in every possible way.
func TestRealBank(t *testing.T) {
	dir := bankFolder(t)
	d := &bankDesk{site: newSite(t, 3, ""), held: map[string]string{}, gone: map[string]bool{}, times: map[string]int{}}
	d.Task("verify", d.loadBank(dir))
	ctx, cancel := context.WithTimeout(t.Context(), timeout.Scale(4*time.Minute))
	defer cancel()
	stop := d.Sample()
	var working sync.WaitGroup
	for i := range 10 {
		working.Go(func() { d.work(ctx, fmt.Sprintf("user-%d", i), i) })
	}
	working.Wait()
	if _, atOnce := stop(); atOnce != 1 {
		t.Errorf("%d queries at once", atOnce)
	}
	t.Logf("runs: %s", d.States())
	t.Logf("%d loans, handed out %d times", len(d.times), column[int64](d.site, `select count(*) from getwork.work`)[0])
	if len(d.times) != loans || len(d.gone) != loans || len(d.held) != 0 {
		t.Errorf("%d loans were handed out, %d are put off or never to come back, %d are held; want %d, %[4]d and 0", len(d.times), len(d.gone), len(d.held), loans)
	}
	d.checkHistory()
}

// work gets loans and lets go of them until there are no more.
func (d *bankDesk) work(ctx context.Context, user string, node int) {
	for turn := node; ctx.Err() == nil; turn++ {
		me := d.As(user, turn%3)
		r, _, err := me.GetWork(ctx, "verify", 5)
		if err == nil {
			r, err = d.As(user, (turn+1)%3).Await(ctx, r.ID)
		}
		if err != nil {
			d.T.Errorf("%s: %v", user, err)
			return
		}
		if r.State == assign.None && d.over() {
			return
		}
		if !slices.Contains([]assign.State{assign.Assigned, assign.Partial, assign.None}, r.State) {
			d.T.Errorf("%s: %+v", user, r)
			return
		}
		d.take(user, r.Work)
		for _, w := range r.Work {
			outcome, after := d.letGo(w.Item)
			if got, a, err := me.Dispose(ctx, w.ID, outcome, after); err != nil || a.Status != 200 || got.State == "held" {
				d.T.Errorf("%s lets go of %s: %d %s, %v", user, w.Item, a.Status, a.Body, err)
			}
		}
	}
	d.T.Errorf("%s did not finish in time", user)
}

func (d *bankDesk) over() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.gone) == loans
}

func (d *bankDesk) take(user string, work []assign.Work) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, w := range work {
		switch {
		case d.held[w.Item] != "":
			d.T.Errorf("%s got %s, which %s holds", user, w.Item, d.held[w.Item])
		case d.gone[w.Item]:
			d.T.Errorf("%s got %s, which was put off or is never to come back", user, w.Item)
		}
		d.held[w.Item] = user
		d.times[w.Item]++
	}
}

// letGo decides on the outcome, and records it before the database is told, because the loan may be handed out again at
// once. A loan that comes back the first time does not the second: it still matches, so the queue would never be empty.
func (d *bankDesk) letGo(item string) (outcome, after string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.held, item)
	kind := len(item)
	for _, c := range item {
		kind += int(c)
	}
	if d.times[item] == 1 && kind%4 < 2 {
		if kind%2 == 0 {
			return "complete", ""
		}
		return "return", "0s"
	}
	d.gone[item] = true
	if kind%2 == 0 {
		return "return", "1h"
	}
	return "never", ""
}

// checkHistory compares bankDesk with the database.
func (d *bankDesk) checkHistory() {
	d.T.Helper()
	for what, sql := range map[string]string{
		"were held twice at the same time": `
select distinct a.item from getwork.work a join getwork.work b using (task_id, item)
where a.id < b.id and b.assigned_at < coalesce(a.closed_at, 'infinity') and a.assigned_at < coalesce(b.closed_at, 'infinity')`,
		"came back though put off or never to": `
select distinct a.item from getwork.work a join getwork.work b using (task_id, item)
where b.assigned_at > a.closed_at and (a.state = 'never' or a.available_at > b.assigned_at)`,
	} {
		if wrong := column[string](d.site, sql); len(wrong) > 0 {
			d.T.Errorf("loans that %s: %v", what, wrong)
		}
	}
	for _, state := range []string{"completed", "returned", "never"} {
		if n := column[int64](d.site, `select count(*) from getwork.work where state = $1`, state); n[0] == 0 {
			d.T.Errorf("no loan was %s", state)
		}
	}
	blocked := column[int64](d.site, `select blocked from getwork.run where state = 'finished' order by id desc limit 1`)
	if blocked[0] != loans {
		d.T.Errorf("at the end %d loans were blocked; want %d", blocked[0], loans)
	}
}
