package torture

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"getwork/cmd/lab/torture/history"
)

// manager pushes items, or interferes with other people's work.
type manager struct {
	caller
	crowd *crowd
	count int

	entered []absence
}

// absence is one that the manager has entered.
type absence struct{ ID, User string }

func (c *crowd) manager(i int) *manager {
	m := &manager{crowd: c}
	m.caller = caller{stage: c.stage, who: history.Who{User: "feeder"}, role: "agent", rng: c.rng(drawsManager, i)}
	if i > 0 {
		m.who.User, m.role = "boss", "manager"
	}
	m.pass = c.logIns.pass(m.who.User)
	return m
}

// insist makes something before anything breaks. A node on a busy machine may not reach the database in time, and is asked again.
func (c *caller) insist(ctx context.Context, r request) error {
	for tries := 10; ; tries-- {
		var call history.Call
		err := c.exchange(ctx, c.stage.members[0].node.URL+r.path, r, c.show(ctx, nil), &call)
		if err == nil && (call.Status < 300 || call.Status == http.StatusConflict) { // it exists if an answer was lost
			return nil
		}
		if again := err != nil || call.Status == http.StatusTooManyRequests || call.Status >= 500; !again || tries == 1 || ctx.Err() != nil {
			return errors.Join(err, fmt.Errorf("%d %s", call.Status, call.Type))
		}
		wait(ctx, 500*time.Millisecond)
	}
}

// each does something again and again until over is closed.
func (m *manager) each(ctx context.Context, over <-chan struct{}, mean time.Duration, do func()) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-over:
		case <-ctx.Done():
		}
		cancel()
	}()
	for doze(ctx, m.rng, mean) {
		do()
	}
}

// feed pushes items into the inboxes: new ones, and some that exist already.
func (m *manager) feed(ctx context.Context, over <-chan struct{}) {
	var fed []job
	for _, j := range m.crowd.jobs {
		if j.inbox() && !j.onward && (len(fed) == 0 || slices.Contains(m.crowd.scenario.tasks, j.name)) {
			fed = append(fed, j)
		}
	}
	if len(fed) > 0 {
		m.each(ctx, over, 150*time.Millisecond, func() { m.push(ctx, fed[m.rng.IntN(len(fed))]) })
	}
}

// pushed is an item as it is sent.
type pushed struct {
	Item      string     `json:"item"`
	Priority  int        `json:"priority"`
	NotBefore *time.Time `json:"not_before,omitempty"`
	Exclusive string     `json:"exclusive,omitempty"`
	Slots     int        `json:"slots,omitempty"`
	Deadline  *time.Time `json:"deadline,omitempty"`
	DoneBy    int        `json:"done_by,omitempty"`
	Needs     []string   `json:"needs,omitempty"`

	NeedsUntil *time.Time `json:"needs_until,omitempty"`
}

func (m *manager) push(ctx context.Context, j job) {
	var all []pushed
	var keys, late []string
	untils := map[string]time.Time{}
	for range 1 + m.rng.IntN(8) {
		m.count++
		p := pushed{Item: fmt.Sprintf("%s-%06d", j.keys, m.count), Priority: m.rng.IntN(4)}
		switch draw := m.rng.IntN(12); {
		case j.several > 0 && draw > 1 && draw < 8:
			p.several(draw, j.keys, 1+m.rng.IntN(m.count))
		case draw < 2:
			later := m.stage.now().Add(time.Duration(300+m.rng.IntN(3000)) * time.Millisecond).UTC()
			p.NotBefore = &later
			late = append(late, p.Item)
		case draw < 4:
			p.Exclusive = fmt.Sprintf("group-%d", m.rng.IntN(4))
		case draw == 4:
			p.Slots = 2
		case draw == 5:
			p.Item = fmt.Sprintf("%s-%06d", j.keys, 1+m.rng.IntN(m.count)) // an item that exists already, or is done
		}
		if m.rng.IntN(100) < m.crowd.scenario.habits.due {
			p.Deadline = new(m.stage.now().Add(time.Duration(m.rng.IntN(60)) * time.Second).UTC())
		}
		if p.Needs != nil && m.count%2 == 0 {
			p.NeedsUntil = new(m.stage.now().Add(time.Duration(1+m.rng.IntN(60)) * time.Second).UTC().Truncate(time.Millisecond))
			untils[p.Item] = *p.NeedsUntil
		}
		all, keys = append(all, p), append(keys, p.Item)
	}
	for range 3 {
		call := m.do(ctx, history.Call{Kind: history.Push, Task: j.name, Items: keys, Later: late, NeedsUntil: untils}, request{method: http.MethodPost, path: "/api/v1/tasks/" + j.name + "/items", body: all})
		if call.Status != 0 && call.Status < 500 {
			break
		}
	}
	m.crowd.notePushed(j.keys, keys)
}

// several makes an item of an inbox whose items several complete another than most.
func (p *pushed) several(draw int, keys string, known int) {
	switch draw {
	case 2, 3:
		p.Needs = abilities[draw%2]
	case 4, 5:
		p.DoneBy = 1 + known%4
	case 6:
		p.Item = fmt.Sprintf("%s-%06d", keys, known) // it exists already, or is done
	}
}

