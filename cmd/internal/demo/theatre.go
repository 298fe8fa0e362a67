package demo

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	crowdSize  = 50 // who click at once
	crowdCount = 2  // what each of them wants

	// A naive race is to be seen while one watches: so many click as the machine serves in that time.
	raceWithin = 15 * time.Second

	sceneWithin = 3 * time.Minute  // who is not served by then is given up
	admireFor   = 20 * time.Second // how long the crowd keeps what it got, for the manager's floor to show it
)

// theatre is what the demo's page shows: the nodes, and a scene for each half of a contest. One is played at a time.
type theatre struct {
	demo *demo
	ctx  context.Context // ends with the demo

	mu      sync.Mutex
	scenes  map[string]*scene // by the names of their halves
	played  *showing          // the last one; nil: none was
	changed chan struct{}     // closed, and made anew, when something changes
}

// showing is a scene that is played.
type showing struct {
	interrupt context.CancelFunc
	shown     bool          // its result is there; what was taken may not be given back yet
	over      chan struct{} // closed when all is as it was before
}

// scene is one half of a contest, as the page shows it.
type scene struct {
	State   string    `json:"state"`             // "", playing, done, stopped or failed
	Step    string    `json:"step,omitempty"`    // what is prepared
	Error   string    `json:"error,omitempty"`   // why it failed
	Began   time.Time `json:"began,omitzero"`    // when people clicked
	Count   int       `json:"count"`             // what each wants
	People  []person  `json:"people"`            // those who click
	Queries *int      `json:"queries,omitempty"` // that were run
	CPU     *float64  `json:"cpu,omitempty"`     // seconds of PostgreSQL, if the system tells
	Alone   float64   `json:"alone,omitempty"`   // seconds that the query takes when nobody else runs it; 0: not measured
}

// person is one who clicks.
type person struct {
	State string   `json:"state"` // "", waits, served or failed
	Items []string `json:"items,omitempty"`
	Wait  float64  `json:"wait,omitempty"` // seconds from the click to the answer
	Error string   `json:"error,omitempty"`
}

// sight is all that the page shows.
type sight struct {
	Nodes  []sightedNode    `json:"nodes"`
	Scenes map[string]scene `json:"scenes"`
	Cores  int              `json:"cores"`
	Crowd  int              `json:"crowd"`
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

// change changes what is shown.
func (t *theatre) change(how func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	how()
	close(t.changed)
	t.changed = make(chan struct{})
}

// show is what is to be seen now, and what is closed when that is no longer so.
func (t *theatre) show() (sight, <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	shown := sight{Scenes: map[string]scene{}, Cores: runtime.NumCPU(), Crowd: crowdSize}
	for name, sc := range t.scenes {
		copied := *sc
		copied.People = slices.Clone(sc.People)
		shown.Scenes[name] = copied
	}
	for _, n := range t.demo.fleet.all() {
		shown.Nodes = append(shown.Nodes, sightedNode{URL: n.origin(), Lives: !n.ended()})
	}
	return shown, t.changed
}

var errPlaying = errors.New("people are clicking already; wait for them, or stop them")

// begin begins a scene. What the crowd of the last one still holds is given back first.
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

// interrupt ends the scene that is played. It does not wait for that.
func (t *theatre) interrupt() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.played != nil {
		t.played.interrupt()
	}
}

// close ends what is played, and returns when all is as it was before. Nothing can begin any more.
func (t *theatre) close() {
	t.mu.Lock()
	last := t.played
	t.mu.Unlock()
	if last != nil {
		last.interrupt()
		<-last.over
	}
}

// play has the crowd click in one half, and gives back what it got, after a while.
func (t *theatre) play(ctx context.Context, name string, p *showing) {
	c := &contest{demo: t.demo, users: crowdSize, count: crowdCount, bound: sceneWithin, spectator: &onPage{t, name}}
	var h half
	var err error
	if name == sceneNaive {
		c.budget = raceWithin
		h, err = c.naiveHalf(ctx)
	} else {
		defer c.giveBack()
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
	sc.Queries, sc.Alone = &h.queries, h.alone.Seconds()
	if h.measured {
		sc.CPU = new(h.cpu.Seconds())
	}
}

// onPage shows what happens in a contest's half.
type onPage struct {
	theatre *theatre
	name    string
}

func (o *onPage) change(how func(*scene)) {
	o.theatre.change(func() { how(o.theatre.scenes[o.name]) })
}

func (o *onPage) step(name string) { o.change(func(sc *scene) { sc.Step = name }) }

func (o *onPage) begins(_ string, users int) {
	o.change(func(sc *scene) { sc.Step, sc.Began, sc.People = "", time.Now(), make([]person, users) })
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

// origin is where the node's page is.
func (n *nodeProcess) origin() string {
	if host, ok := strings.CutPrefix(n.url, "http://[::1]"); ok {
		return "http://localhost" + host
	}
	return n.url
}
