package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"getwork/cmd/internal/bank"
	"getwork/cmd/internal/cli"
	"getwork/cmd/internal/idp"
	"getwork/schema/postgres"
	"getwork/web"
)

// demo is a running demo. Its parts are set as far as it was prepared.
type demo struct {
	Command
	out      io.Writer
	progress *progress
	hurry    context.Context // ends when the user does not want to wait for an orderly end

	server   *postgres.Server
	shrunk   bool      // the bank is smaller than usual, because a query took too long
	database string    // the bank's URL, with a login that owns the bank and is no superuser
	said     lastWords // PostgreSQL's latest output
	fleet    fleet
	page     net.Listener  // the demo's own page; nil: it has none
	provider *idp.Provider // where people log in; nil: nowhere
}

// broken is the error of a demo that can't go on because a part of it ended by itself.
type broken struct{ error }

// run prepares, and then serves or compares. It leaves the parts running; stop ends them.
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
		return cli.ErrInterrupted
	}
	return err
}

// prepare starts the parts, each after the parts that it needs. It calls breaks when one of them ends by itself later.
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
	// A demo that was killed may have left its simulated people.
	if err := d.forget(ctx, true); err != nil {
		return err
	}
	if !d.Naive {
		if d.page, err = listenBeside(ctx, addresses); err != nil {
			return err
		}
		d.fleet.framedBy = originOf(d.page.Addr())
	}
	if d.logsIn() {
		if err := d.startProvider(ctx); err != nil {
			return err
		}
	}
	d.progress.step("starting the nodes")
	d.fleet.database, d.fleet.lost = d.database, d.nodeLost(ctx, breaks)
	if err := d.fleet.start(ctx, addresses); err != nil {
		return err
	}
	if d.logsIn() {
		if err := d.introduceNodes(ctx); err != nil {
			return err
		}
	}
	d.progress.step("creating the tasks")
	return d.applyTasks(ctx)
}

// client returns a client of one of the living nodes, each in turn.
func (d *demo) client(i int, user string, role web.Role) (*cli.Client, error) {
	nodes := d.fleet.living()
	if len(nodes) == 0 {
		return nil, errors.New("no node runs")
	}
	remote := cli.Remote{URL: nodes[i%len(nodes)].url, User: user}
	if d.logsIn() {
		remote.User, remote.Token = "", d.accessToken(user, role)
	}
	return remote.Connect(role)
}

// manager returns a manager's client of the first living node.
func (d *demo) manager() (*cli.Client, error) { return d.client(0, "demo", web.Manager) }

func (d *demo) startPostgres(ctx context.Context, breaks context.CancelCauseFunc) error {
	d.progress.step("starting PostgreSQL")
	postgres.DropVariables()
	var err error
	d.server, err = postgres.Start(ctx, postgres.Config{Dir: d.DataDir, Log: &d.said, Parameters: map[string]string{
		// Each node has up to 16 connections and one for each of --max-runs, each naive user has one.
		"max_connections": strconv.Itoa(40 + 16*d.nodes() + max(d.Users, crowdSize)),
		// Without replication the bank's rows need not be logged as well as written; they survive a crash all the same.
		"wal_level":       "minimal",
		"max_wal_senders": "0",
	}})
	if errors.Is(err, postgres.ErrInUse) {
		return d.elsewhere(err)
	}
	if err != nil {
		return err
	}
	if err := os.Remove(d.whereabouts()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err // of a demo that was killed
	}
	ended := d.server.Done()
	go func() {
		<-ended
		breaks(broken{fmt.Errorf("PostgreSQL ended unexpectedly; it last said:\n%s", d.said.String())})
	}()
	return nil
}

// whereabouts is the file that names the address of the demo that uses this data.
func (d *demo) whereabouts() string { return filepath.Join(d.DataDir, "demo-url") }

