package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"getwork/assign"
	"getwork/cmd/internal/bulk"
	"getwork/cmd/internal/command"
	"getwork/web"
)

type itemsPushCmd struct {
	Task      string   `arg:"" help:"The task, which must be an inbox."`
	Keys      []string `arg:"" optional:"" name:"key" help:"Keys of items, each of 1 to 200 bytes."`
	File      string   `short:"f" help:"Read the items from this file; - is standard input." placeholder:"FILE" complete:"file"`
	KeysOnly  bool     `help:"Each line of the file is a key, even if it begins with a bracket or a brace."`
	Priority  *int32   `help:"Items with a higher priority are handed out first; the default is 0." placeholder:"N"`
	NotBefore string   `help:"When the items may first be handed out: a time such as 2030-01-31T08:00:00Z or, in this machine's zone, \"2030-01-31 08:00\", or a time from now such as 90m." placeholder:"TIME"`
	Slots     *int     `help:"How many people may hold an item at a time; the default is the task's." placeholder:"N"`
	Exclusive *string  `help:"The items' group: only one item of a group is held at a time." placeholder:"GROUP"`
	Format    string   `help:"How the file has its items: csv or ndjson. The default is what its name ends with: .csv, .ndjson or .jsonl." enum:",csv,ndjson" default:"" placeholder:"FORMAT"`
	FromLine  int      `help:"Leave out the rows of CSV or NDJSON before this line; a push that broke off says from which line to go on." placeholder:"LINE"`
	Split     bool     `help:"Push in several batches if one is not enough. Each batch is all or nothing."`
	Remote    `embed:""`
}

// Help returns the text that --help adds.
func (itemsPushCmd) Help() string {
	return `Examples:

  getwork items push resize-photos a.jpg b.jpg --priority 5
  find . -name '*.jpg' | getwork items push resize-photos -f -
  getwork items push resize-photos -f photos.json --not-before 2h

A file is a JSON array, or has one JSON object per line, or one key per line. An object has the fields that the API takes; all but item may be left out, and flags set those that are missing:

  {"item": "a.jpg", "priority": 5, "not_before": "2030-01-31T08:00:00Z", "slots": 1, "exclusive": "album-7", "details": {"width": 800}}

A file of CSV or NDJSON is pushed row by row, however long it is, and so is standard input with --format. The first row of CSV names the columns: item, and any of priority, not_before, slots, exclusive and details; all other columns become details. A row with a fault is reported with its line and left out, all others are pushed, and the exit status is then 1.

  getwork items push resize-photos -f photos.csv
  psql -c "copy (select …) to stdout csv header" | getwork items push resize-photos -f - --format csv

Otherwise a batch is pushed as a whole or, if anything is wrong with any item, not at all. A key that waits, is held, put off or never to come back is counted as a duplicate and left as it is. An item that was completed is pushed anew. For agents and managers.`
}

// Run pushes the items.
func (c itemsPushCmd) Run(ctx context.Context, s *command.Streams) error {
	path, err := itemsPath(c.Task)
	if err != nil {
		return err
	}
	switch format, err := c.format(); {
	case err != nil:
		return err
	case format != "":
		return c.pushRows(ctx, s, path, format)
	}
	items, err := c.items(ctx)
	if err != nil {
		return err
	}
	batches, err := batchesOf(items)
	if err != nil {
		return err
	}
	if len(batches) > 1 && !c.Split {
		return command.Usage("%s are too many for one batch, which has at most %d and 1 MiB: --split pushes them in %d batches, each of which is all or nothing",
			counted(len(items), "item"), assign.MaxPush, len(batches))
	}
	client, err := c.Connect(web.Agent)
	if err != nil {
		return err
	}
	var total assign.Pushed
	for i, b := range batches {
		var pushed assign.Pushed
		if _, err = client.Do(ctx, Call{Method: "POST", Path: path, Body: b.body}, &pushed); err != nil {
			if len(batches) > 1 {
				err = fmt.Errorf("batch %d of %d, items %d to %d: %w\nthe batches before it are pushed; push the rest when the fault is fixed: of what is pushed twice, only items that were completed meanwhile are pushed anew",
					i+1, len(batches), b.first+1, b.first+b.count, err)
			}
			break
		}
		total.Accepted += pushed.Accepted
		total.Duplicates += pushed.Duplicates
		if err == nil && len(batches) > 1 && !c.JSON {
			_, _ = fmt.Fprintf(s.Errs, "batch %d of %d: %d accepted, %d duplicates\n", i+1, len(batches), pushed.Accepted, pushed.Duplicates)
		}
	}
	if err != nil && len(batches) == 1 {
		return err
	}
	if c.JSON {
		return errors.Join(err, printJSON(s.Out, total))
	}
	_, failed := fmt.Fprintln(s.Out, pushedText(total, c.Task))
	return errors.Join(err, failed)
}

