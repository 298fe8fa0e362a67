package engine

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"pgregory.net/rapid"

	"getwork/assign"
	"getwork/assign/pg"
	"getwork/notify"
	"getwork/schema/schematest"
)

// TestModel drives random sequences of all operations against the model, on a real database, and compares every answer, and
// all rows after each operation. Rapid shrinks a difference to a few operations. More cases: -rapid.checks=5000, or
// -rapid.seed.
func TestModel(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	url := schematest.URL(t)
	db := pool(t, url)
	execute(t, db, `insert into getwork.principal (name, name_key, iss, sub, kind) select u, u, 'bank', u, 'person' from unnest(array['ann', 'bob', 'cleo', 'bot', 'boss']) u`)
	execute(t, db, `create unlogged table model_rows (task text, id bigint generated always as identity, item text, priority int, slots int, exclusive text)`)
	e := stillEngine(t, url)
	cases := 0
	checkCases(t, 120, func(r *rapid.T) {
		cases++
		w := &modelWorld{T: r, model: &model{}, e: e, db: db, people: maps.Clone(modelPeople), known: map[string][]string{}}
		defer w.clear()
		w.begin(cases)
		r.Repeat(w.operations())
	})
}

// checkCases checks n cases; 120 of them stand for the number that -rapid.checks gives.
func checkCases(t *testing.T, n int, property func(*rapid.T)) {
	t.Helper()
	switch {
	case testing.Short():
		n = max(1, n/4)
	case !schematest.Also(t.Name()):
		n = max(1, n/2)
	}
	checks := flag.Lookup("rapid.checks").Value
	was := checks.String()
	flag.Visit(func(f *flag.Flag) {
		if asked, err := strconv.Atoi(was); f.Name == "rapid.checks" && err == nil {
			n = max(1, n*asked/120)
		}
	})
	for name, value := range map[string]string{"rapid.checks": strconv.Itoa(n), "rapid.nofailfile": "true"} {
		if err := flag.Lookup(name).Value.Set(value); err != nil {
			t.Fatal(err)
		}
	}
	defer func() { _ = checks.Set(was) }()
	rapid.Check(t, property)
}

// stillEngine returns an engine that does nothing by itself: no sweep, no rescuer, no listener. Whatever an operation wakes
// is over when Wait returns, so a case is the same each time.
func stillEngine(t testing.TB, url string) *Engine {
	t.Helper()
	pools, err := pg.OpenPools(pg.PoolsConfig{DatabaseURL: url, MaxRuns: 1, Name: "getwork still"})
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelError}))
	send := func(context.Context, string, string) error { return nil }
	ctx, cancel := context.WithCancel(context.Background())
	e := New(Config{Node: "still", API: pools.API, Runs: pools.Runs, MaxRuns: 1, Channel: "getwork",
		Announce: notify.NewAnnouncer(send, "getwork", "still", log), Log: log})
	e.mu.Lock()
	e.base = ctx
	e.mu.Unlock()
	t.Cleanup(func() {
		e.mu.Lock()
		for _, timer := range e.timers {
			timer.Stop()
		}
		e.mu.Unlock()
		cancel()
		e.Wait(context.Background())
		pools.Close()
	})
	return e
}

// modelWorld is the engine, the model, and what both heard.
type modelWorld struct {
	*rapid.T
	*model
	e  *Engine
	db *pgxpool.Pool

	focus    int                   // the task that most of the case is about
	people   map[string]assign.Who // modelPeople, each with the credential and groups of their newest session
	known    map[string][]string   // the groups of each user's last log-in or refresh; users who are not there are strangers
	released assign.Release        // the last dry run, and what it was about
	set      []int64
}

// modelPeople are the users, with the groups that each begins with.
var modelPeople = map[string]assign.Who{
	"ann":  {Holder: assign.Holder{User: "ann"}, Groups: []string{"desk"}},
	"bob":  {Holder: assign.Holder{User: "bob"}, Groups: []string{"desk", "night"}},
	"cleo": {Holder: assign.Holder{User: "cleo"}},
	"bot1": {Holder: assign.Holder{User: "bot", Instance: "1"}, Groups: []string{"night"}},
	"bot2": {Holder: assign.Holder{User: "bot", Instance: "2"}, Groups: []string{"night"}},
	"boss": {Holder: assign.Holder{User: "boss"}, Anything: true},
}

var modelKeys = []string{"1", "2", "3", "4", "5"}

func pick[V any](r *rapid.T, what string, from ...V) V { return rapid.SampledFrom(from).Draw(r, what) }

