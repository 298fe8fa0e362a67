package notify

import "time"

const (
	// pledgeFor is how long after a pledge a node may leave changes to its announcer.
	pledgeFor = 2 * time.Second

	// PledgeHeardFor is how long a node that heard a pledge waits for another message. The changes left to the announcer
	// were committed before, unless a commit itself took that long.
	PledgeHeardFor = 2 * pledgeFor

	// forgottenAfter is how long a transaction counts as under way if nobody calls its End.
	forgottenAfter = 30 * time.Second
)

// pledge keeps announcements from being lost with their node. The announcer sends a change up to Every after its commit,
// and a node that dies in between announces nothing. So a node leaves changes to its announcer only while the other nodes
// know of it: it has sent Again, and they read everything if neither Again nor Even follows. The announcer's lock guards it.
type pledge struct {
	until  time.Time            // changes may be left to the announcer until then
	open   bool                 // the other nodes wait for another message
	ending bool                 // Even is on its way: no transaction may send Again, which could arrive before it
	spoken time.Time            // when Again was sent last
	inside time.Time            // when a transaction last announced itself
	flying map[uint64]time.Time // transactions that rely on the pledge, or make it, and when they began
	last   uint64               // key of flying
}

// Telling is how one transaction announces its changes.
type Telling struct {
	Payload string // for [NotifySQL], as the last statement of the transaction; empty if Run announces the changes later

	announcer *Announcer
	later     []Change
	flight    uint64    // its key in flying; 0 if it has none
	pledged   time.Time // when it wrote Again into its message; zero if it did not
}

// Tell decides, just before a transaction's commit, how its changes are announced. A transaction that is alone, or nearly,
// sends the message now itself. If there are many, Run announces the changes later, because a commit with a NOTIFY holds a
// cluster-wide lock while it flushes. Call End after the transaction.
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

// TellChanges is [Announcer.Tell] with the same changes now and later.
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

// End says that the transaction is over. Changes that were left to the announcer are announced even if the transaction
// failed, because a commit whose answer was lost may have succeeded. A nil receiver and repeated calls are allowed.
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
	a.signal()
}

func (p *pledge) begin(at time.Time) uint64 {
	if p.flying == nil {
		p.flying = map[uint64]time.Time{}
	}
	p.last++
	p.flying[p.last] = at
	return p.last
}

// made notes that Again was sent at that time or later.
func (p *pledge) made(at time.Time) {
	p.open = true
	if at.After(p.spoken) {
		p.spoken, p.until = at, at.Add(pledgeFor)
	}
}

// speaks decides what the next message says about the pledge: Again, Even, or nothing. fresh means that there are changes to
// announce, last that no message follows.
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

// spoke notes whether a message that was begun at that time, with or without Again and Even, was sent.
func (p *pledge) spoke(at time.Time, again, even, sent bool) {
	switch {
	case even:
		p.ending = false
		p.open = p.open && !sent
	case again && sent:
		p.made(at)
	}
}
