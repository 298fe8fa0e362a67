package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"

	"getwork/assign"
	"getwork/cmd/internal/command"
)

// TaskFields are the fields of a task that a file or flags set. Zero fields are not set.
type TaskFields struct {
	Name          *string                   `json:"name,omitempty" yaml:"name,omitempty" help:"The task's name: a-z, 0-9 and hyphens, at most 63 of them." placeholder:"NAME"`
	Title         *string                   `json:"title,omitempty" yaml:"title,omitempty" help:"The name that people see." placeholder:"TEXT"`
	Description   *string                   `json:"description,omitempty" yaml:"description,omitempty" help:"What to do with an item." placeholder:"TEXT"`
	Paused        *bool                     `json:"paused,omitempty" yaml:"paused,omitempty" help:"Hand out nothing." negatable:""`
	QueryTimeout  *assign.Duration          `json:"query_timeout,omitempty" yaml:"query_timeout,omitempty" help:"How long the query may take; the default is 2m." placeholder:"2m"`
	FreshFor      *assign.Duration          `json:"fresh_for,omitempty" yaml:"fresh_for,omitempty" help:"How long a result may serve later requests without running the query again; the default is 0s." placeholder:"0s"`
	StaleFor      *assign.Duration          `json:"stale_for,omitempty" yaml:"stale_for,omitempty" help:"How much longer it may serve them while the query runs again; the default is 0s." placeholder:"0s"`
	RerunAfter    *assign.Duration          `json:"rerun_after,omitempty" yaml:"rerun_after,omitempty" help:"How often the query may run for lingering requests; the default is every 1m." placeholder:"1m"`
	MaxCandidates *int                      `json:"max_candidates,omitempty" yaml:"max_candidates,omitempty" help:"How many items are taken from a result; the default is 1000." placeholder:"1000"`
	MaxRequest    *int                      `json:"max_request,omitempty" yaml:"max_request,omitempty" help:"How many items one request may ask for; the default is 5." placeholder:"5"`
	MaxOpen       nullable[int]             `json:"max_open,omitzero" yaml:"max_open,omitzero" help:"How many items one user may hold; the default, none, means any number." placeholder:"N"`
	Slots         *int                      `json:"slots,omitempty" yaml:"slots,omitempty" help:"How many people may hold an item at a time, unless the item says otherwise; the default is 1." placeholder:"1"`
	Lease         nullable[assign.Duration] `json:"lease,omitzero" yaml:"lease,omitzero" help:"How long work is held before it goes back, unless it is extended; the default, none, means until it is let go of." placeholder:"1h"`
	MaxAttempts   nullable[int]             `json:"max_attempts,omitzero" yaml:"max_attempts,omitzero" help:"After this many failures or expired leases an item is not handed out until a manager redrives it; the default, none, means that it always is." placeholder:"N"`
	Backoff       *assign.Duration          `json:"backoff,omitempty" yaml:"backoff,omitempty" help:"How long an item waits after its first failure; each further failure doubles it. The default is 30s." placeholder:"30s"`
	ConflictsWith *[]string                 `json:"conflicts_with,omitempty" yaml:"conflicts_with,omitempty" kong:"-"`
	Groups        *[]string                 `json:"groups,omitempty" yaml:"groups,omitempty" kong:"-"`
	Position      nullable[int]             `json:"position,omitzero" yaml:"position,omitzero" help:"The task's place among those that people see, lowest first; the default, none, means after those, by title." placeholder:"N"`
	Display       nullable[assign.Display]  `json:"display,omitzero" yaml:"display,omitzero" help:"How an item is shown: JSON with title, url, fields and others, as in the API's Display. With the default, none, the types and names of its details decide." placeholder:"JSON"`
	Recheck       nullable[string]          `json:"recheck,omitzero" yaml:"recheck,omitzero" help:"A cheap SELECT that runs before items are handed out: given their keys as $1, a text[], it returns those that still match in a column item. With the default, none, a result is handed out unchecked while it is fresh." placeholder:"SQL"`
	Query         nullable[string]          `json:"query,omitzero" yaml:"query,omitzero" help:"One SELECT that returns a column item, best first." xor:"query" placeholder:"SQL"`
}