// elsewhere says where the demo runs that uses this data, once that demo has written it down.
func (d *demo) elsewhere(inUse error) error {
	at, err := os.ReadFile(d.whereabouts())
	if err != nil || len(at) == 0 {
		return inUse
	}
	if d.Reset {
		return fmt.Errorf("a demo with this data runs: open %s\nend that one first, because --reset drops its data (%w)", at, inUse)
	}
	return fmt.Errorf("a demo with this data runs already: open %s\nanother one needs its own --data-dir and --listen (%w)", at, inUse)
}

// nodeLost reports a node that ended, and ends the demo with the last one.
func (d *demo) nodeLost(ctx context.Context, breaks context.CancelCauseFunc) func(i, left int, n *nodeProcess) {
	return func(i, left int, n *nodeProcess) {
		switch {
		case left == 0:
			breaks(broken{fmt.Errorf("node %d ended unexpectedly; it last said:\n%s", i+1, n.said.String())})
		case ctx.Err() == nil && n.killed.Load():
			d.progress.step(fmt.Sprintf("node %d was killed from the page; the other %d go on", i+1, left))
		case ctx.Err() == nil:
			d.progress.step(fmt.Sprintf("node %d ended unexpectedly; the other %d go on. It last said: %s", i+1, left, n.said.String()))
		}
	}
}

// serve prints how to use the demo, serves its page, and waits for the end.
func (d *demo) serve(ctx context.Context, took time.Duration) error {
	d.progress.end()
	text := fmt.Sprintf("Ready after %.1f s: a bank of %d loans. Its first task is %q%s.\n\n", took.Seconds(), d.Loans, firstTask, d.heaviness())
	text += fmt.Sprintf("Open %s\n\n", d.fleet.framedBy)
	nodes := d.fleet.all()
	for i, n := range nodes {
		text += fmt.Sprintf("  node %d  %s  (process %d)\n", i+1, n.url, n.cmd.Process.Pid)
	}
	text += fmt.Sprintf(`
%s
The data is in %s. To look into the database:
  psql '%s'

Ctrl-C stops everything.
`, d.invitation(nodes[0].url), d.DataDir, d.database)
	if err := os.WriteFile(d.whereabouts(), []byte(d.fleet.framedBy), 0o600); err != nil {
		return fmt.Errorf("write down the demo's address: %w", err)
	}
	if _, err := io.WriteString(d.out, text); err != nil {
		return err
	}
	return newTheatre(ctx, d).serve(ctx, d.page)
}

// invitation says what one can do.
func (d *demo) invitation(node string) string {
	if d.logsIn() {
		return fmt.Sprintf(inviteToLogIn, d.provider.Issuer, node, firstTask, node)
	}
	return fmt.Sprintf(`The page shows people on the nodes side by side. Click Get Work of "Verify user submitted bank account" as Oliver
and as Tracy: one query runs for both, and each gets different loans. Let fifty people click at once, with getwork
and without. Kill a node while its query runs: the others take over.

From a terminal:
  curl -H 'X-Getwork-User: Oliver' -H 'Prefer: wait=120' -d '{"count": 3}' %s/api/v1/tasks/%s/requests
`, node, firstTask)
}

// heaviness says how long the first task's query takes, as far as that was measured.
func (d *demo) heaviness() string {
	switch {
	case d.shrunk:
		return fmt.Sprintf(". One query took longer than %s on this machine, so the bank is a quarter of the usual one; --reset makes a whole one", bearable)
	case d.Loans != bank.DefaultLoans:
		return ""
	case d.Heavier:
		return ", whose query takes more than 30 s on two cores"
	}
	return ", whose query takes some seconds on two cores"
}

// stop ends the parts, each before the parts that it needs: first the nodes, which drain, then PostgreSQL. The page has
// ended by then.
func (d *demo) stop() error {
	if d.page != nil {
		_ = d.page.Close()
		_ = os.Remove(d.whereabouts()) // the file may not exist yet
	}
	if d.server == nil {
		return nil
	}
	d.progress.step("stopping the nodes and PostgreSQL")
	defer d.progress.end()
	d.fleet.stop(d.hurry)
	if d.provider != nil {
		_ = d.provider.Close()
	}
	ctx, cancel := context.WithTimeout(d.hurry, 30*time.Second)
	defer cancel()
	return d.server.Stop(ctx)
}
