package checker

import (
	"cmp"
	"runtime"
	"slices"
	"sync"
	"time"

	"getwork/cmd/lab/torture/history"
)

// trial is a history, sorted by subject.
type trial struct {
	Config
	report  Report
	entries []history.Entry
	bodies  []any // for each entry: *requestBody, *workBody, *pipelineBody, *countBody, or nil
	tables  *history.Tables

	tasks    map[int64]*task
	named    map[string][]*task // by all names that it ever had
	requests map[int64]*request
	works    map[int64]*work
	items    map[itemKey]*item
	sockets  map[int64]*socket
	calls    []int // entries that are calls, in the order in which they began
	faults   []*history.Fault
	outages  []*history.Fault // those of the receiver of web hooks, which excuse nothing else
	clock    clock

	clicked  map[int64]int         // for each request the first click that was answered with it
	lost     map[asker][]int       // clicks whose answer was lost, in the order in which they began
	over     map[int]history.Clock // when such a call is over; see alive
	cancels  map[int64][]int       // for each request
	returned map[asker]bool        // the users who returned an item to others, by the id of its task; nil: not computed yet
	users    map[holding][]*work   // what each user had of each task; nil: not computed yet
	holders  map[history.Who][]*work
	releases []int // calls that may have taken work away without naming it
}

// asker is a holder and a task.
type asker struct {
	who  history.Who
	task string
}

// itemKey names an item of a task.
type itemKey struct {
	task int64
	item string
}

// task is a task's row and versions.
type task struct {
	history.TaskRow
	names    []string // all names that it ever had
	versions []*history.VersionRow
	inbox    bool // an inbox in all versions
	single   bool // an item has one place in all versions, unless it sets the number itself
	declares bool // its query may set the number of an item's places
	once     bool // in some version: whoever holds or has completed an item of its query does not get it again
	rules    bool // a user who holds or has completed an item under another task may not have it here (four eyes), or an item needs something
}

// request is everything known about one request: its row, and all times that a client heard of it.
type request struct {
	id    int64
	row   *history.RequestRow // nil: there is none
	works []*work
	seen  []requestSight
}

// work is the same for one holding of an item.
type work struct {
	id   int64
	row  *history.WorkRow // nil: there is none
	seen []workSight
	let  []int // calls about this work, in the order in which they began

	sure   *span[*work] // when it was certainly held; nil: not computed yet
	surely []int        // the entries that prove it
}

// item is everything known about one item of a task.
type item struct {
	key    itemKey
	works  []*work // those with a row, by id
	pushed []*history.ItemRow
	until  time.Time // when what it needs ends; zero: never, or not known for certain
	places int       // the greatest number of holders at a time; 0: unknown
}

// sight is one time that a client heard something.
type sight struct {
	entry  int
	began  history.Clock // it was read from the database after that ...
	ended  history.Clock // ... and before that
	called bool          // by an answer; otherwise it was pushed, and began is the socket's
	socket int64         // the socket, of a push
}

type requestSight struct {
	sight
	*requestBody
}

type workSight struct {
	sight
	*workBody
}

// socket is one live channel, with the entries of its messages.
type socket struct {
	*history.Socket // nil: its end was not recorded, and nothing is expected of it
	entry           int
	told            []int
}

func newTrial(h history.History, c Config) *trial {
	c.PushWithin = cmp.Or(c.PushWithin, PushWithin) + busier*usual(h.Entries)
	c.Recovery = cmp.Or(c.Recovery, Recovery)
	c.Linearize = cmp.Or(c.Linearize, 10*time.Second)
	c.Most = cmp.Or(c.Most, 5)
	t := &trial{
		Config: c, entries: h.Entries, tables: &h.Tables,
		report: Report{Found: map[Rule]int{}, Kinds: map[Kind]int{}, Judged: map[string]int{}},
		tasks:  map[int64]*task{}, named: map[string][]*task{}, requests: map[int64]*request{}, works: map[int64]*work{},
		items: map[itemKey]*item{}, sockets: map[int64]*socket{},
		clicked: map[int64]int{}, lost: map[asker][]int{}, over: map[int]history.Clock{}, cancels: map[int64][]int{},
	}
	t.decodeAll()
	t.sortTables()
	t.sortEntries()
	t.sortNeeds()
	t.judgeTags()
	t.sortSights()
	return t
}

// decodeAll reads all bodies, on all cores, since that is most of the time of judging a long history.
func (t *trial) decodeAll() {
	t.bodies = make([]any, len(t.entries))
	var all sync.WaitGroup
	const part = 4096
	free := make(chan struct{}, runtime.GOMAXPROCS(0))
	for from := 0; from < len(t.entries); from += part {
		free <- struct{}{}
		all.Go(func() {
			defer func() { <-free }()
			for i := from; i < min(from+part, len(t.entries)); i++ {
				t.bodies[i] = bodyOf(&t.entries[i])
			}
		})
	}
	all.Wait()
}