// taskFlags are taskFields on the command line.
type taskFlags struct {
	TaskFields `embed:""`
	QueryFile  string   `help:"Read the query from this file; - is standard input." xor:"query" placeholder:"FILE" complete:"file"`
	Inbox      bool     `help:"The task has no query: items are pushed to it with getwork items push." xor:"query"`
	Apart      []string `name:"conflicts-with" help:"Tasks, separated by commas: a user who holds or completed an item under one of them does not get it here, and the other way round. none means no task." placeholder:"TASK"`
	OpenTo     []string `name:"groups" help:"Groups, separated by commas: only their members see the task and get its work. none means everybody." placeholder:"GROUP"`
}

// fileHelp explains the files of create and apply.
const fileHelp = `A file has the fields of a task as the API names them; all but name and query may be left out. A field without a value is null in a file and none as a flag. With query: null, or --inbox, the task is an inbox, to which items are pushed:

  name: review-photos
  title: Review photos
  query: |
    select id as item, url, uploaded_at
    from photo
    where not reviewed
    order by uploaded_at
  query_timeout: 2m
  fresh_for: 0s
  stale_for: 0s
  recheck: null
  rerun_after: 1m
  max_candidates: 1000
  max_request: 5
  max_open: null
  slots: 1
  lease: null
  max_attempts: null
  backoff: 30s
  conflicts_with: []
  groups: []
  position: null
  display:
    title: "{uploaded_at}"
    url: https://photos.example/{item}
    fields:
      - column: uploaded_at
        label: Uploaded
        format: date`

// fields returns the fields that the flags set.
func (f taskFlags) fields(ctx context.Context) (TaskFields, error) {
	given := f.TaskFields
	if f.QueryFile != "" {
		b, err := readFile(ctx, f.QueryFile)
		if err != nil {
			return given, err
		}
		given.Query = SetTo(string(b))
	}
	if f.Inbox {
		given.Query = nullable[string]{named: true}
	}
	given.ConflictsWith, given.Groups = namesOf(f.Apart), namesOf(f.OpenTo)
	return given, nil
}

// namesOf returns the values of a flag with a list; nil means that the flag was not given.
func namesOf(list []string) *[]string {
	names := []string{}
	for _, name := range list {
		if name = strings.TrimSpace(name); name != "" && name != "none" {
			names = append(names, name)
		}
	}
	if list == nil {
		return nil
	}
	return &names
}

// with returns f, overridden by the fields that beats sets.
func (f TaskFields) with(beats TaskFields) TaskFields {
	into, from := reflect.ValueOf(&f).Elem(), reflect.ValueOf(beats)
	for i := range from.NumField() {
		if !from.Field(i).IsZero() {
			into.Field(i).Set(from.Field(i))
		}
	}
	return f
}

// values returns the fields that are set, as JSON has them.
func (f TaskFields) values() (map[string]any, error) {
	b, err := json.Marshal(f)
	if err != nil {
		return nil, fmt.Errorf("encode the task: %w", err)
	}
	var v map[string]any
	return v, json.Unmarshal(b, &v)
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
		if t != (TaskFields{}) {
			tasks = append(tasks, t)
		}
	}
	if len(tasks) == 0 {
		return nil, command.Usage("%s has no task in it", name)
	}
	return tasks, nil
}

// readTask reads one document; an empty one sets nothing. go-yaml skips nulls, whatever the field's type, so readTask
// finds them itself.
func readTask(document string) (t TaskFields, err error) {
	if err := yaml.UnmarshalWithOptions([]byte(document), &t, yaml.Strict()); err != nil && !errors.Is(err, io.EOF) {
		return t, err
	}
	var values map[string]any
	if err := yaml.Unmarshal([]byte(document), &values); err != nil && !errors.Is(err, io.EOF) {
		return t, err
	}
	for field, named := range map[string]*bool{"query": &t.Query.named, "recheck": &t.Recheck.named, "lease": &t.Lease.named, "max_open": &t.MaxOpen.named, "max_attempts": &t.MaxAttempts.named,
		"position": &t.Position.named, "display": &t.Display.named} {
		if v, there := values[field]; there && v == nil {
			*named = true
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
