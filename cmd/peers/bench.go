package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/cmd/internal/cputime"
)

// bench is one run of the command.
type bench struct {
	rounds  int
	seconds float64
	log     func(format string, args ...any)

	url        string
	postmaster int // the server's first process; 0: unknown, and its CPU is left out
	report     *report
}

// run measures every peer, round by round.
func (b *bench) run(ctx context.Context, url string) (*report, error) {
	if url == "" {
		private, stop, err := startPrivate(ctx)
		if err != nil {
			return nil, err
		}
		defer stop(b.log)
		url = private
	}
	b.url = url
	b.report = &report{Facts: facts{Rounds: b.rounds, Seconds: b.seconds, Versions: map[string]string{}}}
	if err := b.inspect(ctx); err != nil {
		return nil, err
	}
	peers := []peer{riverQueue()}
	modules, err := installModules(ctx)
	switch {
	case err == nil:
		defer modules.remove(b.log)
		peers = append(peers, modules.graphile(), modules.boss())
	case ctx.Err() != nil:
		return nil, err
	default:
		b.note("Graphile Worker and pg-boss are left out: " + err.Error())
	}
	own, err := buildGetwork(ctx)
	switch {
	case err == nil:
		defer own.remove(b.log)
	case ctx.Err() != nil:
		return nil, ctx.Err()
	default:
		b.note("getwork itself is left out: " + err.Error())
	}
	for round := range b.rounds {
		if own != nil {
			b.log("round %d of %d: getwork", round+1, b.rounds)
			if err := b.measureGetwork(ctx, own); err != nil {
				return nil, fmt.Errorf("getwork: %w", err)
			}
		}
		for _, p := range peers {
			b.log("round %d of %d: %s", round+1, b.rounds, p.name)
			if err := b.measure(ctx, p); err != nil {
				return nil, fmt.Errorf("%s: %w", p.name, err)
			}
		}
	}
	return b.report, nil
}

func (b *bench) note(text string) {
	b.log("%s", text)
	b.report.Notes = append(b.report.Notes, text)
}

// inspect records the facts of machine and server.
func (b *bench) inspect(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, b.url)
	if err != nil {
		return fmt.Errorf("connect to the database: %w", err)
	}
	defer conn.Close(ctx)
	if err := b.report.Facts.fill(ctx, conn); err != nil {
		return err
	}
	if b.postmaster, err = cputime.Postmaster(ctx, conn); err != nil {
		return err
	}
	if b.postmaster == 0 {
		b.note("the database's CPU is left out: its processes can't be seen from here")
	}
	return nil
}

// measure measures each of a peer's figures once, in a new schema and with a new client process.
func (b *bench) measure(ctx context.Context, p peer) (err error) {
	schema, drop, err := b.makeSchema(ctx)
	if err != nil {
		return err
	}
	defer drop()
	c, err := launch(ctx, p.command)
	if err != nil {
		return err
	}
	defer func() { // before its schema is dropped
		if stopped := c.stop(); err == nil {
			err = stopped
		}
	}()
	opened, err := c.ask(ctx, request{Do: "open", URL: b.url, Schema: schema}, nil)
	if err != nil {
		return err
	}
	maps.Copy(b.report.Facts.Versions, opened.Versions)
	// Warm up plans, caches and compilers first, and don't measure with empty tables.
	for _, m := range p.measurements {
		if m.kind == rate {
			if err := b.take(ctx, c, p, schema, m, min(b.seconds, 0.5), nil); err != nil {
				return fmt.Errorf("%s, to warm up: %w", m.name, err)
			}
			break
		}
	}
	for _, m := range p.measurements {
		if err := b.take(ctx, c, p, schema, m, b.seconds, b.report); err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
	}
	return nil
}