// begin makes three tasks with some items each: an inbox, one whose every click runs the query, and one with a shelf.
func (w *modelWorld) begin(n int) {
	r := w.T
	for who := range modelPeople {
		w.logIn(who)
	}
	for _, kind := range []string{"inbox", "query", "shelf"} {
		t := &modelTask{name: fmt.Sprintf("%s-%d", kind, n), inbox: kind == "inbox"}
		t.slots = pick(r, kind+" slots", 1, 1, 2)
		t.maxOpen = pick(r, kind+" max_open", 0, 0, 1, 3)
		t.maxAttempts = pick(r, kind+" max_attempts", 0, 1, 2)
		t.onAway = pick(r, kind+" on_away", assign.KeepAway, assign.ReleaseAway, assign.PassAway)
		t.lease = pick(r, kind+" lease", 0, 0, 0.5, 1.5)
		t.maxCandidates = 1000
		s := assign.DefaultSettings()
		if !t.inbox {
			t.maxCandidates = pick(r, kind+" max_candidates", 1000, 2, 2, 3)
			s.Query = assign.Query(fmt.Sprintf("select item, slots, exclusive from model_rows where task = '%s' order by priority desc, id", t.name))
		}
		if kind == "shelf" {
			t.freshFor = pick(r, "fresh_for", 1.5, 20)
		}
		s.Name, s.Slots, s.MaxCandidates, s.FreshFor = t.name, t.slots, t.maxCandidates, modelHours(t.freshFor)
		s.RerunAfter, s.Backoff = modelHours(modelRerun), modelHours(modelBackoff)
		s.MaxOpen, s.MaxAttempts, s.OnAway = modelLimit(t.maxOpen), modelLimit(t.maxAttempts), t.onAway
		if t.lease > 0 {
			lease := modelHours(t.lease)
			s.Lease = &lease
		}
		for _, o := range w.tasks {
			if pick(r, kind+" conflicts with "+o.name[:5], false, false, true) {
				t.conflicts, s.ConflictsWith = append(t.conflicts, o), append(s.ConflictsWith, o.name)
			}
		}
		made, err := w.e.CreateTask(r.Context(), s, "a manager")
		w.must(err)
		t.id, t.version = made.ID, made.Version
		w.tasks = append(w.tasks, t)
	}
	for range rapid.IntRange(0, 15).Draw(r, "rows") {
		w.doRows()
	}
	w.doPush()
	w.focus = rapid.IntRange(0, 2).Draw(r, "focus")
}

const modelBackoff = 0.4 // hours

func modelLimit(n int) *int {
	if n == 0 {
		return nil
	}
	return &n
}

// clear removes the case's rows, so that the rows of users who come in every case do not grow.
func (w *modelWorld) clear() {
	ctx := context.Background()
	w.e.Wait(ctx)
	var batch pgx.Batch
	for _, t := range w.tasks {
		batch.Queue(`delete from getwork.work where task_id = $1`, t.id)
		batch.Queue(`delete from getwork.work_requested where task_id in ($1, 0)`, t.id)
		batch.Queue(`delete from getwork.item where task_id = $1`, t.id)
		batch.Queue(`delete from model_rows where task = $1`, t.name)
	}
	batch.Queue(`delete from getwork.absence`)
	w.must(w.db.SendBatch(ctx, &batch).Close())
	if w.limits.People != nil {
		w.limit(assign.Limits{})
	}
}

func (w *modelWorld) must(err error) {
	w.Helper()
	if err != nil {
		w.differ("failed", "%v", err)
	}
}

// differ ends the case. The message must be the same each time, or rapid could not shrink the case; names and numbers that
// change from try to try are in the detail.
func (w *modelWorld) differ(what, detail string, args ...any) {
	w.Helper()
	w.Logf(detail, args...)
	w.Fatal(what)
}

// wantRefusal expects a refusal of one of the kinds; none: no error at all.
func (w *modelWorld) wantRefusal(err error, kinds ...assign.Kind) {
	w.Helper()
	var r *assign.Refusal
	switch {
	case err == nil && (len(kinds) == 0 || slices.Contains(kinds, "")):
	case errors.As(err, &r) && slices.Contains(kinds, r.Kind):
	default:
		w.differ("the answer differs", "answered %v, the model says %v", err, kinds)
	}
}

// check compares all rows with the model.
func (w *modelWorld) check(*rapid.T) {
	w.e.Wait(w.Context())
	for _, t := range w.tasks {
		got, err := readModelTables(w.Context(), w.db, t.id)
		w.must(err)
		if d := t.compare(got); d != "" {
			w.differ("the tables differ", "task %s, at hour %v: %s", t.name, t.now, d)
		}
	}
}

func (w *modelWorld) task() *modelTask {
	return w.tasks[(w.focus+pick(w.T, "task after the focus", 0, 0, 0, 1, 2))%len(w.tasks)]
}

// operations are what rapid chooses from; frequent operations are in it more often.
func (w *modelWorld) operations() map[string]func(*rapid.T) {
	all := map[string]func(*rapid.T){"": w.check}
	for _, o := range []struct {
		name   string
		weight int
		do     func()
	}{
		{"push", 2, w.doPush}, {"rows", 2, w.doRows}, {"click", 8, w.doClick}, {"next", 2, w.doNext}, {"dispose", 6, w.doDispose}, {"claim", 3, w.doClaim},
		{"dispose of many", 3, w.doDisposeMany}, {"extend many", 1, w.doExtendMany}, {"extend", 1, w.doExtend}, {"expire", 2, w.doExpire}, {"reassign", 2, w.doReassign}, {"away", 2, w.doAway}, {"count", 1, w.doDryRun}, {"release", 1, w.doRelease},
		{"redrive", 2, w.doRedrive}, {"cancel", 1, w.doCancel}, {"change", 3, w.doChange}, {"limit", 1, w.doLimit}, {"hour", 3, w.doHour}, {"retain", 1, w.doRetain},
		{"end", 2, w.doEnd}, {"log in", 1, w.doLogIn}, {"regroup", 2, w.doRegroup},
	} {
		for i := range o.weight {
			all[fmt.Sprintf("%s %d", o.name, i)] = func(*rapid.T) { o.do() }
		}
	}
	return all
}
