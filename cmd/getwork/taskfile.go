package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"strings"

	"github.com/goccy/go-yaml"

	"getwork/assign"
)

// taskFields are the fields of a task that somebody names: in a file, or by flags. What is nil is not named.
type taskFields struct {
	Name          *string          `json:"name,omitempty" yaml:"name,omitempty" help:"The task's name: a-z, 0-9 and hyphens, at most 63 of them." placeholder:"NAME"`
	Title         *string          `json:"title,omitempty" yaml:"title,omitempty" help:"What people call it." placeholder:"TEXT"`
	Description   *string          `json:"description,omitempty" yaml:"description,omitempty" help:"What is to be done with an item." placeholder:"TEXT"`
	Paused        *bool            `json:"paused,omitempty" yaml:"paused,omitempty" help:"Hand out nothing." negatable:""`
	QueryTimeout  *assign.Duration `json:"query_timeout,omitempty" yaml:"query_timeout,omitempty" help:"The longest that the query may take; 2m unless said otherwise." placeholder:"2m"`
	FreshFor      *assign.Duration `json:"fresh_for,omitempty" yaml:"fresh_for,omitempty" help:"How long a result may serve later requests without running the query again; 0s unless said otherwise." placeholder:"0s"`
	RerunAfter    *assign.Duration `json:"rerun_after,omitempty" yaml:"rerun_after,omitempty" help:"The query is run at most this often for requests that linger; 1m unless said otherwise." placeholder:"1m"`
	MaxCandidates *int             `json:"max_candidates,omitempty" yaml:"max_candidates,omitempty" help:"How many items are taken from a result; 1000 unless said otherwise." placeholder:"1000"`
	MaxRequest    *int             `json:"max_request,omitempty" yaml:"max_request,omitempty" help:"How many items one request may ask for; 5 unless said otherwise." placeholder:"5"`
	Query         *string          `json:"query,omitempty" yaml:"query,omitempty" help:"One SELECT that returns a column item, best first." xor:"query" placeholder:"SQL"`
}

// taskFlags are taskFields on the command line.
type taskFlags struct {
	taskFields `embed:""`
	QueryFile  string `help:"Read the query from this file; - is standard input." xor:"query" placeholder:"FILE"`
}

// fileHelp explains the files of create and apply.
const fileHelp = `A file has the fields of a task as the API has them; all but name and query may be left out:

  name: review-photos
  title: Review photos
  query: |
    select id as item, url, uploaded_at
    from photo
    where not reviewed
    order by uploaded_at
  query_timeout: 2m
  fresh_for: 0s
  max_candidates: 1000
  max_request: 5
  rerun_after: 1m`

// fields are what the flags name.
func (f taskFlags) fields(ctx context.Context) (taskFields, error) {
	given := f.taskFields
	if f.QueryFile != "" {
		b, err := readFile(ctx, f.QueryFile)
		if err != nil {
			return given, err
		}
		given.Query = new(string(b))
	}
	return given, nil
}

// with is f, and on top of it what beats names.
func (f taskFields) with(beats taskFields) taskFields {
	into, from := reflect.ValueOf(&f).Elem(), reflect.ValueOf(beats)
	for i := range from.NumField() {
		if !from.Field(i).IsNil() {
			into.Field(i).Set(from.Field(i))
		}
	}
	return f
}

// values are the named fields as JSON has them.
func (f taskFields) values() (map[string]any, error) {
	b, err := json.Marshal(f)
	if err != nil {
		return nil, fmt.Errorf("encode the task: %w", err)
	}
	var v map[string]any
	return v, json.Unmarshal(b, &v)
}

// maxFile is more than the server takes.
const maxFile = 4 << 20

// readFile reads a file, or standard input, until ctx ends: nobody may ever write to that, and Ctrl-C is caught.
func readFile(ctx context.Context, name string) ([]byte, error) {
	var from io.Reader = os.Stdin
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, usageError{err}
		}
		defer f.Close()
		from = f
	}
	var b []byte
	read := make(chan error, 1)
	go func() {
		var err error
		b, err = io.ReadAll(io.LimitReader(from, maxFile))
		read <- err
	}()
	select {
	case <-ctx.Done():
		return nil, errInterrupted
	case err := <-read:
		if err != nil {
			return nil, usage("read %s: %w", name, err)
		}
		return b, nil
	}
}

// readTasks reads the tasks of a file. Empty documents are passed over; fields that a task has not are refused, with
// the line they stand in.
func readTasks(ctx context.Context, name string) ([]taskFields, error) {
	b, err := readFile(ctx, name)
	if err != nil {
		return nil, err
	}
	var tasks []taskFields
	for _, document := range documents(string(b)) {
		var t taskFields
		if err := yaml.UnmarshalWithOptions([]byte(document), &t, yaml.Strict()); err != nil && !errors.Is(err, io.EOF) {
			return nil, usage("%s: %s", name, yamlText(err))
		}
		if t != (taskFields{}) {
			tasks = append(tasks, t)
		}
	}
	if len(tasks) == 0 {
		return nil, usage("%s has no task in it", name)
	}
	return tasks, nil
}

// documents takes a file apart at its lines of three hyphens: go-yaml forgets what comes after an empty document.
// Each keeps the line numbers that it has in the file.
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

// yamlText says what is wrong with a file, in its own words and not in Go's.
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