// take measures once, checks the result, and adds it to the report, if there is one.
func (b *bench) take(ctx context.Context, c *child, p peer, schema string, m measurement, seconds float64, to *report) error {
	r := m.request
	r.Seconds = seconds
	r.Jobs = int(float64(m.jobsPerSecond) * seconds)
	var clock clocks
	done, err := c.ask(ctx, r, func(end bool) error { return clock.read(c.pid(), b.postmaster, end) })
	if err != nil {
		return err
	}
	if err := b.check(ctx, p, schema, done); err != nil {
		return err
	}
	if to == nil {
		return nil
	}
	to.add(p, m, done, clock, b.postmaster != 0)
	return nil
}

// check fails unless every inserted job was worked exactly once, by the count of the client and of the database. Then
// it tidies the tables, before autovacuum would in the middle of the next measurement.
func (b *bench) check(ctx context.Context, p peer, schema string, done answer) error {
	if done.Once != done.Inserted || done.Twice != 0 {
		return fmt.Errorf("of %d inserted jobs %d were worked once, %d more often", done.Inserted, done.Once, done.Twice)
	}
	conn, err := pgx.Connect(ctx, b.url)
	if err != nil {
		return fmt.Errorf("connect to the database: %w", err)
	}
	defer conn.Close(ctx)
	var worked, left int
	if err := conn.QueryRow(ctx, fmt.Sprintf(p.count, pgx.Identifier{schema}.Sanitize())).Scan(&worked, &left); err != nil {
		return fmt.Errorf("count the jobs: %w", err)
	}
	if p.deletes {
		worked = done.Once
	}
	if worked != done.Inserted || left != 0 {
		return fmt.Errorf("of %d inserted jobs the database has %d as done, and %d others", done.Inserted, worked, left)
	}
	return tidy(ctx, conn, schema)
}

const selectTables = `
select format('vacuum (analyze) %I.%I', schemaname, tablename) from pg_tables where schemaname = $1 order by tablename`

func tidy(ctx context.Context, conn *pgx.Conn, schema string) error {
	rows, err := conn.Query(ctx, selectTables, schema)
	if err != nil {
		return fmt.Errorf("list the tables: %w", err)
	}
	statements, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("list the tables: %w", err)
	}
	for _, statement := range statements {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}

// makeSchema creates a schema of our own, and returns a function that drops it, even after Ctrl-C.
func (b *bench) makeSchema(ctx context.Context) (name string, drop func(), err error) {
	var random [4]byte
	_, _ = rand.Read(random[:])
	name = "getwork_peers_" + hex.EncodeToString(random[:])
	if err := b.exec(ctx, "create schema "+name); err != nil {
		return "", nil, fmt.Errorf("create a schema: %w", err)
	}
	return name, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpWithin)
		defer cancel()
		if err := b.exec(ctx, "drop schema if exists "+name+" cascade"); err != nil {
			b.log("the schema %s is left behind, drop it with: drop schema %s cascade (%v)", name, name, err)
		}
	}, nil
}

func (b *bench) exec(ctx context.Context, statement string) error {
	conn, err := pgx.Connect(ctx, b.url)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, statement)
	return err
}

// clocks are read before and after a measurement.
type clocks struct {
	client, database time.Duration
	known            bool // the client's is known, and with its postmaster the database's
}

// read reads the clocks at the start, and at the end leaves in them the time that has passed.
func (c *clocks) read(client, postmaster int, end bool) error {
	own, err := cputime.Process(client)
	if err != nil {
		return nil // no /proc on this system
	}
	var server time.Duration
	if postmaster != 0 {
		if server, err = cputime.Server(postmaster); err != nil {
			return fmt.Errorf("read the database's CPU: %w", err)
		}
	}
	if !end {
		c.client, c.database = own, server
		return nil
	}
	c.client, c.database, c.known = own-c.client, server-c.database, true
	return nil
}

// percentile returns the smallest value that so many percent don't exceed.
func percentile(values []float64, percent int) float64 {
	sorted := slices.Sorted(slices.Values(values))
	at := (len(sorted)*percent + 99) / 100
	return sorted[max(at, 1)-1]
}
