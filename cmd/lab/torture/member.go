package torture

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"getwork/cmd/internal/node"
	"getwork/cmd/internal/proxy"
)

// member is a node with its two paths to the database.
type member struct {
	stage  *stage
	number int
	node   *node.Node
	main   *proxy.Proxy // for everything except the listener, queries included
	listen *proxy.Proxy // for the listener

	process sync.Mutex // held by a fault of the process: kill, freeze, start
	path    sync.Mutex // held by a fault of the main proxy
	ear     sync.Mutex // held by a fault of the listener's proxy

	away    atomic.Int32 // how many faults keep the node from serving
	touched atomic.Int64 // counts events that may make a start fail

	// The current process; changed only while process is held.
	running bool
	meant   *atomic.Bool // its end is intended
}

// drainWithin is how long a node may take to end after SIGTERM: its --drain-timeout, and some time for a busy machine.
const (
	drainTimeout = 10 * time.Second
	drainWithin  = drainTimeout + 10*time.Second
)

// name returns the application_name of a node's connections.
func (m *member) name() string { return fmt.Sprintf("torture-%d", m.number) }

func newMember(s *stage, number int) (m *member, err error) {
	m = &member{stage: s, number: number}
	target, err := proxy.Target(s.url)
	if err != nil {
		return nil, err
	}
	var urls [2]string
	for i, p := range []**proxy.Proxy{&m.main, &m.listen} {
		if *p, err = proxy.Start(target); err != nil {
			return nil, err
		}
		if urls[i], err = (*p).URL(s.login); err != nil {
			return nil, err
		}
		urls[i] += "&application_name=" + m.name()
	}
	env := []string{"GETWORK_LISTEN_DATABASE_URL=" + urls[1]}
	if s.queries != "" {
		queries, err := m.main.URL(s.queries)
		if err != nil {
			return nil, err
		}
		env = append(env, "GETWORK_QUERY_DATABASE_URL="+queries+"&application_name="+m.name())
	}
	scenario, _ := scenarioOf(s.o.Scenario)
	m.node = node.New(node.Options{
		Binary: s.binary, DatabaseURL: urls[0],
		Args: append([]string{"--max-runs", "4", "--drain-timeout", drainTimeout.String()}, slices.Concat(scenario.flags, s.logIns.flagsOf(s, number), s.receiver.flags(), s.o.Flags)...),
		Env:  env,
	})
	return m, nil
}

// startsTooLate is how many starts of a node may fail because a busy database did not answer in time.
const startsTooLate = 3

// start starts the process and waits until it serves. A start that a fault may have spoilt is repeated; one that fails
// otherwise is an error.
func (m *member) start(ctx context.Context) error {
	for late := 0; ; {
		before := m.stage.epoch.Load() + m.touched.Load()
		m.running, m.meant = true, new(atomic.Bool)
		if m.stage.upgraded.Load() {
			m.node.Use(m.stage.newer)
		} else {
			m.node.Use(m.stage.binary)
		}
		err := m.node.Start(ctx)
		if err == nil {
			go m.watch(m.node.Done(), m.meant)
			return nil
		}
		m.kill()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if m.calm() && m.touched.Load()+m.stage.epoch.Load() == before {
			if late++; late == startsTooLate || !tooLate(err) {
				return fmt.Errorf("node %d does not start: %w", m.number, err)
			}
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// tooLate reports whether a node ended because the database did not answer it in time. A service manager would start it again.
func tooLate(err error) bool {
	return strings.Contains(err.Error(), "can't connect to the database") && strings.Contains(err.Error(), "timeout")
}

// calm reports whether nothing is wrong with the database and the paths to it.
func (m *member) calm() bool {
	for _, broken := range []*sync.Mutex{&m.stage.database, &m.path, &m.ear} {
		if !broken.TryLock() {
			return false
		}
		broken.Unlock()
	}
	return true
}

// watch finds a process that ends although nobody ended it.
func (m *member) watch(done <-chan struct{}, meant *atomic.Bool) {
	<-done
	if meant.Load() {
		return
	}
	m.process.Lock()
	defer m.process.Unlock()
	if m.meant == meant { // nobody has started the node again
		m.stage.findings.add("process", "node %d ended by itself: %v\n%s", m.number, m.node.Err(), tail(m.node.Output(), 40))
		m.kill()
		if err := m.start(m.stage.ctx); err != nil && m.stage.ctx.Err() == nil {
			m.stage.findings.add("process", "after it ended by itself, %v", err)
		}
	}
}

// kill ends the process at once, if there is one.
func (m *member) kill() {
	if !m.running {
		return
	}
	m.meant.Store(true)
	if m.node.Started() {
		m.node.Kill()
		m.keepOutput()
	}
	m.running = false
}

// drain asks the process to end, and checks that it does so in time and with status 0.
func (m *member) drain() {
	if !m.running {
		return
	}
	m.meant.Store(true)
	late := time.AfterFunc(drainWithin, func() {
		m.stage.findings.add("drain", "node %d did not end within %v after SIGTERM\n%s", m.number, drainWithin, tail(m.node.Output(), 40))
		_ = m.node.Signal(syscall.SIGABRT) // writes its goroutines' stacks to its log
		time.AfterFunc(2*time.Second, func() { _ = m.node.Signal(syscall.SIGKILL) })
	})
	err := m.node.Terminate()
	if late.Stop() && err != nil {
		m.stage.findings.add("drain", "node %d ended with %v after SIGTERM, not with status 0\n%s", m.number, err, tail(m.node.Output(), 40))
	}
	m.keepOutput()
	m.running = false
}

// keepOutput appends a process's output to its node's log, and looks for lines that no node may print.
func (m *member) keepOutput() {
	text := m.node.Output()
	if complaint := node.Complaint(text); complaint != "" {
		m.stage.findings.add("process", "node %d reports:\n%s", m.number, head(complaint, 60))
	}
	f, err := os.OpenFile(filepath.Join(m.stage.dir, fmt.Sprintf("node-%d.log", m.number)), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		m.stage.o.Log("keep a node's log: %v", err)
		return
	}
	defer f.Close()
	_, _ = f.WriteString(text + "\n")
}

// end ends the process and the proxies for good.
func (m *member) end() {
	m.process.Lock()
	m.kill()
	m.process.Unlock()
	m.main.Close()
	m.listen.Close()
}

// head returns the first lines of a text.
func head(text string, lines int) string {
	all := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(all[:min(len(all), lines)], "\n")
}

// tail returns the last lines of a text.
func tail(text string, lines int) string {
	all := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
