package bench

import (
	"context"
	"errors"
	"os"
	"time"
)

// usage is the CPU time that the parts of a measurement have used until then.
type usage struct {
	at       time.Time
	database time.Duration
	nodes    time.Duration
	self     time.Duration // this process, which is the load
}

func (u usage) since(before usage) usage {
	return usage{at: u.at, database: u.database - before.database, nodes: u.nodes - before.nodes, self: u.self - before.self}
}

// usage reads them. Where the system does not tell, they are 0.
func (e *Env) usage(nodes *Nodes) (usage, error) {
	u := usage{at: time.Now()}
	var err error
	if u.database, err = e.databaseCPU(); err != nil {
		return u, ignoreNoCPU(err)
	}
	if u.self, err = cpuOf(os.Getpid()); err != nil {
		return u, ignoreNoCPU(err)
	}
	for i := range nodes.each {
		used, err := cpuOf(nodes.PID(i))
		if err != nil {
			return u, ignoreNoCPU(err)
		}
		u.nodes += used
	}
	return u, nil
}

func ignoreNoCPU(err error) error {
	if errors.Is(err, errNoCPU) {
		return nil
	}
	return err
}

// watch reads the usage once a second until ctx ends, and once more then.
func (e *Env) watch(ctx context.Context, nodes *Nodes) ([]usage, error) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	var all []usage
	for {
		u, err := e.usage(nodes)
		if err != nil {
			return nil, err
		}
		all = append(all, u)
		if ctx.Err() != nil {
			return all, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}
