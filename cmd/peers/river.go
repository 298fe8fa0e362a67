package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// riverCommand makes this executable River's client process.
const riverCommand = "river-client"

// riverClient serves the process that started it until its input ends.
func riverClient() int {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	asked := make(chan request)
	go func() {
		defer cancel()
		defer close(asked)
		for in := json.NewDecoder(os.Stdin); ; {
			var r request
			if in.Decode(&r) != nil {
				return
			}
			select {
			case asked <- r:
			case <-ctx.Done():
				return
			}
		}
	}()
	c := &riverPeer{asked: asked, out: json.NewEncoder(os.Stdout), tally: newTally()}
	for r := range asked {
		done, err := c.do(ctx, r)
		if err != nil {
			done = answer{At: atFailed, Error: err.Error()}
		}
		if err := c.out.Encode(done); err != nil {
			return exitFailed
		}
	}
	if c.pool != nil {
		c.pool.Close()
	}
	return exitDone
}

// riverPeer carries out the requests.
type riverPeer struct {
	asked  <-chan request
	out    *json.Encoder
	url    string
	schema string
	pool   *pgxpool.Pool
	tally  *tally
}

func (c *riverPeer) do(ctx context.Context, r request) (answer, error) {
	var measured answer
	var err error
	switch r.Do {
	case "open":
		c.url, c.schema = r.URL, r.Schema
		return c.open(ctx)
	case "insert":
		measured, err = c.insert(ctx, r)
	case "insert_and_work":
		measured, err = c.insertAndWork(ctx, r)
	case "work":
		measured, err = c.work(ctx, r)
	case "latency":
		measured, err = c.latency(ctx, r)
	case "idle":
		measured, err = c.idle(ctx, r)
	default:
		err = fmt.Errorf("River's client does not know the request %s", r.Do)
	}
	if err != nil {
		return answer{}, err
	}
	measured.At = atDone
	measured.Inserted, measured.Once, measured.Twice = c.tally.counts()
	return measured, nil
}

// open creates the tables.
func (c *riverPeer) open(ctx context.Context) (answer, error) {
	if err := c.connect(ctx, 2); err != nil {
		return answer{}, err
	}
	migrator, err := rivermigrate.New(riverpgxv5.New(c.pool), &rivermigrate.Config{Schema: c.schema, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return answer{}, fmt.Errorf("create River's tables: %w", err)
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return answer{}, fmt.Errorf("create River's tables: %w", err)
	}
	versions := map[string]string{"go": runtime.Version()}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dep := range info.Deps {
			switch dep.Path {
			case "github.com/riverqueue/river":
				versions["river"] = dep.Version
			case "github.com/jackc/pgx/v5":
				versions["pgx"] = dep.Version
			}
		}
	}
	return answer{At: atDone, Versions: versions}, nil
}

// connect makes a pool with that many connections, all of them open.
func (c *riverPeer) connect(ctx context.Context, connections int) error {
	if c.pool != nil {
		c.pool.Close()
	}
	config, err := pgxpool.ParseConfig(c.url)
	if err != nil {
		return err
	}
	config.MaxConns, config.MinConns = int32(connections), int32(connections)
	if c.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return err
	}
	var held []*pgxpool.Conn
	for range connections {
		conn, err := c.pool.Acquire(ctx)
		if err != nil {
			return fmt.Errorf("open %d connections: %w", connections, err)
		}
		held = append(held, conn)
	}
	for _, conn := range held {
		conn.Release()
	}
	return nil
}

// begin and end wait until the other side has read its clocks.
func (c *riverPeer) begin(ctx context.Context) error { return c.pause(ctx, atBegin) }
func (c *riverPeer) end(ctx context.Context) error   { return c.pause(ctx, atEnd) }

func (c *riverPeer) pause(ctx context.Context, at string) error {
	if err := c.out.Encode(answer{At: at}); err != nil {
		return err
	}
	select {
	case _, ok := <-c.asked:
		if ok {
			return nil
		}
	case <-ctx.Done():
	}
	return errors.New("given up by the process that started it")
}
