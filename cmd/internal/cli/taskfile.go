package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/alecthomas/kong"
	"github.com/goccy/go-yaml"

	"getwork/assign"
	"getwork/cmd/internal/command"
	"getwork/web"
)

// TaskFields are settings of a task, of which a file or flags name some.
type TaskFields struct {
	assign.Settings `embed:""`
	named           map[string]bool // by their names in the API
}

// Fields returns the named settings of s.
func Fields(s assign.Settings, names ...string) TaskFields {
	t := TaskFields{Settings: s}
	for _, name := range names {
		t.name(name)
	}
	return t
}

// noText is an empty text as a query, which the server refuses: only null means no query.
const noText assign.Query = " "

// setQuery names a query.
func (t *TaskFields) setQuery(text string) {
	t.Query = cmp.Or(assign.Query(text), noText)
	t.name("query")
}

func (t *TaskFields) name(setting string) {
	if t.named == nil {
		t.named = map[string]bool{}
	}
	t.named[setting] = true
}

// with returns t, overridden by the settings that beats names.
func (t TaskFields) with(beats TaskFields) TaskFields {
	for _, of := range assign.AllSettings {
		if beats.named[of.Name] {
			of.In(&t.Settings).Set(of.In(&beats.Settings))
			t.name(of.Name)
		}
	}
	return t
}

// list returns the named settings in the order in which people read them: the queries, which are long, are last.
func (t TaskFields) list() (list yaml.MapSlice) {
	var queries yaml.MapSlice
	for _, of := range assign.AllSettings {
		if !t.named[of.Name] {
			continue
		}
		item := yaml.MapItem{Key: of.Name, Value: of.In(&t.Settings).Interface()}
		if query, is := item.Value.(assign.Query); !is {
			list = append(list, item)
		} else {
			if query == noText {
				item.Value = ""
			}
			queries = append(queries, item)
		}
	}
	return append(list, queries...)
}

// MarshalJSON writes the named settings.
func (t TaskFields) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	b.WriteByte('{')
	for i, item := range t.list() {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "%q:", item.Key)
		if err := e.Encode(item.Value); err != nil {
			return nil, err
		}
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// fieldsOf reads the settings from what a node answers, which has more than these. It is no UnmarshalJSON: kong would take a command with
// such a field for the value of a flag.
func fieldsOf(answer []byte) (t TaskFields, err error) {
	var values map[string]json.RawMessage
	if err := json.Unmarshal(answer, &values); err != nil {
		return t, err
	}
	t.named = namedOf(values)
	return t, json.Unmarshal(answer, &t.Settings)
}

// namedOf returns which settings have a value.
func namedOf[V any](values map[string]V) map[string]bool {
	named := map[string]bool{}
	for _, of := range assign.AllSettings {
		if _, is := values[of.Name]; is {
			named[of.Name] = true
		}
	}
	return named
}

// values returns the named settings as JSON has them.
func (t TaskFields) values() (map[string]any, error) {
	b, err := json.Marshal(t)
	if err != nil {
		return nil, fmt.Errorf("encode the task: %w", err)
	}
	var v map[string]any
	return v, json.Unmarshal(b, &v)
}

// taskFlags are settings on the command line.
type taskFlags struct {
	TaskFields `embed:""`
	QueryFile  string `help:"Read the query from this file; - is standard input." xor:"query" placeholder:"FILE" complete:"file"`
	Pushed     bool   `name:"inbox" help:"The task has no query: items are pushed to it with getwork items push." xor:"query"`
}

// AfterApply notes which settings have flags.
func (f *taskFlags) AfterApply(called *kong.Context) error {
	given := map[string]bool{}
	for _, at := range called.Path {
		if at.Flag != nil {
			given[strings.ReplaceAll(at.Flag.Name, "-", "_")] = true
		}
	}
	f.named = namedOf(given)
	return nil
}

// fields returns the settings that the flags name.
func (f taskFlags) fields(ctx context.Context) (TaskFields, error) {
	given := f.TaskFields
	if f.QueryFile != "" {
		b, err := readFile(ctx, f.QueryFile)
		if err != nil {
			return given, err
		}
		given.setQuery(string(b))
	}
	if f.Pushed {
		given.name("query") // as null
	}
	given.ConflictsWith, given.Groups = namesOf(given.ConflictsWith), namesOf(given.Groups)
	return given, nil
}

// namesOf returns the values of a flag with a list.
func namesOf(list []string) []string {
	names := []string{}
	for _, name := range list {
		if name = strings.TrimSpace(name); name != "" && name != "none" {
			names = append(names, name)
		}
	}
	return names
}

