// Package serve runs one node. It also has what works on the database without a node: the commands migrate and audit, and
// [Database.Rights], by which token create --direct writes a token. It is the only package that knows all parts of a node.
package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"reflect"
	"regexp"
	"runtime"
	"strings"
	"time"

	"getwork/assign"
	"getwork/cmd/internal/command"
)

// Command has the settings of one node.
type Command struct {
	Version  string `kong:"-"` // the program's version, for /metrics and pg_stat_activity
	Revision string `kong:"-"` // its commit, for /metrics

	DatabaseURL           string        `help:"The PostgreSQL database, as postgres://…" env:"GETWORK_DATABASE_URL,DATABASE_URL" placeholder:"URL"`
	DatabaseURLFile       string        `help:"Read the URL from this file, so that the list of processes shows no password, and again for each new connection, so that the password may change; it overrides --database-url, unless only that is given as a flag." placeholder:"FILE" complete:"file"`
	ListenDatabaseURL     string        `help:"A direct connection for LISTEN and migrations, if --database-url goes through a transaction pooler." placeholder:"URL"`
	QueryDatabaseURL      string        `help:"Run ranking queries on this database: a read replica, or a login that may only read." placeholder:"URL"`
	ListenDatabaseURLFile string        `help:"Read --listen-database-url from this file." placeholder:"FILE" complete:"file"`
	QueryDatabaseURLFile  string        `help:"Read --query-database-url from this file." placeholder:"FILE" complete:"file"`
	Pooled                bool          `help:"--database-url goes through a transaction pooler: keep no session state."`
	QueryRole             string        `help:"The role that ranking queries run as (set local role)." placeholder:"ROLE"`
	Schema                string        `help:"The schema that has getwork's tables." default:"getwork"`
	Listen                string        `help:"Address to serve on (default ${default}); port 0 picks a free port." default:"127.0.0.1:8080" placeholder:"ADDR"`
	NoListen              bool          `help:"Do not LISTEN; the node polls for results instead."`
	NoMigrate             bool          `help:"Do not change the schema; refuse to start if its version is not the one that this program needs."`
	MaxRuns               int           `help:"How many ranking queries this node runs at the same time." default:"2"`
	MaxCalls              int           `help:"How many calls this node serves at the same time; one user gets an eighth of them, and at least 32. Calls beyond that are answered 429." default:"1024"`
	MaxSockets            int           `help:"How many WebSockets this node keeps open; one user gets an eighth of them, and at least 32. A second limit of the same size applies to event streams and held answers together." default:"20000"`
	Retention             time.Duration `help:"How long finished work, items, requests and absences are kept (default ${default}, 90 days)." default:"2160h"`
	HidePeopleFigures     bool          `help:"Show no figures of people, in /returns and on the page. It is for every node."`
	DrainTimeout          time.Duration `help:"How long a shutdown may take. If load balancers watch /readyz, a fifth of it is left for them to notice; half of it is left for kept connections to end with an answer." default:"15s"`
	LogFormat             string        `help:"text or json." default:"text" enum:"text,json"`
	LogLevel              slog.Level    `help:"debug, info, warn or error." default:"info"`
	LogCalls              bool          `help:"Log a line for each call: method, route, status, seconds, user, task, request and trace."`
	PrivatePostgres       bool          `help:"Start a PostgreSQL of this node's own, instead of --database-url."`
	DataDir               string        `help:"Where the private PostgreSQL keeps its data." placeholder:"DIR"`
	UntilStdinCloses      bool          `hidden:"" help:"Shut down when standard input is closed, so that the node ends with its parent process."`

	Identity
	Queries
	Webhooks
}

// errNoDatabase is an error, not a reason to start a private server: a node that lost its URL must not become an
// island.
var errNoDatabase = command.Usage("no database: give --database-url (or DATABASE_URL), or --private-postgres for a private one; `getwork demo` starts a whole sample bank")

var errPostgresEnded = errors.New("the private PostgreSQL ended unexpectedly; start the node again: the data is kept")

