package notify

import "time"

const (
	// pledgeFor is how long a node may leave to the announcer what it commits, after it said that it would.
	pledgeFor = 2 * time.Second

	// PledgeHeardFor is how long a node that heard a pledge waits for another word. What was left to the announcer was
	// committed before, unless the commit itself took so long.
	PledgeHeardFor = 2 * pledgeFor

	// forgottenAfter is how long a transaction is waited for that nobody says the end of.
	forgottenAfter = 30 * time.Second
)

// pledge keeps an announcement from being lost with its node. What is left to the announcer is told up to Every after its
// commit, and a node that dies in between tells nobody. So a node leaves it something only while the others know: it has
// said Again, and they read everything if it says neither that nor Even for a while. The announcer's lock guards it.
type pledge struct {
	until  time.Time            // changes may be left to the announcer until then
	open   bool                 // the others wait for another word
	ending bool                 // Even is on its way: no transaction may say Again, it could arrive before that
	spoken time.Time            // when they were told last
	inside time.Time            // when a transaction told of itself last
	flying map[uint64]time.Time // transactions that count on the pledge, or make it, and when they began
	last   uint64               // of those
}

// Telling is how one transaction tells of what it changes.
type Telling struct {
	Payload string // for [NotifySQL], as the last statement of the transaction; empty: it is told after the commit

	announcer *Announcer
	later     []Change
	flight    uint64    // among those that fly; 0: it does not
	pledged   time.Time // when it wrote that the node says more; zero: it did not
}

// Tell decides, just before its commit, how a transaction tells of changes. One that is alone, or nearly, does so itself,
// by the message now. Of many, Loop tells, by the changes later: a commit with a NOTIFY holds a lock of the whole cluster
// while it flushes. Call End after the transaction.
func (a *Announcer) Tell(now Message, later ...Change) *Telling {
	a.mu.Lock()
	defer a.mu.Unlock()
	p, t, at := &a.pledge, &Telling{announcer: a, later: later}, time.Now()
	if at.Before(p.until) {
		t.flight = p.begin(at)
		return t
	}
	if at.Sub(p.inside) < a.Every && !p.ending {
		t.flight, t.pledged, now.Again = p.begin(at), at, true
	}
	p.inside = at
	now.Node = a.node
	t.Payload = now.Encode()
	return t
}

// TellChanges is [Announcer.Tell] where both say the same.
func (a *Announcer) TellChanges(changes ...Change) *Telling {
	all := map[int64]*Change{}
	for _, c := range changes {
		if !c.silent() {
			merge(all, c)
		}
	}
	if len(all) == 0 {
		return &Telling{}
	}
	return a.Tell(Message{Changes: sorted(all)}, changes...)
}

// End says that the transaction is over. What was left to the announcer is told even if it failed: a commit whose answer
// was lost may have been one. It may be called of nil, and again.
func (t *Telling) End(committed bool) {
	if t == nil || t.flight == 0 {
		return
	}
	a := t.announcer
	a.mu.Lock()
	_, flies := a.pledge.flying[t.flight]
	delete(a.pledge.flying, t.flight)
	switch {
	case t.pledged.IsZero():
		for _, c := range t.later {
			merge(a.changes, c)
		}
	case committed && flies:
		a.pledge.made(t.pledged)
	}
	t.flight = 0
	a.mu.Unlock()
	a.stir()
}

func (p *pledge) begin(at time.Time) uint64 {
	if p.flying == nil {
		p.flying = map[uint64]time.Time{}
	}
	p.last++
	p.flying[p.last] = at
	return p.last
}

// made notes that the others were told at that time, or later, that this node says more.
func (p *pledge) made(at time.Time) {
	p.open = true
	if at.After(p.spoken) {
		p.spoken, p.until = at, at.Add(pledgeFor)
	}
}

// speaks decides what the next message says of the pledge: Again, Even, or nothing. fresh: there are changes to tell of;
// last: nothing will be said after it.
func (p *pledge) speaks(fresh, last bool) (again, even bool) {
	if !p.open {
		return false, false
	}
	for flight, began := range p.flying {
		if time.Since(began) > forgottenAfter {
			delete(p.flying, flight)
		}
	}
	due := time.Since(p.spoken) >= pledgeFor/2
	if len(p.flying) == 0 && (last || due && !fresh) {
		p.until, p.ending = time.Time{}, true
		return false, true
	}
	return fresh || due || last, false
}

// spoke notes what was sent, having been begun at that time, or could not be.
func (p *pledge) spoke(at time.Time, again, even, sent bool) {
	switch {
	case even:
		p.ending = false
		p.open = p.open && !sent
	case again && sent:
		p.made(at)
	}
}