// SettingFlags reads the flags of settings that may be null: their type is setting, and null is none.
var SettingFlags = kong.NamedMapper("setting", kong.MapperFunc(func(ctx *kong.DecodeContext, target reflect.Value) error {
	var text string
	if err := ctx.Scan.PopValueInto(ctx.Value.Name, &text); err != nil {
		return err
	}
	if target.SetZero(); text == "none" {
		return nil
	}
	if target.Kind() == reflect.Pointer {
		target.Set(reflect.New(target.Type().Elem()))
		target = target.Elem()
	}
	switch v := target.Addr().Interface().(type) {
	case *int:
		i, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("a whole number or none, not %q", text)
		}
		*v = i
	case *assign.Display:
		d := json.NewDecoder(strings.NewReader(text))
		d.DisallowUnknownFields()
		if err := d.Decode(v); err != nil {
			return fmt.Errorf("JSON such as {\"title\":\"{name}\"}, or none: %s", strings.TrimPrefix(err.Error(), "json: "))
		}
	case *assign.OnComplete:
		d := json.NewDecoder(strings.NewReader(text))
		d.DisallowUnknownFields()
		if err := d.Decode(v); err != nil {
			return fmt.Errorf("JSON such as {\"task\":\"review\",\"share\":0.1}, or none: %s", strings.TrimPrefix(err.Error(), "json: "))
		}
	case *assign.Query:
		*v = cmp.Or(assign.Query(text), noText)
	case encoding.TextUnmarshaler:
		return v.UnmarshalText([]byte(text))
	default:
		return fmt.Errorf("a flag can't be read into %T", v)
	}
	return nil
}))

// ListFlags reads the flags of settings that are lists in JSON: their type is json.
var ListFlags = kong.NamedMapper("json", kong.MapperFunc(func(ctx *kong.DecodeContext, target reflect.Value) error {
	var text string
	if err := ctx.Scan.PopValueInto(ctx.Value.Name, &text); err != nil {
		return err
	}
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	target.SetZero()
	if err := d.Decode(target.Addr().Interface()); err != nil {
		return fmt.Errorf("a list in JSON, [] for none: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	return nil
}))

// fileHelp explains the files of create and apply.
var fileHelp = `A file has the fields of a task as the API names them; all but name and query may be left out. A field without a value is null in a file and none as a flag. With query: null, or --inbox, the task is an inbox, to which items are pushed:

  name: review-photos
  title: Review photos
  query: |
    select id as item, url, uploaded_at
    from photo
    where not reviewed
    order by uploaded_at
` + newSettings() + `  display:
    title: "{uploaded_at}"
    url: https://photos.example/{item}
    fields:
      - column: uploaded_at
        label: Uploaded
        format: date`

// newSettings are the lines of a file with what a new task has in settings that no line names.
func newSettings() string {
	s := assign.DefaultSettings()
	var lines strings.Builder
	for _, of := range assign.AllSettings {
		if slices.Contains([]string{"name", "title", "description", "query", "display", "paused"}, of.Name) {
			continue
		}
		value, err := json.Marshal(of.In(&s).Interface())
		if err != nil {
			panic(err)
		}
		fmt.Fprintf(&lines, "  %s: %s\n", of.Name, strings.Trim(string(value), `"`))
	}
	return lines.String()
}

// maxFile is the largest file of tasks, in bytes. It is more than the server takes for a task.
const maxFile = 4 << 20

// readFile reads a file of a task, or standard input.
func readFile(ctx context.Context, name string) ([]byte, error) {
	b, err := readAtMost(ctx, name, maxFile)
	if err == nil && !utf8.Valid(b) { // JSON would replace what is not, and a query would look for another text
		err = command.Usage("%s is not UTF-8 text", name)
	}
	return b, err
}

// untilDone returns a reader of a file that fails with [ErrInterrupted] once ctx ends. Ctrl-C could not end a read from a silent
// standard input, because the signal is caught; nor could another goroutine, by closing it.
func untilDone(ctx context.Context, file io.Reader) io.ReadCloser {
	r, w := io.Pipe()
	go func() {
		_, err := io.Copy(w, file)
		_ = w.CloseWithError(err)
	}()
	context.AfterFunc(ctx, func() { _ = w.CloseWithError(ErrInterrupted) })
	return r
}

// readAtMost reads a file, or standard input, until ctx ends.
func readAtMost(ctx context.Context, name string, most int64) ([]byte, error) {
	var from io.Reader = os.Stdin
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, command.AsUsage(err)
		}
		defer f.Close()
		from = f
	}
	file := untilDone(ctx, from)
	defer file.Close()
	b, err := io.ReadAll(io.LimitReader(file, most+1))
	switch {
	case errors.Is(err, ErrInterrupted):
		return nil, err
	case err != nil:
		return nil, command.Usage("read %s: %w", name, err)
	case int64(len(b)) > most:
		return nil, command.Usage("%s is larger than %d MiB; split it", name, most>>20)
	}
	return b, nil
}

// readTasks reads the tasks of a file. It skips empty documents. Fields that a task does not have are refused, with
// their line.
func readTasks(ctx context.Context, name string) ([]TaskFields, error) {
	b, err := readFile(ctx, name)
	if err != nil {
		return nil, err
	}
	var tasks []TaskFields
	for _, document := range documents(string(b)) {
		t, err := readTask(document)
		if err != nil {
			return nil, command.Usage("%s: %s", name, yamlText(err))
		}
		if len(t.named) > 0 {
			tasks = append(tasks, t)
		}
	}
	if len(tasks) == 0 {
		return nil, command.Usage("%s has no task in it", name)
	}
	return tasks, nil
}

