package demo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"getwork/cmd/internal/serve"
)

// fleet is a demo's nodes. Each can be killed, and started again at its address.
type fleet struct {
	database string                            // its URL
	framedBy string                            // the page that may show them in frames; empty: none
	identity []string                          // the flags that say how people log in; nil: they don't
	lost     func(i, left int, n *nodeProcess) // called when a node has ended by itself or was killed; left nodes live on

	starting sync.Mutex      // held while nodes are started
	named    map[string]bool // the ids of all nodes that were ever started; guarded by starting
	mu       sync.Mutex
	nodes    []*nodeProcess // in the order of their addresses
	changed  chan struct{}  // closed when a node has ended or was started; nil: nobody waits for that
}

// start starts all nodes one after the other; each takes some hundredths of a second.
func (f *fleet) start(ctx context.Context, addresses []string) error {
	f.starting.Lock()
	defer f.starting.Unlock()
	for i, address := range addresses {
		n, err := f.startNode(ctx, address)
		if err != nil {
			return fmt.Errorf("node %d: %w", i+1, err)
		}
		f.learnName(ctx, n)
		f.mu.Lock()
		f.nodes = append(f.nodes, n)
		f.mu.Unlock()
	}
	for i, n := range f.all() {
		go f.watch(i, n)
	}
	return nil
}

// learnName finds the id of a node that was just started: that of the sessions that no other node has. Nodes start one after
// the other. It stays unknown if the database can't say; the page then doesn't name the node.
func (f *fleet) learnName(ctx context.Context, n *nodeProcess) {
	conn, err := pgx.Connect(ctx, f.database)
	if err != nil {
		return
	}
	defer conn.Close(context.WithoutCancel(ctx))
	rows, _ := conn.Query(ctx, `select distinct application_name from pg_stat_activity where datname = current_database()`)
	sessions, _ := pgx.CollectRows(rows, pgx.RowTo[string])
	for _, session := range sessions {
		id, _, ok := serve.ParseSessionName(session)
		if ok && !f.named[id] {
			if f.named == nil {
				f.named = map[string]bool{}
			}
			n.name, f.named[id] = id, true
		}
	}
}

func (f *fleet) watch(i int, n *nodeProcess) {
	<-n.done
	f.change()
	f.lost(i, len(f.living()), n)
}

// change wakes the goroutines that wait for a node to end or start.
func (f *fleet) change() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.changed != nil {
		close(f.changed)
		f.changed = nil
	}
}

// next returns a channel that is closed at the next change.
func (f *fleet) next() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.changed == nil {
		f.changed = make(chan struct{})
	}
	return f.changed
}

// all returns the nodes, including those that have ended.
func (f *fleet) all() []*nodeProcess {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.nodes)
}

func (f *fleet) living() []*nodeProcess { return slices.DeleteFunc(f.all(), (*nodeProcess).ended) }

var (
	errLastNode  = errors.New("this is the last living node, and the demo would end with it")
	errNodeLives = errors.New("the node lives")
	errStarting  = errors.New("a node is being started; wait for it")
)

// kill ends a node as kill -9 does.
func (f *fleet) kill(i int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.nodes[i]
	others := slices.ContainsFunc(f.nodes, func(other *nodeProcess) bool { return other != n && !other.ended() })
	if !others {
		return errLastNode
	}
	n.killed.Store(true)
	n.kill()
	return nil
}

// restart starts a node that has ended, at its former address.
func (f *fleet) restart(ctx context.Context, i int) error {
	if !f.starting.TryLock() {
		return errStarting
	}
	defer f.starting.Unlock()
	old := f.all()[i]
	if !old.ended() {
		return errNodeLives
	}
	n, err := f.startNode(ctx, strings.TrimPrefix(old.url, "http://"))
	if err != nil {
		return fmt.Errorf("node %d: %w", i+1, err)
	}
	f.learnName(ctx, n)
	f.mu.Lock()
	f.nodes[i] = n
	f.mu.Unlock()
	f.change()
	go f.watch(i, n)
	return nil
}

// stop drains all nodes and waits until they have ended; when hurry ends it kills them.
func (f *fleet) stop(hurry context.Context) {
	f.starting.Lock()
	defer f.starting.Unlock()
	var g errgroup.Group
	for _, n := range f.all() {
		g.Go(func() error { n.stop(hurry); return nil })
	}
	_ = g.Wait()
}
