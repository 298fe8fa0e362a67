// Package setup has `getwork init`: the first files of an installation, for a table that somebody has.
package setup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/template"
	"time"

	_ "embed" // the files' texts

	"github.com/jackc/pgx/v5"

	"getwork/assign/pg"
	"getwork/cmd/internal/command"
	"getwork/cmd/internal/serve"
)

// Command writes the files. It only reads the database.
type Command struct {
	DatabaseURL     string `help:"The PostgreSQL database." env:"GETWORK_DATABASE_URL,DATABASE_URL" placeholder:"URL"`
	DatabaseURLFile string `help:"Read the URL from this file; it overrides --database-url, unless only that is given as a flag." placeholder:"FILE" complete:"file"`

	QueryDatabaseURL     string `help:"The database as ranking queries will reach it: the table is read with this login." placeholder:"URL"`
	QueryDatabaseURLFile string `help:"Read --query-database-url from this file." placeholder:"FILE" complete:"file"`

	Table string `help:"The table that has the items, such as bank.loan." placeholder:"TABLE"`
	Dir   string `help:"The folder to write to." default:"." placeholder:"DIR" complete:"file"`
}

// Help returns the text that --help adds.
func (Command) Help() string {
	return `Writes getwork.env, the settings of a node with comments, and for a --table a task file whose query it guesses: the key from the primary key, the order from columns such as a priority or a date. Then it says what it guessed, and what to type next. It changes nothing in the database, and overwrites no file.

  getwork init --database-url postgres://getwork@db.bank.example/bank --table bank.loan`
}

//go:embed getwork.env.tmpl
var envText string

//go:embed task.yaml.tmpl
var taskText string

var (
	envFile  = template.Must(template.New("getwork.env").Parse(envText))
	taskFile = template.Must(template.New("task.yaml").Funcs(template.FuncMap{"indent": indent}).Parse(taskText))
)

// Run writes the files, and says what comes next.
func (c Command) Run(ctx context.Context, s *command.Streams) error {
	url, err := serve.Database{DatabaseURL: c.DatabaseURL, DatabaseURLFile: c.DatabaseURLFile}.URL()
	if err != nil {
		return err
	}
	queries := c.QueryDatabaseURL
	if err := serve.ReadURL(&queries, c.QueryDatabaseURLFile, "query-database-url-file"); err != nil {
		return err
	}
	for _, file := range []*string{&c.DatabaseURLFile, &c.QueryDatabaseURLFile} {
		if *file == "" {
			continue
		}
		if *file, err = filepath.Abs(*file); err != nil { // the node has another working folder
			return err
		}
	}
	env := filepath.Join(c.Dir, "getwork.env")
	files := []string{env}
	var t table
	if c.Table != "" {
		if t, err = look(ctx, cmp.Or(queries, url), c.Table); err != nil {
			return err
		}
		files = append(files, filepath.Join(c.Dir, t.Task+".yaml"))
	}
	for _, file := range files { // before any is written
		if _, err := os.Lstat(file); err == nil {
			return fmt.Errorf("%s exists, and is not overwritten: move it away, or name another folder with --dir", file)
		}
	}
	settings := map[string]string{"URL": quoted(c.DatabaseURL), "File": quoted(c.DatabaseURLFile), "Queries": quoted(c.QueryDatabaseURL), "QueriesFile": quoted(c.QueryDatabaseURLFile)}
	if err := write(env, envFile, settings, 0o600); err != nil {
		return err
	}
	_, _ = fmt.Fprintf(s.Out, "%s has the settings of a node.\n", env)
	if c.Table != "" {
		if err := write(files[1], taskFile, t, 0o644); err != nil {
			return err
		}
		_, _ = fmt.Fprintf(s.Out, "%s has the task %s, about %s: %s.\n", files[1], t.Task, t.Name, t.Why)
	}
	create, task := "getwork task create --name my-task --inbox", "my-task"
	if c.Table != "" {
		create, task = "getwork task create -f "+files[1], t.Task
	}
	_, err = fmt.Fprintf(s.Out, `
Read them, and then type:

  set -a; . %s; set +a; getwork doctor    # says what is wrong, and what to do
  getwork serve    # its page is http://127.0.0.1:8080

and in another terminal:

  %s
  getwork get %s --wait 60s
`, sourced(env), create, task)
	return err
}

// sourced returns a path that a shell's dot finds: one without a slash is searched for in PATH.
func sourced(file string) string {
	if !strings.Contains(file, "/") {
		return "./" + file
	}
	return file
}

