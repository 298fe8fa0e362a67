package demo

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"getwork/assign"
)

const (
	crowdSize  = 50 // how many people click at once
	crowdCount = 2  // how many items each of them wants

	// The audience waits for a naive race, so no more people click than the machine can serve in that time. The table then says what
	// all of them would have seen.
	raceWithin = 40 * time.Second

	sceneWithin = 5 * time.Minute  // after this time unserved people are given up
	admireFor   = 20 * time.Second // how long the crowd keeps its items, so that the manager's floor shows them
)

// theatre is what the demo's page shows: the nodes, and a scene for each half of a contest. Only one scene is played at
// a time.
type theatre struct {
	demo *demo
	ctx  context.Context // ends with the demo

	mu      sync.Mutex
	scenes  map[string]*scene // by the names of their halves
	played  *showing          // the last scene that was played; nil: none was
	changed chan struct{}     // closed, and replaced, when something changes
}

// showing is a scene that is being played.
type showing struct {
	interrupt context.CancelFunc
	shown     bool          // its result is there; the items may not be given back yet
	over      chan struct{} // closed when everything is as before
}

// scene is one half of a contest, as the page shows it.
type scene struct {
	State  string       `json:"state"`           // "", playing, done, stopped or failed
	Step   string       `json:"step,omitempty"`  // the current step of preparation
	Since  time.Time    `json:"since,omitzero"`  // when that step began
	Error  string       `json:"error,omitempty"` // why it failed
	Began  time.Time    `json:"began,omitzero"`  // when people clicked
	Count  int          `json:"count"`           // how many items each person wants
	People []person     `json:"people"`          // those who click
	Runs   []sightedRun `json:"runs,omitempty"`  // the nodes' queries for them, in their order
	Alone  float64      `json:"alone,omitempty"` // seconds that the query takes when nobody else runs it; 0: not measured
	Gone   bool         `json:"gone"`            // the people gave everything back, and are in no figures any more

	half *half // what was measured; nil: not yet
}

// sightedRun is a query that a node runs for the crowd.
type sightedRun struct {
	Node  int    `json:"node"`  // its number; 0: a node that is no longer there
	State string `json:"state"` // as assign.Run has it
}

// person is a person who clicks.
type person struct {
	State string   `json:"state"` // "", waits, served or failed
	Items []string `json:"items,omitempty"`
	Wait  float64  `json:"wait,omitempty"` // seconds from the click to the answer
	Error string   `json:"error,omitempty"`
}

// sight is everything that the page shows.
type sight struct {
	Nodes  []sightedNode    `json:"nodes"`
	Scenes map[string]scene `json:"scenes"`
	Table  *table           `json:"table,omitempty"` // once both halves were played
	Cores  int              `json:"cores"`
	Crowd  int              `json:"crowd"`
	LogIn  bool             `json:"log_in"`           // people log in at an identity provider
	Shrunk int              `json:"shrunk,omitempty"` // how many loans the bank has, if it is smaller than usual
}

type sightedNode struct {
	URL   string `json:"url"`
	Lives bool   `json:"lives"`
}

const (
	sceneNaive = "naive"
	sceneNodes = "getwork"
)

func newTheatre(ctx context.Context, d *demo) *theatre {
	return &theatre{demo: d, ctx: ctx, changed: make(chan struct{}), scenes: map[string]*scene{sceneNaive: {}, sceneNodes: {}}}
}

// change publishes a change of the state.
func (t *theatre) change(how func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	how()
	close(t.changed)
	t.changed = make(chan struct{})
}

// show returns the current state, and a channel that is closed when it changes.
func (t *theatre) show() (sight, <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	shown := sight{Scenes: map[string]scene{}, Cores: runtime.NumCPU(), Crowd: crowdSize, LogIn: t.demo.logsIn()}
	if t.demo.shrunk {
		shown.Shrunk = t.demo.Loans
	}
	for name, sc := range t.scenes {
		copied := *sc
		copied.People = slices.Clone(sc.People)
		shown.Scenes[name] = copied
	}
	shown.Table = compared(t.scenes[sceneNaive].half, t.scenes[sceneNodes].half)
	for _, n := range t.demo.fleet.all() {
		shown.Nodes = append(shown.Nodes, sightedNode{URL: n.origin(), Lives: !n.ended()})
	}
	return shown, t.changed
}

var errPlaying = errors.New("people are clicking already; wait for them, or stop them")

