package torture

import (
	"context"
	"syscall"
	"time"

	"getwork/cmd/internal/proxy"
)

// Kinds are all kinds of faults.
var Kinds = []Kind{
	{Name: "kill", Help: "kill -9 of a node", often: 3, least: 10 * time.Millisecond, most: 3 * time.Second, strike: (*storm).kill},
	{Name: "kill-run", Help: "kill -9 of the node whose query runs or has just ended", often: 3, least: 10 * time.Millisecond, most: 3 * time.Second, strike: (*storm).killRun},
	{Name: "freeze", Help: "SIGSTOP of a node, and SIGCONT up to 25 s later", often: 2, least: 100 * time.Millisecond, most: 25 * time.Second, strike: (*storm).freeze},
	{Name: "freeze-run", Help: "the same for the node whose query runs or has just ended", often: 2, least: 100 * time.Millisecond, most: 25 * time.Second, strike: (*storm).freezeRun},
	{Name: "restart", Help: "SIGTERM of a node, and start", often: 2, strike: (*storm).drain},
	{Name: "drain", Help: "the same, but the node stays away for a while", often: 1, least: 500 * time.Millisecond, most: 5 * time.Second, strike: (*storm).drain},
	{Name: "crash", Help: "PostgreSQL stops without saving anything (immediate), and starts", often: 1, least: 10 * time.Millisecond, most: 3 * time.Second, strike: (*storm).crash},
	{Name: "stop", Help: "PostgreSQL stops (fast), and starts", often: 1, least: 10 * time.Millisecond, most: 3 * time.Second, strike: (*storm).halt},
	{Name: "cut", Help: "all connections of a node are cut", often: 2, strike: (*storm).cut},
	{Name: "cut-listener", Help: "the same for the listener's only", often: 2, strike: (*storm).cutListener},
	{Name: "refuse", Help: "all connections of a node are cut, and new ones are refused", often: 1, least: 200 * time.Millisecond, most: 5 * time.Second, strike: (*storm).refuse},
	{Name: "proxy-freeze", Help: "nothing arrives between a node and the database, in one direction or both", often: 2, least: 200 * time.Millisecond, most: 20 * time.Second, strike: (*storm).freezePath},
	{Name: "proxy-freeze-listener", Help: "the same for the listener's connection only", often: 2, least: 500 * time.Millisecond, most: 40 * time.Second, strike: (*storm).freezeListener},
	{Name: "proxy-delay", Help: "every packet between a node and the database takes 1 to 100 ms longer", often: 2, least: time.Second, most: 8 * time.Second, strike: (*storm).delay},
	{Name: "terminate", Help: "up to four backends of getwork are terminated", often: 3, strike: (*storm).terminate},
	{Name: "kill-told", Help: "kill -9 of a node that has just answered a change that others must be told of", often: 2, least: 10 * time.Millisecond, most: 3 * time.Second, strike: (*storm).killTold},
	{Name: jumps, Help: "PostgreSQL's clock is set forward or back by a second to two hours, and usually set right later", often: 3, least: time.Second, most: 15 * time.Second, strike: (*storm).jump},
	{Name: "receiver-fails", Help: "the receiver of web hooks answers with errors, or hangs up", often: 1, least: 200 * time.Millisecond, most: 5 * time.Second, hooks: true, strike: (*storm).failReceiver},
	{Name: "receiver-slow", Help: "the receiver of web hooks answers late, or too late", often: 1, least: 200 * time.Millisecond, most: 5 * time.Second, hooks: true, strike: (*storm).slowReceiver},
	{Name: "receiver-away", Help: "the receiver of web hooks can't be reached", often: 1, least: 200 * time.Millisecond, most: 15 * time.Second, hooks: true, strike: (*storm).loseReceiver},
	{Name: "end-sessions", Help: "an administrator ends somebody's sessions", often: 4, rights: true, strike: (*storm).endSessions},
	{Name: "end-token", Help: "an administrator ends a token", often: 4, rights: true, strike: (*storm).endToken},
	{Name: "log-out", Help: "somebody logs out", often: 3, rights: true, strike: (*storm).logOut},
	{Name: "log-out-there", Help: "somebody logs out at the provider, which sends a message", often: 3, rights: true, strike: (*storm).logOutThere},
	{Name: "log-in-again", Help: "somebody logs in in the same browser, which replaces their session", often: 2, rights: true, strike: (*storm).logInAgain},
	{Name: "block", Help: "somebody is blocked, and let in again", often: 4, least: 200 * time.Millisecond, most: 8 * time.Second, rights: true, strike: (*storm).block},
	{Name: "rebind", Help: "somebody's name is given to another account, with which they go on", often: 2, rights: true, strike: (*storm).rebind},
	{Name: "regroup", Help: "somebody is taken out of a group at the provider, and put back", often: 3, least: 2 * time.Second, most: 10 * time.Second, rights: true, strike: (*storm).regroup},
	{Name: "provider-away", Help: "the provider goes away while it is asked about sessions, and returns", often: 1, least: 2 * time.Second, most: 15 * time.Second, rights: true, strike: (*storm).away},
}