// readTask reads one document; an empty one names nothing.
func readTask(document string) (t TaskFields, err error) {
	if err := yaml.UnmarshalWithOptions([]byte(document), &t.Settings, yaml.Strict()); err != nil && !errors.Is(err, io.EOF) {
		return t, err
	}
	var values map[string]any
	if err := yaml.Unmarshal([]byte(document), &values); err != nil && !errors.Is(err, io.EOF) {
		return t, err
	}
	t.named = namedOf(values)
	for _, of := range assign.AllSettings {
		if values[of.Name] == nil && !of.MayBeNull() {
			delete(t.named, of.Name) // a line without a value
		}
	}
	for name, query := range map[string]*assign.Query{"query": &t.Query, "recheck": &t.Recheck} {
		if values[name] == "" {
			*query = noText
		}
	}
	return t, nil
}

// documents splits a file at its lines of three hyphens, because go-yaml ignores what follows an empty document. Each
// document keeps its line numbers in the file.
func documents(file string) []string {
	var all []string
	var one strings.Builder
	n := 0
	for line := range strings.Lines(file) {
		if mark, _, _ := strings.Cut(strings.TrimRight(line, "\r\n"), " "); mark == "---" {
			all = append(all, one.String())
			one.Reset()
			one.WriteString(strings.Repeat("\n", n))
		}
		one.WriteString(line)
		n++
	}
	return append(all, one.String())
}

// yamlText returns what is wrong with a file, without Go's type names.
func yamlText(err error) string {
	var kind *yaml.TypeError
	if !errors.As(err, &kind) || kind.Token == nil {
		return strings.TrimSpace(yaml.FormatError(err, false, true))
	}
	takes := map[reflect.Kind]string{reflect.Int: "a whole number", reflect.Bool: "true or false", reflect.String: "text"}[kind.DstType.Kind()]
	if takes == "" {
		takes = "a task's fields, such as name and query"
	}
	at := kind.Token.Position
	return fmt.Sprintf("[%d:%d] %q stands where %s belongs", at.Line, at.Column, kind.Token.Value, takes)
}

type taskApplyCmd struct {
	Files  []string `short:"f" name:"file" sep:"none" required:"" help:"YAML file with one or more tasks; - is standard input. May be repeated." placeholder:"task.yaml" complete:"file"`
	Remote `embed:""`
}

// Help returns the text that --help adds.
func (taskApplyCmd) Help() string {
	return `Fields that a file does not name stay as they are, so a paused task stays paused. A line of three hyphens separates the tasks of a file.

` + fileHelp
}

// Run creates or updates the tasks in the files. If one is refused, the others are still applied.
func (c taskApplyCmd) Run(ctx context.Context, s *command.Streams) error {
	var wanted []TaskFields
	for _, name := range c.Files {
		tasks, err := readTasks(ctx, name)
		if err != nil {
			return err
		}
		for i, t := range tasks {
			if !t.named["name"] {
				return command.Usage("%s: task %d has no name", name, i+1)
			}
		}
		wanted = append(wanted, tasks...)
	}
	client, err := c.Connect(web.Manager)
	if err != nil {
		return err
	}
	type result struct {
		Result string          `json:"result"`
		Task   json.RawMessage `json:"task"`
	}
	results := []result{}
	var failed []error
	for _, w := range wanted {
		done, err := client.apply(ctx, w)
		if err != nil {
			failed = append(failed, named(fmt.Sprintf("task %q", w.Name), err))
			if refusal := new(refused); errors.As(err, &refusal) {
				continue
			}
			break // the server can't be reached: the rest would fail, too
		}
		results = append(results, result{done.what, done.task.raw})
		if !c.JSON {
			failed = append(failed, done.print(s, false))
		}
	}
	if c.JSON {
		failed = append(failed, printJSON(s.Out, map[string]any{"applied": results}))
	}
	return errors.Join(failed...)
}

// apply creates the task, or updates it if a task of that name exists.
func (c *Client) apply(ctx context.Context, wanted TaskFields) (change, error) {
	done, err := c.Update(ctx, wanted.Name, wanted)
	if !IsRefused(err, http.StatusNotFound) {
		return done, err
	}
	if !wanted.named["query"] {
		return change{}, fmt.Errorf("there is no such task, and to create it the file must have its query; query: null makes it an inbox, to which items are pushed")
	}
	t, err := c.Create(ctx, wanted)
	if IsRefused(err, http.StatusConflict) { // another client created it just now
		return c.Update(ctx, wanted.Name, wanted)
	}
	return change{t, "created", nil}, err
}

// change says what happened to a task.
type change struct {
	task   remoteTask
	what   string   // created, updated or unchanged
	fields []string // the fields that were changed
}

func (c change) print(s *command.Streams, asJSON bool) error {
	if asJSON {
		return printJSON(s.Out, c.task.raw)
	}
	text := fmt.Sprintf("task %s %s (version %d)", c.task.Name, c.what, c.task.Version)
	if len(c.fields) > 0 {
		text += ": " + strings.Join(c.fields, ", ")
	}
	_, err := fmt.Fprintln(s.Out, text)
	return err
}