func pushedText(total assign.Pushed, task string) string {
	text := counted(total.Accepted, "item") + " pushed to task " + task
	if total.Duplicates > 0 {
		text += ", " + counted(total.Duplicates, "duplicate")
	}
	return text
}

// format returns the format of a file that is pushed row by row, or an empty one.
func (c itemsPushCmd) format() (bulk.Format, error) {
	f := cmp.Or(bulk.Format(c.Format), bulk.FormatOf(c.File))
	switch {
	case c.Format != "" && c.File == "":
		return "", command.Usage("--format needs -f: it says how to read the file")
	case c.FromLine < 0:
		return "", command.Usage("--from-line must be a line of the file, not %d", c.FromLine)
	case c.FromLine > 0 && (f == "" || c.KeysOnly):
		return "", command.Usage("--from-line is for a file of CSV or NDJSON; --format says that a file is one")
	case f == "" || c.KeysOnly && c.Format == "":
		return "", nil
	case c.KeysOnly || len(c.Keys) > 0:
		return "", command.Usage("a file of %s has the keys of its items in it; leave out --keys-only and the keys", f)
	}
	return f, nil
}

// items returns the items that are named in the file or as arguments, completed by the flags. Its errors are wrong uses
// of the command line.
func (c itemsPushCmd) items(ctx context.Context) ([]pushItem, error) {
	if (c.File == "") == (len(c.Keys) == 0) {
		return nil, command.Usage("name the items to push by their keys, or in a file with -f; - is standard input")
	}
	if c.KeysOnly && c.File == "" {
		return nil, command.Usage("--keys-only needs -f: it says how to read the file")
	}
	items := itemsOf(c.Keys)
	if c.File != "" {
		var err error
		if items, err = readItems(ctx, c.File, c.KeysOnly); err != nil {
			return nil, err
		}
	}
	fill, err := c.fill()
	if err != nil {
		return nil, err
	}
	for i := range items {
		items[i].FillIn(fill)
	}
	return items, nil
}

// fill returns the fields that flags set for items that lack them.
func (c itemsPushCmd) fill() (pushItem, error) {
	fill := pushItem{Priority: c.Priority, Slots: c.Slots, Exclusive: c.Exclusive}
	if c.NotBefore != "" {
		at, err := timeOf(c.NotBefore, time.Now())
		if err != nil {
			return fill, err
		}
		fill.NotBefore = &at
	}
	return fill, nil
}

// timeOf parses a time, or a duration from now.
func timeOf(text string, now time.Time) (time.Time, error) {
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(d).UTC(), nil
	}
	for _, layout := range []string{time.RFC3339, zoned} {
		if t, err := time.Parse(layout, text); err == nil && encodable(t) {
			return t.UTC(), nil
		}
	}
	for _, layout := range []string{"2006-01-02 15:04:05", "2006-01-02 15:04", "2006-01-02"} {
		if t, err := time.ParseInLocation(layout, text, now.Location()); err == nil && encodable(t) {
			return t.UTC(), nil
		}
	}
	return time.Time{}, command.Usage(`--not-before must be a time such as 2030-01-31T08:00:00Z or "2030-01-31 08:00", or a time from now such as 90m, not %q`, text)
}

// encodable says whether JSON has the time. In UTC the year may be another one than it was written with.
func encodable(t time.Time) bool {
	year := t.UTC().Year()
	return year >= 0 && year <= 9999
}

// batch is what one call pushes.
type batch struct {
	body         json.RawMessage
	first, count int // index among all items, from 0, and number of items
}

// maxBatch is the largest body that the server takes, in bytes.
const maxBatch = 1 << 20

// batchesOf divides the items into as few batches as the server takes.
func batchesOf(items []pushItem) ([]batch, error) {
	var all []batch
	one := batch{body: json.RawMessage{'['}}
	end := func() {
		one.body = append(one.body, ']')
		all = append(all, one)
		one = batch{body: json.RawMessage{'['}, first: one.first + one.count}
	}
	for _, item := range items {
		b, err := json.Marshal(item)
		if err != nil {
			return nil, fmt.Errorf("encode item %q: %w", item.Item, err)
		}
		if len(b)+2 > maxBatch {
			return nil, command.Usage("item %.100q has %d bytes; a batch has at most 1 MiB. Store large details elsewhere, and push their address", item.Item, len(b))
		}
		if one.count == assign.MaxPush || len(one.body)+1+len(b)+1 > maxBatch {
			end()
		}
		if one.count > 0 {
			one.body = append(one.body, ',')
		}
		one.body = append(one.body, b...)
		one.count++
	}
	end()
	return all, nil
}