// onProcess does something to the process of a node that can be spared.
func (s *storm) onProcess(f planned, do func(m *member)) {
	m, back := s.spare(f.node, func(m *member) bool { return m.process.TryLock() })
	if m == nil {
		s.skip()
		return
	}
	defer back()
	defer m.process.Unlock()
	do(m)
}

// restarted starts a node again. If that fails it records a finding, and the run goes on.
func (s *storm) restarted(m *member) {
	if err := m.start(s.stage.ctx); err != nil && s.stage.ctx.Err() == nil {
		s.findings.add("process", "after a fault, %v", err)
	}
}

func (s *storm) kill(f planned) {
	s.onProcess(f, func(m *member) {
		s.strike(f, m.number, "", m.kill, func() { s.restarted(m) })
	})
}

// killTold kills the node that answers the next change.
func (s *storm) killTold(f planned) {
	ctx, cancel := context.WithTimeout(s.ctx, 5*time.Second)
	defer cancel()
	select {
	case f.node = <-s.answered:
		s.kill(f)
	case <-ctx.Done():
		s.skip()
	}
}

func (s *storm) freeze(f planned) {
	s.onProcess(f, func(m *member) {
		s.strike(f, m.number, "", func() { _ = m.node.Signal(syscall.SIGSTOP) }, func() { _ = m.node.Signal(syscall.SIGCONT) })
	})
}

func (s *storm) drain(f planned) {
	s.onProcess(f, func(m *member) {
		s.strike(f, m.number, "", m.drain, func() { s.restarted(m) })
	})
}

// inRun waits until a query runs, and then a random time, so that the fault hits the query, its round, or what follows.
func (s *storm) inRun(f planned, strike func(planned)) {
	ctx, cancel := context.WithTimeout(s.ctx, 5*time.Second)
	defer cancel()
	node, ok := s.seen.awaitRun(ctx)
	if !ok {
		s.skip()
		return
	}
	f.node = node
	s.pause(time.Duration(f.chance % uint64(700*time.Millisecond)))
	strike(f)
}

func (s *storm) killRun(f planned)   { s.inRun(f, s.kill) }
func (s *storm) freezeRun(f planned) { s.inRun(f, s.freeze) }

// onDatabase does something to the server, one fault at a time.
func (s *storm) onDatabase(f planned, end func()) {
	if !s.database.TryLock() {
		s.skip()
		return
	}
	defer s.database.Unlock()
	s.epoch.Add(1)
	defer s.epoch.Add(1)
	s.strike(f, -1, "", end, func() {
		if err := s.server.Restart(s.stage.ctx); err != nil && s.stage.ctx.Err() == nil {
			s.findings.add("database", "PostgreSQL does not start again: %v", err)
		}
	})
}

func (s *storm) crash(f planned) { s.onDatabase(f, s.server.Crash) }
func (s *storm) halt(f planned)  { s.onDatabase(f, func() { s.server.Halt(s.stage.ctx) }) }

func (s *storm) cut(f planned) {
	m := s.members[f.node]
	s.strike(f, m.number, "", func() { m.touched.Add(1); m.main.Cut(); m.listen.Cut() }, func() {})
}

func (s *storm) cutListener(f planned) {
	m := s.members[f.node]
	s.strike(f, m.number, "", func() { m.touched.Add(1); m.listen.Cut() }, func() {})
}

// onPath does something to the path between the database and a node that can be spared.
func (s *storm) onPath(f planned, note string, do, undo func(m *member)) {
	m, back := s.spare(f.node, func(m *member) bool { return m.path.TryLock() })
	if m == nil {
		s.skip()
		return
	}
	defer back()
	defer m.path.Unlock()
	m.touched.Add(1)
	defer m.touched.Add(1)
	s.strike(f, m.number, note, func() { do(m) }, func() { undo(m) })
}

func (s *storm) refuse(f planned) {
	s.onPath(f, "", func(m *member) { m.main.Refuse(true); m.main.Cut() }, func(m *member) { m.main.Refuse(false) })
}

func (s *storm) freezePath(f planned) {
	d, note := direction(f)
	s.onPath(f, note, func(m *member) { m.main.Freeze(d) }, func(m *member) { m.main.Thaw() })
}

// direction returns the direction in which a proxy freezes, usually both.
func direction(f planned) (proxy.Direction, string) {
	switch f.chance % 4 {
	case 0:
		return proxy.ToServer, "to the server"
	case 1:
		return proxy.ToClient, "to the node"
	}
	return proxy.Both, ""
}

func (s *storm) freezeListener(f planned) {
	m := s.members[f.node]
	if !m.ear.TryLock() {
		s.skip()
		return
	}
	defer m.ear.Unlock()
	m.touched.Add(1)
	defer m.touched.Add(1)
	d, note := direction(f)
	if deaf := s.scenario.deaf; deaf > 0 {
		f.lasts = deaf
	}
	s.strike(f, m.number, note, func() { m.listen.Freeze(d) }, m.listen.Thaw)
}

func (s *storm) delay(f planned) {
	m := s.members[f.node]
	if !m.path.TryLock() {
		s.skip()
		return
	}
	defer m.path.Unlock()
	by := time.Millisecond * time.Duration(1+f.chance%100)
	s.strike(f, m.number, by.String(), func() { m.main.Delay(by); m.listen.Delay(by) }, func() { m.main.Delay(0); m.listen.Delay(0) })
}