// begin begins a scene, after giving back what the crowd of the last one still holds.
func (t *theatre) begin(ctx context.Context, name string) error {
	p := &showing{over: make(chan struct{})}
	ctx, p.interrupt = context.WithCancel(ctx)
	var before *showing
	err := errNoSuch
	t.change(func() {
		sc := t.scenes[name]
		if sc == nil {
			return
		}
		if t.played != nil && !t.played.shown || ctx.Err() != nil {
			err = errPlaying
			return
		}
		before, t.played, err = t.played, p, nil
		*sc = scene{State: "playing", Count: crowdCount}
	})
	if err != nil {
		p.interrupt()
		return err
	}
	go func() {
		defer close(p.over)
		defer p.interrupt()
		if before != nil {
			before.interrupt()
			<-before.over
		}
		t.play(ctx, name, p)
	}()
	return nil
}

// interrupt ends the current scene without waiting for its end.
func (t *theatre) interrupt() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.played != nil {
		t.played.interrupt()
	}
}

// close ends the current scene, and returns when everything is as before. After that no scene can begin.
func (t *theatre) close() {
	t.mu.Lock()
	last := t.played
	t.mu.Unlock()
	if last != nil {
		last.interrupt()
		<-last.over
	}
}

// play has the crowd click in one half and, after a while, gives back what it got.
func (t *theatre) play(ctx context.Context, name string, p *showing) {
	c := &contest{demo: t.demo, users: crowdSize, count: crowdCount, bound: sceneWithin, spectator: &onPage{t, name}}
	var h half
	var err error
	if name == sceneNaive {
		c.budget = raceWithin
		h, err = c.naiveHalf(ctx)
	} else {
		defer func() {
			c.giveBack()
			t.change(func() { t.scenes[name].Gone = true })
		}()
		h, err = c.realHalf(ctx)
	}
	t.change(func() {
		p.shown = true
		t.scenes[name].finish(h, err, ctx.Err() != nil)
	})
	if err == nil && name != sceneNaive {
		select {
		case <-time.After(admireFor):
		case <-ctx.Done():
		}
	}
}

// finish shows a half's result.
func (sc *scene) finish(h half, err error, interrupted bool) {
	sc.State, sc.Step = "done", ""
	switch {
	case interrupted:
		sc.State = "stopped"
		return
	case err != nil:
		sc.State, sc.Error = "failed", err.Error()
		return
	}
	sc.half, sc.Alone = &h, h.alone.Seconds()
}

// onPage shows a contest's half on the page.
type onPage struct {
	theatre *theatre
	name    string
}

func (o *onPage) change(how func(*scene)) {
	o.theatre.change(func() { how(o.theatre.scenes[o.name]) })
}

func (o *onPage) step(name string) {
	o.change(func(sc *scene) { sc.Step, sc.Since = name, time.Now() })
}

func (o *onPage) begins(_ string, users int) {
	o.change(func(sc *scene) {
		sc.Step, sc.Since, sc.Began, sc.People = "", time.Time{}, time.Now(), make([]person, users)
	})
}

func (o *onPage) clicked(user int) { o.change(func(sc *scene) { sc.People[user].State = "waits" }) }

func (o *onPage) answered(user int, got outcome) {
	o.change(func(sc *scene) {
		p := &sc.People[user]
		*p = person{State: "served", Items: got.items, Wait: got.wait.Seconds()}
		if got.err != nil {
			p.State, p.Error = "failed", got.err.Error()
		}
	})
}

func (o *onPage) ran(runs []assign.Run) {
	nodes := o.theatre.demo.fleet.all()
	seen := make([]sightedRun, 0, len(runs))
	for _, r := range slices.Backward(runs) {
		number := 1 + slices.IndexFunc(nodes, func(n *nodeProcess) bool { return n.name == r.Node })
		seen = append(seen, sightedRun{number, r.State})
	}
	o.theatre.mu.Lock()
	known := slices.Equal(o.theatre.scenes[o.name].Runs, seen)
	o.theatre.mu.Unlock()
	if !known {
		o.change(func(sc *scene) { sc.Runs = seen })
	}
}

// origin returns the origin of the node's page.
func (n *nodeProcess) origin() string {
	if host, ok := strings.CutPrefix(n.url, "http://[::1]"); ok {
		return "http://localhost" + host
	}
	return n.url
}
