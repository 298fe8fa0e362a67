package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"getwork/cmd/internal/bank"
	"getwork/schema/postgres"
	"getwork/web"
)

// demo is one that runs. Its parts are there as far as it was prepared.
type demo struct {
	demoCmd
	out      io.Writer
	progress *progress
	hurry    context.Context // ends when somebody can't wait for an orderly end

	server  *postgres.Server
	said    lastWords // what PostgreSQL printed
	nodes   []*nodeProcess
	manager *client // of the first node
}

// broken is why a demo can't go on: a part of it ended by itself.
type broken struct{ error }

// run prepares, and then serves or compares. It leaves the parts running: see stop.
func (d *demo) run(parent context.Context) error {
	ctx, breaks := context.WithCancelCause(parent)
	defer breaks(nil)
	began := time.Now()
	err := d.prepare(ctx, breaks)
	switch {
	case err != nil:
	case d.Naive:
		err = d.compare(ctx)
	default:
		err = d.serve(ctx, time.Since(began))
	}
	d.progress.end()
	var why broken
	if errors.As(context.Cause(ctx), &why) {
		return why.error
	}
	if err != nil && parent.Err() != nil {
		return errInterrupted
	}
	return err
}

// prepare starts the parts, each after what it needs. breaks is called when one of them ends by itself later.
func (d *demo) prepare(ctx context.Context, breaks context.CancelCauseFunc) error {
	addresses, err := d.addresses()
	if err != nil {
		return err
	}
	if err := d.startPostgres(ctx, breaks); err != nil {
		return err
	}
	if err := areFree(ctx, addresses); err != nil {
		return err
	}
	if err := d.openBank(ctx); err != nil {
		return err
	}
	d.progress.step("starting the nodes")
	if err := d.startNodes(ctx, addresses, breaks); err != nil {
		return err
	}
	d.progress.step("creating the tasks")
	if d.manager, err = d.client(0, "demo", web.Manager); err != nil {
		return err
	}
	return d.applyTasks(ctx)
}

// client is somebody at the i-th node.
func (d *demo) client(i int, user string, role web.Role) (*client, error) {
	return remote{URL: d.nodes[i].url, User: user}.connect(role)
}

func (d *demo) startPostgres(ctx context.Context, breaks context.CancelCauseFunc) error {
	d.progress.step("starting PostgreSQL")
	var err error
	d.server, err = postgres.Start(ctx, postgres.Config{Dir: d.DataDir, Log: &d.said, Parameters: map[string]string{
		// Each node has some 11 connections, each naive user one.
		"max_connections": strconv.Itoa(40 + 15*d.Nodes + d.Users),
		// Without replication the bank's rows need not be logged beside being written, and survive a crash the same.
		"wal_level":       "minimal",
		"max_wal_senders": "0",
	}})
	if err != nil {
		return err
	}
	ended := d.server.Done()
	go func() {
		<-ended
		breaks(broken{fmt.Errorf("PostgreSQL ended unexpectedly; it last said:\n%s", d.said.String())})
	}()
	return nil
}

// startNodes starts the nodes, one after the other: it takes some hundredths of a second each. A node that dies later
// is told of, and the others go on; with the last one the demo ends.
func (d *demo) startNodes(ctx context.Context, addresses []string, breaks context.CancelCauseFunc) error {
	var alive atomic.Int64
	for i, address := range addresses {
		n, err := startNode(ctx, address, d.server.URL(bankDatabase))
		if err != nil {
			return fmt.Errorf("node %d: %w", i+1, err)
		}
		d.nodes = append(d.nodes, n)
		alive.Add(1)
		go func() {
			<-n.done
			if left := alive.Add(-1); left > 0 && ctx.Err() == nil {
				d.progress.step(fmt.Sprintf("node %d ended unexpectedly; the other %d go on. It last said: %s", i+1, left, n.said.String()))
				return
			}
			breaks(broken{fmt.Errorf("node %d ended unexpectedly; it last said:\n%s", i+1, n.said.String())})
		}()
	}
	return nil
}

// serve tells how to use it, and waits for the end.
func (d *demo) serve(ctx context.Context, took time.Duration) error {
	d.progress.end()
	text := fmt.Sprintf("Ready after %.1f s: a bank of %d loans. Its first task is %q%s.\n\n", took.Seconds(), d.Loans, firstTask, d.heaviness())
	for i, n := range d.nodes {
		text += fmt.Sprintf("  node %d  %s  (process %d)\n", i+1, n.url, n.cmd.Process.Pid)
	}
	text += fmt.Sprintf(`
Open the first in one browser tab, and the second in another. Pick names, such as Oliver and Tracy, and click
Get Work of "Verify user submitted bank account" on both: one query runs for them, and each gets loans of his
own. End a node with kill -9 while its query runs: the others take over.

From a terminal:
  curl -H 'X-Getwork-User: Oliver' -H 'Prefer: wait=120' -d '{"count": 3}' %s/api/v1/tasks/%s/requests

The data is in %s. To look into the database:
  psql '%s'

Ctrl-C stops all of it.
`, d.nodes[0].url, firstTask, d.DataDir, d.server.URL(bankDatabase))
	if _, err := io.WriteString(d.out, text); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// heaviness says how long the first task's query takes, as far as that was measured.
func (d *demo) heaviness() string {
	switch {
	case d.Loans != bank.DefaultLoans:
		return ""
	case d.Heavier:
		return ", whose query takes more than 30 s on two cores"
	}
	return ", whose query takes some seconds on two cores"
}

// stop ends the parts, each before what it needs: first the nodes, which drain, then PostgreSQL.
func (d *demo) stop() error {
	if d.server == nil {
		return nil
	}
	d.progress.step("stopping the nodes and PostgreSQL")
	defer d.progress.end()
	var g errgroup.Group
	for _, n := range d.nodes {
		g.Go(func() error { n.stop(d.hurry); return nil })
	}
	_ = g.Wait()
	ctx, cancel := context.WithTimeout(d.hurry, 30*time.Second)
	defer cancel()
	return d.server.Stop(ctx)
}