// bodyOf decodes what an entry says, or returns nil if that is not judged.
func bodyOf(e *history.Entry) any {
	var into any
	switch {
	case e.Told != nil:
		switch e.Told.Type {
		case "request":
			into = &requestBody{}
		case "work":
			into = &workBody{}
		case "snapshot":
			into = &pipelineBody{}
		}
		if into != nil && decode(e.Told.Body, into) {
			return into
		}
		return nil
	case e.Call == nil || e.Call.Status/100 != 2:
		return nil
	}
	switch e.Call.Kind {
	case history.Click, history.Status, history.Cancel:
		into = &requestBody{}
	case history.Dispose, history.Extend, history.Later, history.Reassign, history.Claim:
		into = &workBody{}
	case history.Pipeline:
		into = &pipelineBody{}
	case history.Release, history.Redrive, history.Push, history.Update:
		into = &countBody{}
	default:
		return nil
	}
	if !decode(e.Call.Body, into) {
		return nil
	}
	return into
}

func (t *trial) request(id int64) *request {
	r := t.requests[id]
	if r == nil {
		r = &request{id: id}
		t.requests[id] = r
	}
	return r
}

func (t *trial) work(id int64) *work {
	w := t.works[id]
	if w == nil {
		w = &work{id: id}
		t.works[id] = w
	}
	return w
}

func (t *trial) item(task int64, key string) *item {
	k := itemKey{task, key}
	i := t.items[k]
	if i == nil {
		i = &item{key: k}
		t.items[k] = i
	}
	return i
}

// sortEntries finds the calls, the sockets, the faults and the ticks.
func (t *trial) sortEntries() {
	var ticks []*history.Tick
	socketOf := func(id int64) *socket {
		s := t.sockets[id]
		if s == nil {
			s = &socket{entry: -1}
			t.sockets[id] = s
		}
		return s
	}
	for i := range t.entries {
		switch e := &t.entries[i]; {
		case e.Call != nil:
			t.calls = append(t.calls, i)
			if e.Call.Work != 0 {
				w := t.work(e.Call.Work)
				w.let = append(w.let, i)
			}
		case e.Socket != nil:
			s := socketOf(e.Socket.ID)
			s.Socket, s.entry = e.Socket, i
		case e.Told != nil:
			s := socketOf(e.Told.Socket)
			s.told = append(s.told, i)
		case e.Fault != nil && e.Fault.Node == history.Receiver:
			t.outages = append(t.outages, e.Fault)
		case e.Fault != nil:
			t.faults = append(t.faults, e.Fault)
		case e.Tick != nil:
			ticks = append(ticks, e.Tick)
		}
	}
	began := func(a, b int) int { return cmp.Compare(t.entries[a].Call.Began, t.entries[b].Call.Began) }
	slices.SortStableFunc(t.calls, began)
	for _, w := range t.works {
		slices.SortStableFunc(w.let, began)
	}
	for _, i := range t.calls {
		switch c := t.entries[i].Call; {
		case c.Kind == history.Click:
			t.sortClick(i, c)
		case c.Kind == history.Cancel:
			t.cancels[c.Request] = append(t.cancels[c.Request], i)
		case (c.Kind == history.Release || c.Kind == history.Away) && !refused(c):
			t.releases = append(t.releases, i)
		}
	}
	t.clock = newClock(ticks, t.faults, t.tables.Now)
	for _, f := range stillness(ticks) {
		t.faults = append(t.faults, f)
		t.judged("times without a tick: of an outage, or the machine stood still")
	}
	if n := t.clock.jumps(); n > 0 {
		t.report.Judged["jumps of the database's clock"] = n
	}
	if t.clock.blind {
		t.judged("jumps of the database's clock: no times of the tables") // they were not compared
	}
}

func (t *trial) sortClick(i int, c *history.Call) {
	if body, _ := t.bodies[i].(*requestBody); body != nil {
		if _, known := t.clicked[body.ID]; !known {
			t.clicked[body.ID] = i
		}
	} else if unknown(c) {
		k := asker{c.Who, c.Task}
		t.lost[k] = append(t.lost[k], i)
	}
}

// sortSights goes through all that clients heard, and adds it to its subject.
func (t *trial) sortSights() {
	for i := range t.entries {
		if t.bodies[i] == nil {
			continue
		}
		s := sight{entry: i}
		if e := &t.entries[i]; e.Call != nil {
			s.began, s.ended, s.called = e.Call.Began, e.Call.Ended, true
		} else {
			s.ended, s.socket = e.Told.At, e.Told.Socket
		}
		switch body := t.bodies[i].(type) {
		case *requestBody:
			t.sawRequest(s, body)
		case *workBody:
			t.sawWork(s, body)
		case *pipelineBody:
			for j := range body.Requests {
				t.sawRequest(s, &body.Requests[j])
			}
			for j := range body.Work {
				t.sawWork(s, &body.Work[j])
			}
		}
	}
}

func (t *trial) sawRequest(s sight, body *requestBody) {
	r := t.request(body.ID)
	r.seen = append(r.seen, requestSight{s, body})
	for j := range body.Work {
		t.sawWork(s, &body.Work[j])
	}
}

func (t *trial) sawWork(s sight, body *workBody) {
	w := t.work(body.ID)
	w.seen = append(w.seen, workSight{s, body})
}