// manage interferes: it reassigns, gives, releases, redrives and pauses.
func (m *manager) manage(ctx context.Context, over <-chan struct{}) {
	if m.crowd.scenario.habits.calm {
		return
	}
	m.each(ctx, over, 400*time.Millisecond, func() {
		switch m.rng.IntN(22) {
		case 0:
			m.pauseAndResume(ctx)
		case 1, 2:
			m.release(ctx)
		case 3, 4:
			m.redrive(ctx)
		case 5, 6:
			user := m.crowd.somebody(m.rng)
			m.do(ctx, history.Call{Kind: history.Pipeline, To: user}, request{method: http.MethodGet, path: "/api/v1/pipeline?user=" + user})
		case 7, 8, 9:
			m.close(ctx)
		case 10, 11:
			m.give(ctx)
		case 12, 13, 14:
			m.away(ctx)
		case 15:
			m.recode(ctx)
		case 16:
			if m.crowd.scenario.taught() {
				m.teach(ctx, m.crowd.somebody(m.rng), abilities[m.rng.IntN(len(abilities))])
			}
		default:
			m.reassign(ctx)
		}
	})
}

// pauseAndResume pauses a task for a while. It returns only after the task is resumed.
func (m *manager) pauseAndResume(ctx context.Context) {
	job := m.crowd.job(m.rng)
	m.setPaused(ctx, job, true)
	doze(ctx, m.rng, 500*time.Millisecond)
	for ctx.Err() == nil && m.setPaused(ctx, job, false).Status != http.StatusOK {
		doze(ctx, m.rng, 300*time.Millisecond)
	}
}

func (m *manager) setPaused(ctx context.Context, j job, paused bool) history.Call {
	return m.do(ctx, history.Call{Kind: history.Update, Task: j.name, Paused: &paused},
		request{method: http.MethodPatch, path: "/api/v1/tasks/" + j.name, body: map[string]any{"paused": paused}, header: []string{"If-Match", "*"}})
}

func (m *manager) reassign(ctx context.Context) {
	if w, ok := m.crowd.someWork(m.rng); ok {
		to := m.crowd.somebody(m.rng)
		m.do(ctx, history.Call{Kind: history.Reassign, Task: w.Task, Item: w.Item, Work: w.ID, To: to},
			request{method: http.MethodPost, path: workPath(w.ID, "reassign"), body: map[string]any{"user": to}})
	}
}

// give claims an item for somebody.
func (m *manager) give(ctx context.Context) {
	job := m.crowd.job(m.rng)
	item := m.crowd.item(job, m.rng)
	if item == "" {
		return
	}
	to := m.crowd.somebody(m.rng)
	m.do(ctx, history.Call{Kind: history.Claim, Task: job.name, Item: item, To: to},
		request{method: http.MethodPost, path: "/api/v1/tasks/" + job.name + "/items/" + url.PathEscape(item) + "/claim", body: map[string]any{"user": to}})
}

// close lets go of somebody else's work.
func (m *manager) close(ctx context.Context) {
	if w, ok := m.crowd.someWork(m.rng); ok {
		d := disposition{Outcome: "return", After: "0s"}
		if m.crowd.coded(w.Task) {
			d = d.surely()
		}
		m.do(ctx, d.call(w.held), request{method: http.MethodPost, path: workPath(w.ID, "disposition"), body: d.body()})
	}
}

// release takes back all work of a user: it first asks how much that is, and then takes exactly that, or reads that
// it has changed.
func (m *manager) release(ctx context.Context) {
	w, ok := m.crowd.someWork(m.rng)
	if !ok {
		return
	}
	body := map[string]any{"user": w.user, "dry_run": true}
	r := request{method: http.MethodPost, path: "/api/v1/work/release", body: body}
	asked := m.do(ctx, history.Call{Kind: history.Release, To: w.user, Outcome: "dry-run"}, r)
	var set struct{ Token string }
	if asked.Status != http.StatusOK || json.Unmarshal(asked.Body, &set) != nil || set.Token == "" {
		return
	}
	delete(body, "dry_run")
	body["token"] = set.Token
	if slices.ContainsFunc(m.crowd.jobs, func(j job) bool { return j.coded }) {
		body["code"] = giveBack
	}
	m.do(ctx, history.Call{Kind: history.Release, To: w.user}, r)
}

// away enters somebody's absence, for some seconds; at times another's ends.
func (m *manager) away(ctx context.Context) {
	if !m.crowd.scenario.habits.away {
		return
	}
	if len(m.entered) > 0 && m.rng.IntN(3) == 0 {
		a := m.entered[0]
		m.entered = m.entered[1:]
		m.do(ctx, history.Call{Kind: history.Back, To: a.User}, request{method: http.MethodDelete, path: "/api/v1/absences/" + a.ID})
		return
	}
	user, substitute := m.crowd.somebody(m.rng), m.crowd.somebody(m.rng)
	body := map[string]any{"user": user, "until": m.stage.now().Add(time.Duration(3+m.rng.IntN(20)) * time.Second).UTC()}
	if user != substitute && m.rng.IntN(2) == 0 {
		body["substitute"] = substitute
	}
	call := m.do(ctx, history.Call{Kind: history.Away, To: user}, request{method: http.MethodPost, path: "/api/v1/absences", body: body})
	var a absence
	if call.Status == http.StatusCreated && json.Unmarshal(call.Body, &a) == nil {
		m.entered = append(m.entered, a)
	}
}

// redrive puts back items that are never to return: all whose attempts were used up, or some by name.
func (m *manager) redrive(ctx context.Context) {
	job := m.crowd.job(m.rng)
	body := map[string]any{}
	call := history.Call{Kind: history.Redrive, Task: job.name}
	if w, ok := m.crowd.someWork(m.rng); ok && m.rng.IntN(2) == 0 {
		job.name, call.Task = w.Task, w.Task
		call.Items = []string{w.Item}
		body["items"] = call.Items
	}
	m.do(ctx, call, request{method: http.MethodPost, path: "/api/v1/tasks/" + job.name + "/redrive", body: body})
}
