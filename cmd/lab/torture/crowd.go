package torture

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"getwork/cmd/lab/torture/history"
)

// crowd is all users, programs and managers.
type crowd struct {
	*stage
	scenario Scenario
	jobs     []job
	think    time.Duration
	began    time.Time
	calm     context.Context // ends when nothing is broken any more; from then on all live channels stay open and are read at once

	mu     sync.Mutex
	recent []assignment        // work that was assigned lately, for managers to interfere with
	pushed map[string][]string // items pushed to the inboxes lately, by what their keys begin with
}

// assignment is a piece of work and its holder.
type assignment struct {
	held
	user string
}

const remembered = 200

func newCrowd(s *stage, calm context.Context) *crowd {
	scenario, _ := scenarioOf(s.o.Scenario)
	return &crowd{stage: s, scenario: scenario, jobs: scenario.worked(s.o), think: s.o.Think, calm: calm, pushed: map[string][]string{}}
}

// run runs the crowd until ctx ends; after over is closed nobody begins anything new.
func (c *crowd) run(ctx context.Context, over <-chan struct{}) {
	c.began = time.Now()
	var all sync.WaitGroup
	for i := range c.o.Users + c.o.Agents {
		p := c.person(i)
		all.Go(func() { p.run(ctx, over) })
		if p.socket {
			l := c.listener(p, i)
			all.Go(func() { l.run(ctx) })
		}
	}
	all.Go(func() { c.manager(0).feed(ctx, over) })
	all.Go(func() { c.manager(1).manage(ctx, over) })
	all.Wait()
}

// rng returns the random numbers of one goroutine, which depend on the seed.
func (c *crowd) rng(kind, i int) *rand.Rand {
	return rand.New(rand.NewPCG(c.o.Seed, uint64(kind)<<32|uint64(i)))
}

// The kinds of goroutine that draw random numbers.
const (
	drawsPerson = iota + 2
	drawsSocket
	drawsManager
	drawsNap
	drawsBeside
	drawsReceiver
)

func (c *crowd) person(i int) *person {
	p := &person{crowd: c, told: make(chan message, 64), known: map[int64]bool{}, waiting: map[int64]bool{}, tags: map[int64]string{}}
	p.caller = caller{stage: c.stage, who: history.Who{User: fmt.Sprintf("user-%03d", i)}, role: "worker", rng: c.rng(drawsPerson, i)}
	p.socket = i%2 == 0
	if k := i - c.o.Users; k >= 0 { // programs, four instances under each name, and the sockets of their owners
		p.who = history.Who{User: fmt.Sprintf("agent-%02d", k/4), Instance: fmt.Sprintf("i%d", k%4)}
		p.role, p.agent, p.socket = "agent", true, k%4 != 3
	}
	p.pass = c.logIns.pass(holderKey(p.who))
	return p
}

func (c *crowd) listener(p *person, i int) *listener {
	l := &listener{told: p.told, caller: p.caller, calm: c.calm}
	l.rng = c.rng(drawsSocket, i)
	switch l.rng.IntN(10) {
	case 0:
		l.manner.slow = time.Second
	case 1:
		l.manner.slow = 20 * time.Second
	case 2, 3:
		l.manner.vanish = 5 * time.Second
	case 4:
		l.manner.vanish = 300 * time.Millisecond
	}
	return l
}

// job returns a random task to work on.
func (c *crowd) job(rng *rand.Rand) job {
	if c.scenario.turn > 0 {
		return c.jobs[min(int(time.Since(c.began)/c.scenario.turn), len(c.jobs)-1)]
	}
	name := c.scenario.tasks[rng.IntN(len(c.scenario.tasks))]
	for _, j := range c.jobs {
		if j.name == name {
			return j
		}
	}
	panic("scenario " + c.scenario.Name + " names no task " + name)
}

// item returns a random item of a task; "" means that none is known.
func (c *crowd) item(j job, rng *rand.Rand) string {
	if !j.inbox() {
		n := j.items
		if narrow := c.scenario.habits.narrow; narrow > 0 {
			n = min(n, narrow)
		}
		item := j.item(1 + rng.IntN(max(1, n)))
		if j.books {
			return c.books.item(item)
		}
		return item
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	pushed := c.pushed[j.keys]
	if len(pushed) == 0 {
		return ""
	}
	return pushed[rng.IntN(len(pushed))]
}

// noteWork and notePushed remember what was handed out and pushed lately.
func (c *crowd) noteWork(w held, user string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.recent = lately(append(c.recent, assignment{w, user}))
}

func (c *crowd) notePushed(keys string, items []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pushed[keys] = lately(append(c.pushed[keys], items...))
}

func lately[T any](all []T) []T { return all[max(0, len(all)-remembered):] }

// someWork returns a random piece of work that was assigned lately.
func (c *crowd) someWork(rng *rand.Rand) (a assignment, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.recent) == 0 {
		return a, false
	}
	return c.recent[rng.IntN(len(c.recent))], true
}

// somebody returns a random user.
func (c *crowd) somebody(rng *rand.Rand) string { return fmt.Sprintf("user-%03d", rng.IntN(c.o.Users)) }