// Check reads the URLs that are in files, and returns a usage error if a flag is wrong.
func (c *Command) Check() error {
	err := errors.Join(ReadURL(&c.DatabaseURL, c.DatabaseURLFile, "database-url-file"),
		ReadURL(&c.ListenDatabaseURL, c.ListenDatabaseURLFile, "listen-database-url-file"),
		ReadURL(&c.QueryDatabaseURL, c.QueryDatabaseURLFile, "query-database-url-file"))
	if err != nil {
		return command.AsUsage(err)
	}
	if c.DatabaseURL == "" && !c.PrivatePostgres {
		return errNoDatabase
	}
	if c.DatabaseURL != "" && c.PrivatePostgres {
		return command.Usage("--private-postgres and --database-url exclude each other; give one of them")
	}
	if c.PrivatePostgres && (c.ListenDatabaseURL != "" || c.Pooled) {
		return command.Usage("--private-postgres is reached directly: leave out --listen-database-url, --listen-database-url-file and --pooled")
	}
	if c.DataDir != "" && !c.PrivatePostgres {
		return command.Usage("--data-dir is where --private-postgres keeps its data; leave it out, or give --private-postgres instead of a database")
	}
	if c.MaxRuns < 1 || c.MaxRuns > 100 {
		return command.Usage("--max-runs must be from 1 to 100, not %d", c.MaxRuns)
	}
	if c.DrainTimeout < time.Second {
		return command.Usage("--drain-timeout must be at least 1s, not %s: open calls need a moment to end", c.DrainTimeout)
	}
	if c.MaxCalls < 1 || c.MaxSockets < 1 {
		return command.Usage("--max-calls and --max-sockets must be at least 1, not %d and %d", c.MaxCalls, c.MaxSockets)
	}
	if c.Retention < time.Minute {
		return command.Usage("--retention must be at least 1m, not %s: getwork needs recent work to recognise repeated calls", c.Retention)
	}
	if c.Pooled && c.ListenDatabaseURL == "" && !c.NoListen {
		return command.Usage("--pooled needs --listen-database-url, a direct connection, because LISTEN does not work through a transaction pooler; or use --no-listen, which polls")
	}
	if err := c.check(c.Listen); err != nil {
		return err
	}
	return c.checkQueries(c.Auth, c.QueryDatabaseURL)
}

func (c *Command) logger(w io.Writer) *slog.Logger {
	options := &slog.HandlerOptions{Level: c.LogLevel}
	if c.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

// Run serves until ctx ends. Its error is a usage error, or says which part of the node failed.
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
		err = withHeapBallast(func() error { return n.run(ctx, s.Errs) })
	}
	if errors.Is(context.Cause(ctx), errPostgresEnded) {
		return errPostgresEnded // no other process would start it again
	}
	return err
}

// Queries has the settings that say who may write queries, and how far they are trusted.
type Queries struct {
	QueryAuthors      string `help:"The group whose managers may write, preview, compare and restore queries. By default all managers may." placeholder:"GROUP"`
	TrustQueryWriters bool   `help:"Let queries use the login of --database-url, though --auth is not dev: whoever may write queries can then read and change all that getwork keeps, sessions and tokens included."`
}

// checkQueries returns a usage error if a query could reach what its writer may not. A role is no boundary, because a query can
// leave it, so queries need a login of their own. What that login may do is looked at later, in the database.
func (q *Queries) checkQueries(auth, queryURL string) error {
	if q.QueryAuthors != "" && assign.CheckGroup(q.QueryAuthors) != nil {
		return command.Usage("--query-authors must be one group, of 1 to 128 bytes without commas, control characters and blanks around it; not %q", q.QueryAuthors)
	}
	if auth != "dev" && queryURL == "" && !q.TrustQueryWriters {
		return command.Usage("with --auth %s, queries need a login of their own: give --query-database-url (it may lead to the same database), or --trust-query-writers if whoever writes queries may read and change all that getwork keeps", auth)
	}
	return nil
}

// Webhooks has the settings for sending web hooks.
type Webhooks struct {
	WebhookAllow []netip.Prefix `help:"Networks that web hooks may reach although they are loopback, link-local, a cloud's metadata or reserved; also over http. Public and private networks are reached over https without it." placeholder:"CIDR"`
}

var capital = regexp.MustCompile(`([a-z0-9])([A-Z])`)

// given returns the flags of a struct of settings whose values differ from their defaults. A flag that nothing uses is refused,
// or somebody would rely on it.
func given(settings any) (flags []string) {
	v := reflect.ValueOf(settings)
	for i := range v.NumField() {
		f, value := v.Type().Field(i), v.Field(i)
		if !f.IsExported() || value.IsZero() {
			continue
		}
		text := fmt.Sprint(value.Interface())
		if list, ok := value.Interface().([]string); ok {
			text = strings.Join(list, ",")
		}
		absent := f.Tag.Get("default")
		if d, err := time.ParseDuration(absent); err == nil {
			absent = d.String()
		}
		if text == absent {
			continue
		}
		name := f.Tag.Get("name")
		if name == "" {
			name = strings.ToLower(capital.ReplaceAllString(f.Name, "$1-$2"))
		}
		flags = append(flags, "--"+name)
	}
	return flags
}

// heapBallast is memory that nobody writes to, so the kernel never backs it with pages. It makes the heap look larger to
// the garbage collector, which starts when the heap has doubled. A node holds a few megabytes and allocates a hundred in
// a second. Without the ballast it would be collected dozens of times a second, which takes a fifth of its CPU time.
const heapBallast = 32 << 20

// withHeapBallast calls f, and keeps the ballast until f returns.
func withHeapBallast(f func() error) error {
	ballast := make([]byte, heapBallast)
	defer runtime.KeepAlive(ballast)
	return f()
}
