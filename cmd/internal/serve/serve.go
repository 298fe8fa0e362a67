// Package serve runs one node, and migrates the schema: the only package that knows all parts of the program.
package serve

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"regexp"
	"slices"
	"time"

	"getwork/cmd/internal/command"
)

// Command is one node's configuration.
type Command struct {
	Version string `kong:"-"` // of the program, as /metrics has it

	DatabaseURL           string        `help:"PostgreSQL to work in, as postgres://…" env:"GETWORK_DATABASE_URL,DATABASE_URL" placeholder:"URL"`
	DatabaseURLFile       string        `help:"Read that URL from this file, so that no password shows in the list of processes; it beats --database-url." placeholder:"FILE" complete:"file"`
	ListenDatabaseURL     string        `help:"A direct, session-mode connection for LISTEN and migrations, where --database-url goes through a pooler." placeholder:"URL"`
	QueryDatabaseURL      string        `help:"Run the ranking queries here: a read replica, or a login that may only read." placeholder:"URL"`
	ListenDatabaseURLFile string        `help:"Read --listen-database-url from this file." placeholder:"FILE" complete:"file"`
	QueryDatabaseURLFile  string        `help:"Read --query-database-url from this file." placeholder:"FILE" complete:"file"`
	Pooled                bool          `help:"--database-url goes through a transaction pooler: keep no session state."`
	QueryRole             string        `help:"Role that ranking queries are run as (set local role)." placeholder:"ROLE"`
	Schema                string        `help:"The schema that getwork's tables are in." default:"getwork"`
	Listen                string        `help:"Address to serve on (default ${default}); port 0 picks a free one." default:"127.0.0.1:8080" placeholder:"ADDR"`
	NoListen              bool          `help:"Do not LISTEN: results are found by polling only."`
	NoMigrate             bool          `help:"Do not change the schema; refuse to start if it is not the one that is needed."`
	Auth                  string        `help:"How people are known. dev: by name, and only on a loopback address." default:"dev" enum:"dev"`
	FrameAncestors        string        `help:"The one page that may show this node's in a frame, such as http://127.0.0.1:8083. Without it none may." placeholder:"URL"`
	MaxRuns               int           `help:"Ranking queries that this node runs at the same time." default:"2"`
	MaxCalls              int           `help:"Calls that this node serves at the same time, an eighth of them, and at least 32, for one user; more are answered 429." default:"1024"`
	MaxSockets            int           `help:"Live channels that this node keeps open, an eighth of them, and at least 32, for one user, and as many event streams and held answers." default:"20000"`
	Retention             time.Duration `help:"How long finished work, items and requests are kept (default ${default}, 90 days)." default:"2160h"`
	DrainTimeout          time.Duration `help:"How long a shutdown may take. A fifth of it is for load balancers to notice, if /readyz is watched." default:"15s"`
	LogFormat             string        `help:"text or json." default:"text" enum:"text,json"`
	LogLevel              slog.Level    `help:"debug, info, warn or error." default:"info"`
	PrivatePostgres       bool          `help:"Start a PostgreSQL of this node's own, if there is no --database-url."`
	DataDir               string        `help:"Where the private PostgreSQL keeps its data; see above." placeholder:"DIR"`
	UntilStdinCloses      bool          `hidden:"" help:"Shut down when standard input is closed: a parent process that dies takes this one along."`
}

// errNoDatabase: a node that lost its URL must not become a private island.
var errNoDatabase = command.Usage("no database: give --database-url (or DATABASE_URL), or --private-postgres for one of its own; `getwork demo` starts a whole sample")

var errPostgresEnded = errors.New("the private PostgreSQL ended by itself; start the node again, the data is kept")

// origin is what a header that names one has room for.
var origin = regexp.MustCompile(`^https?://[A-Za-z0-9.-]+(:[0-9]+)?$`)

// Check reads the URLs that are in files, and returns what is wrong with the flags, if anything.
func (c *Command) Check() error {
	err := errors.Join(readURL(&c.DatabaseURL, c.DatabaseURLFile, "database-url-file"),
		readURL(&c.ListenDatabaseURL, c.ListenDatabaseURLFile, "listen-database-url-file"),
		readURL(&c.QueryDatabaseURL, c.QueryDatabaseURLFile, "query-database-url-file"))
	if err != nil {
		return command.AsUsage(err)
	}
	if c.DatabaseURL == "" && !c.PrivatePostgres {
		return errNoDatabase
	}
	if c.DatabaseURL != "" && c.PrivatePostgres {
		return command.Usage("--private-postgres and --database-url exclude each other; give one of them")
	}
	if c.MaxRuns < 1 || c.MaxRuns > 100 {
		return command.Usage("--max-runs is from 1 to 100, not %d", c.MaxRuns)
	}
	if c.DrainTimeout < time.Second {
		return command.Usage("--drain-timeout is at least 1s, not %s: what is open needs a moment to end", c.DrainTimeout)
	}
	if c.MaxCalls < 1 || c.MaxSockets < 1 {
		return command.Usage("--max-calls and --max-sockets are at least 1, not %d and %d", c.MaxCalls, c.MaxSockets)
	}
	if c.Retention < time.Minute {
		return command.Usage("--retention is at least 1m, not %s: the last minutes are needed to tell what was closed twice", c.Retention)
	}
	if c.Pooled && c.ListenDatabaseURL == "" && !c.NoListen {
		return command.Usage("--pooled needs --listen-database-url, a direct connection, since LISTEN does not work through a transaction pooler; or --no-listen, which polls")
	}
	if c.FrameAncestors != "" && !origin.MatchString(c.FrameAncestors) {
		return command.Usage("--frame-ancestors is where a page is served, such as http://127.0.0.1:8083, without a path; not %q", c.FrameAncestors)
	}
	host, _, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return command.Usage("--listen is HOST:PORT, such as 127.0.0.1:8080: %v", err)
	}
	// Not on 127.0.0.2 either: it answers to these names alone.
	if c.Auth == "dev" && !slices.Contains([]string{"localhost", "127.0.0.1", "::1"}, host) {
		return command.Usage("--auth dev believes every name it is told, so it serves on a loopback address only: localhost, 127.0.0.1 or [::1], not on %q", host)
	}
	return nil
}

func (c *Command) logger(w io.Writer) *slog.Logger {
	options := &slog.HandlerOptions{Level: c.LogLevel}
	if c.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

// Run serves until ctx ends.
func (c *Command) Run(ctx context.Context, s *command.Streams) error {
	if err := c.Check(); err != nil {
		return err
	}
	if c.UntilStdinCloses {
		var orphaned context.CancelFunc
		ctx, orphaned = context.WithCancel(ctx)
		defer orphaned()
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			orphaned()
		}()
	}
	if c.PrivatePostgres {
		ended, stop, err := c.startPostgres(ctx)
		if err != nil {
			return err
		}
		defer stop()
		var broke context.CancelCauseFunc
		ctx, broke = context.WithCancelCause(ctx)
		defer broke(nil)
		go func() {
			<-ended
			broke(errPostgresEnded)
		}()
	}
	log := c.logger(s.Errs)
	n, err := newNode(ctx, *c, log)
	if err == nil {
		err = withHeapFloor(func() error { return n.run(ctx, s.Errs) })
	}
	if errors.Is(context.Cause(ctx), errPostgresEnded) {
		return errPostgresEnded // nobody else would start it again
	}
	return err
}