// quoted returns a text as a shell and systemd read it: in single quotes.
func quoted(text string) string {
	if text == "" {
		return ""
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// write writes a new file.
func write(file string, from *template.Template, data any, mode os.FileMode) (err error) {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return from.Execute(f, data)
}

// table is what a task file says about a table.
type table struct {
	Task  string // the task's name
	Title string
	Name  string // the table's
	Query string
	Why   string   // how key and order were guessed
	Notes []string // what to check
}

type column struct {
	Name, Type string
	Key        int // place in the primary key, from 1; 0: none
	Keys       int // how many columns the primary key has
}

const columns = `
select a.attname, format_type(a.atttypid, a.atttypmod), coalesce(array_position(i.indkey::int2[], a.attnum), -1) + 1, coalesce(cardinality(i.indkey::int2[]), 0)
from pg_attribute a left join pg_index i on i.indrelid = a.attrelid and i.indisprimary
where a.attrelid = $1 and a.attnum > 0 and not a.attisdropped order by a.attnum`

// look reads a table's columns, and plans the query that it guesses.
func look(ctx context.Context, url, name string) (t table, err error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	config, err := pg.ParseConn(url)
	if err != nil {
		return t, serve.NoConnection(err)
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return t, serve.NoConnection(err)
	}
	defer conn.Close(ctx)
	var oid *uint32
	if err := conn.QueryRow(ctx, `select to_regclass($1)::oid, coalesce(to_regclass($1)::text, '')`, name).Scan(&oid, &t.Name); err != nil {
		return t, fmt.Errorf("look for the table %s: %w", name, err)
	}
	if oid == nil {
		return t, command.Usage("there is no table %s in this database, or the login does not see it; name it with its schema, such as bank.loan", name)
	}
	rows, err := conn.Query(ctx, columns, *oid)
	if err != nil {
		return t, fmt.Errorf("read the columns of %s: %w", name, err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[column])
	if err != nil {
		return t, fmt.Errorf("read the columns of %s: %w", name, err)
	}
	t.guess(all)
	if _, err := conn.Exec(ctx, "explain "+t.Query); err != nil {
		return t, fmt.Errorf("the query for %s can't be planned: %w; grant the login select on it", t.Name, err)
	}
	return t, nil
}

var (
	noSlug  = regexp.MustCompile(`[^a-z0-9]+`)
	ranked  = regexp.MustCompile(`(?i)^(priority|urgency|severity|score|rank|weight)$`)
	due     = regexp.MustCompile(`(?i)(due|deadline|expires|expiry|until)`)
	arrived = regexp.MustCompile(`(?i)(submitted|received|requested|opened|created|inserted|ordered|entered|updated)`)
)

// guess writes the query.
func (t *table) guess(all []column) {
	plain := t.Name[strings.LastIndex(t.Name, ".")+1:]
	t.Task = strings.Trim(noSlug.ReplaceAllString(strings.ToLower(plain), "-"), "-")
	t.Task = "work-on-" + strings.Trim(t.Task[:min(len(t.Task), 50)], "-")
	t.Title = "Work on " + strings.Trim(plain, `"`)
	key, why := t.key(all)
	var order []string
	add := func(c column, direction string) {
		order = append(order, pgx.Identifier{c.Name}.Sanitize()+direction)
		why += ", " + strings.TrimSpace(c.Name+direction)
	}
	why += "; ordered by"
	begin := len(why)
	for _, guess := range []struct {
		of        *regexp.Regexp
		is        func(column) bool
		direction string
	}{{ranked, number, " desc"}, {due, timed, ""}, {arrived, timed, ""}} {
		for _, c := range all {
			if guess.of.MatchString(c.Name) && guess.is(c) {
				add(c, guess.direction)
				break
			}
		}
	}
	if len(order) == 0 {
		for _, c := range all {
			if timed(c) {
				add(c, "")
				break
			}
		}
	}
	for _, c := range all { // makes the order definite
		if c.Key > 0 {
			add(c, "")
		}
	}
	if len(order) == 0 {
		order, why = []string{"1"}, why+", the key"
	}
	t.Why = why[:begin] + strings.TrimPrefix(why[begin:], ",")
	shown := []string{key + " as item"}
	for _, c := range all {
		name := pgx.Identifier{c.Name}.Sanitize()
		switch {
		case c.Type == "bytea" || len(shown) > 12 || name == key && c.Name == "item":
		case slices.Contains(reserved, c.Name):
			shown = append(shown, name+" as row_"+c.Name)
			t.Notes = append(t.Notes, "getwork gives a column "+c.Name+" a meaning of its own, so the table's is shown as row_"+c.Name+".")
		default:
			shown = append(shown, name)
		}
	}
	t.Query = fmt.Sprintf("select %s\nfrom %s\norder by %s", strings.Join(shown, ", "), t.Name, strings.Join(order, ", "))
}

// reserved are the columns that getwork reads from a query's result; the others are details.
var reserved = []string{"item", "slots", "exclusive", "needs"}

// key returns the expression of the item's key.
func (t *table) key(all []column) (expression, why string) {
	var parts []string
	for place := 1; ; place++ {
		found := false
		for _, c := range all {
			if c.Key == place {
				parts, found = append(parts, pgx.Identifier{c.Name}.Sanitize()), true
			}
		}
		if !found {
			break
		}
	}
	switch len(parts) {
	case 0:
		t.Notes = append(t.Notes, "The table has no primary key. The first column stands for one: each item must have a key of its own, and", "keep it.")
		if len(all) == 0 {
			return "1", "no column"
		}
		return pgx.Identifier{all[0].Name}.Sanitize(), "its key is the first column, since there is no primary key"
	case 1:
		return parts[0], "its key is the primary key"
	}
	t.Notes = append(t.Notes, "The primary key has several columns, which are written into one key with a slash between them.")
	return "concat_ws('/', " + strings.Join(parts, ", ") + ")", "its key is made of the columns of the primary key"
}

func timed(c column) bool {
	return strings.HasPrefix(c.Type, "timestamp") || c.Type == "date"
}

func number(c column) bool {
	return strings.HasPrefix(c.Type, "numeric") || c.Type == "integer" || c.Type == "smallint" || c.Type == "bigint" || c.Type == "real" || c.Type == "double precision"
}

func indent(text string) string { return strings.ReplaceAll(text, "\n", "\n  ") }
