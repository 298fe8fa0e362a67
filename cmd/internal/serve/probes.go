package serve

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"getwork/web"
)

// probes remembers when readiness was asked for. A load balancer asks again and again, and sends new connections here
// until it has heard "no" often enough. If the listening socket closed before that, some of them would be refused.
type probes struct {
	mu           sync.Mutex
	last, before time.Time // the times of the last two probes
}

// probedWithin is the longest time between two probes of a load balancer that watches this node.
const probedWithin = 30 * time.Second

// asked records a probe.
func (p *probes) asked() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last, p.before = time.Now(), p.last
}

// watched reports whether probes come regularly. The node can't know how many load balancers probe it, nor how many
// failures each needs to see.
func (p *probes) watched() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Since(p.before) < probedWithin
}

// checks returns the conditions for serving.
func (n *node) checks(ctx context.Context) []web.Check {
	checks := []web.Check{{Name: "serving"}, {Name: "database"}, {Name: "listener", Note: true}}
	n.probes.asked()
	if n.draining.Load() {
		checks[0].Err = errors.New("the node is shutting down")
	}
	if err := n.databaseFault(ctx); err != nil {
		checks[1].Err = err
		n.logUnready(ctx, err)
	}
	if !n.feed.Listening() {
		checks[2].Err = errors.New("not listening: results are found by polling, every few seconds")
		if n.deaf != nil {
			checks[2].Err = n.deaf
		}
	}
	return checks
}

// logUnready tells the operator why probes fail, since those who probe are not told. A probe that is given up says nothing
// about the database.
func (n *node) logUnready(ctx context.Context, fault error) {
	if errors.Is(ctx.Err(), context.Canceled) {
		return
	}
	if facts := n.unready.Again("readiness", fault); facts != nil {
		n.log.Error("not ready: the database can't be used", facts...)
	}
}

// selectSchema locks no table. A migration, or whoever else locks one, does not make nodes unready.
const selectSchema = `select to_regclass('getwork.schema_version') is not null`

// databaseFault says why the database can't be used. It does not ask the API's pool: however much there is to do, the node is there.
func (n *node) databaseFault(ctx context.Context) error {
	var there bool
	err := n.pools.Signals.QueryRow(ctx, n.schema.SQL(selectSchema)).Scan(&there)
	if err == nil && !there {
		err = fmt.Errorf("the database has no schema %s: restore it, or make an empty one with `getwork migrate up`", n.schema)
	}
	return err
}
