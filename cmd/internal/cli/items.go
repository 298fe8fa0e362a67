package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"getwork/assign"
	"getwork/cmd/internal/bulk"
	"getwork/cmd/internal/command"
	"getwork/web"
	api "getwork/ws/client"
)

// ItemsCmd has the commands for the items of a task, which are named by their keys.
type ItemsCmd struct {
	Push    itemsPushCmd    `cmd:"" help:"Push items to an inbox, which is a task without a query."`
	Show    itemsShowCmd    `cmd:"" help:"Explain an item: whether it matches, who holds it, what keeps it back."`
	Claim   itemsClaimCmd   `cmd:"" help:"Take one named item."`
	Redrive itemsRedriveCmd `cmd:"" help:"Put back items that were never to be handed out again."`
}

// itemsPath returns the path of a task's items, or of one of them. It returns a usage error if a name is empty.
func itemsPath(task string, item ...string) (string, error) {
	path, err := taskPath(task)
	if err != nil {
		return "", err
	}
	path += "/items"
	for _, key := range item {
		if key == "" {
			return "", command.Usage("name an item by its key, which has at least one character")
		}
		path += "/" + url.PathEscape(key)
	}
	return path, nil
}

type itemsClaimCmd struct {
	Task    string `arg:"" help:"The task."`
	Item    string `arg:"" help:"The item's key."`
	To      string `help:"The user who gets it instead of you, for managers." placeholder:"USER"`
	Force   bool   `help:"With --to: don't ask if nobody of that name has been seen."`
	holding `embed:""`
}

// Help returns the text that --help adds.
func (itemsClaimCmd) Help() string {
	return "Exits with 0 if the item is yours now, or that of the user in --to, even if it was before. Exits with 1 if somebody else holds it, all its places are taken, it is put off, a rule keeps it from you or that user, or it does not match the task. The groups of the user in --to are those of their last log-in or request."
}

// Run claims one item.
func (c itemsClaimCmd) Run(ctx context.Context, s *command.Streams) error {
	path, err := itemsPath(c.Task, c.Item)
	switch {
	case err != nil:
		return err
	case c.Force && c.To == "":
		return command.Usage("--force needs --to, the user who gets the item")
	}
	call := Call{Method: "POST", Path: path + "/claim", query: true}
	role, whose := web.Worker, "yours"
	if c.To != "" {
		if err := fits(assign.CheckUser(c.To)); err != nil {
			return err
		}
		role, whose = web.Manager, "theirs"
	}
	client, err := c.connect(role)
	if err != nil {
		return err
	}
	var w assign.Work
	var got reply
	if c.To == "" {
		got, err = client.Do(ctx, call, &w)
	} else {
		got, err = client.give(ctx, s, call, assign.Reassignment{User: c.To, Force: c.Force}, "nothing was given", &w)
	}
	switch {
	case err != nil:
		return err
	case c.JSON:
		return printJSON(s.Out, got.body)
	case got.Status == http.StatusOK:
		_, _ = fmt.Fprintf(s.Errs, "It was %s already.\n", whose)
	}
	if c.To != "" {
		return printHistory(s.Out, []assign.Work{w})
	}
	return printWork(s.Out, []assign.Work{w})
}

type itemsRedriveCmd struct {
	Task   string   `arg:"" help:"The task."`
	Items  []string `arg:"" optional:"" name:"item" help:"Keys of items, no matter who set them to never."`
	All    bool     `help:"All items whose attempts were used up. Items that somebody set to never must be named."`
	Remote `embed:""`
}

// Help returns the text that --help adds.
func (itemsRedriveCmd) Help() string {
	return "Items that are put back can be handed out again at once, and their next attempt is the first again. Items that were not set to never are left as they are and not counted. For managers."
}

// Run puts items back.
func (c itemsRedriveCmd) Run(ctx context.Context, s *command.Streams) error {
	path, err := taskPath(c.Task)
	switch {
	case err != nil:
		return err
	case c.All == (len(c.Items) > 0):
		return command.Usage("name the items to put back, or give --all for those whose attempts were used up")
	}
	client, err := c.Connect(web.Manager)
	if err != nil {
		return err
	}
	body := map[string][]string{}
	if !c.All {
		body["items"] = c.Items
	}
	var done struct {
		Count int `json:"count"`
	}
	got, err := client.Do(ctx, Call{Method: "POST", Path: path + "/redrive", Body: body}, &done)
	switch {
	case err != nil:
		return err
	case c.JSON:
		return printJSON(s.Out, got.body)
	}
	if left := len(slices.Compact(slices.Sorted(slices.Values(c.Items)))) - done.Count; left > 0 {
		_, _ = fmt.Fprintf(s.Errs, "not set to never, and left alone: %s; `getwork items show` tells an item's state\n", counted(left, "item"))
	}
	_, err = fmt.Fprintf(s.Out, "%s of task %s put back\n", counted(done.Count, "item"), c.Task)
	return err
}

type itemsPushCmd struct {
	Task      string   `arg:"" help:"The task, which must be an inbox."`
	Keys      []string `arg:"" optional:"" name:"key" help:"Keys of items, each of 1 to 200 bytes."`
	File      string   `short:"f" help:"Read the items from this file; - is standard input." placeholder:"FILE" complete:"file"`
	KeysOnly  bool     `help:"Each line of the file is a key, even if it begins with a bracket or a brace."`
	Priority  *int32   `help:"Items with a higher priority are handed out first; the default is 0." placeholder:"N"`
	NotBefore string   `help:"When the items may first be handed out: a time such as 2030-01-31T08:00:00Z or, in this machine's zone, \"2030-01-31 08:00\", or a time from now such as 90m." placeholder:"TIME"`
	Slots     *int     `help:"How many people may hold an item at a time; the default is the task's." placeholder:"N"`
	DoneBy    *int     `help:"How many different people complete an item before it is done; the default is the task's." placeholder:"N"`
	Exclusive *string  `help:"The items' group: only one item of a group is held at a time." placeholder:"GROUP"`
	Format    string   `help:"How the file has its items: csv or ndjson. The default is what its name ends with: .csv, .ndjson or .jsonl." enum:",csv,ndjson" default:"" placeholder:"FORMAT"`
	FromLine  int      `help:"Leave out the rows before this line; a push that broke off says from which line to go on." placeholder:"LINE"`
	Remote    `embed:""`
}

// Help returns the text that --help adds.
func (itemsPushCmd) Help() string {
	return `Examples:

  getwork items push resize-photos a.jpg b.jpg --priority 5
  find . -name '*.jpg' | getwork items push resize-photos -f -
  getwork items push resize-photos -f photos.json --not-before 2h
  getwork items push resize-photos -f photos.csv
  psql -c "copy (select …) to stdout csv header" | getwork items push resize-photos -f - --format csv

A file has one key per line, or one JSON object per line, or it is a JSON array, or CSV. An object has the fields that the API takes; all but item may be left out, and flags set those that are missing:

  {"item": "a.jpg", "priority": 5, "not_before": "2030-01-31T08:00:00Z", "deadline": "2030-02-28T17:00:00Z", "slots": 1, "done_by": 1, "exclusive": "album-7", "details": {"width": 800}}

The first row of CSV names the columns: item, and any of priority, not_before, deadline, needs, needs_until, slots, done_by, exclusive and details; all other columns become details, as text. An item's details have at most 64 KiB, and 64 levels of objects and arrays in each other. Columns without a name must be empty. needs names groups, with commas between. Times have their zone, as PostgreSQL prints a timestamptz. An apostrophe before = + - @ is taken off, because exports put it there.

Rows are pushed in batches, however long the file is. A row with a fault is reported with its line and left out, all others are pushed, and the exit status is then 1; so it is if there is no row. A key with blanks at its ends, or with characters that can't be seen, is pushed with a warning: it is another key than the one that looks the same.

A key that waits, is held, put off or never to come back is counted as a duplicate and left as it is. An item that was completed is pushed anew. For agents and managers.`
}

// Run pushes the items.
func (c itemsPushCmd) Run(ctx context.Context, s *command.Streams) error {
	path, err := itemsPath(c.Task)
	if err != nil {
		return err
	}
	format, err := c.format()
	if err != nil {
		return err
	}
	return c.pushRows(ctx, s, path, format)
}

func pushedText(total assign.Pushed, task string) string {
	text := counted(total.Accepted, "item") + " pushed to task " + task
	if total.Duplicates > 0 {
		text += ", " + counted(total.Duplicates, "duplicate")
	}
	return text
}

// format returns the format of the file; empty, if its first character is to decide. Its errors are wrong uses of the command line.
func (c itemsPushCmd) format() (bulk.Format, error) {
	f := cmp.Or(bulk.Format(c.Format), bulk.FormatOf(c.File))
	switch {
	case c.Format != "" && c.File == "":
		return "", command.Usage("--format needs -f: it says how to read the file")
	case c.KeysOnly && c.File == "":
		return "", command.Usage("--keys-only needs -f: it says how to read the file")
	case c.FromLine < 0:
		return "", command.Usage("--from-line must be a line of the file, not %d", c.FromLine)
	case c.FromLine > 0 && c.File == "":
		return "", command.Usage("--from-line needs -f: it is a line of the file")
	case (c.File == "") == (len(c.Keys) == 0):
		return "", command.Usage("name the items to push by their keys, or in a file with -f; - is standard input")
	case c.KeysOnly && c.Format != "":
		return "", command.Usage("a file of %s has the keys of its items in it; leave out --keys-only", f)
	case c.KeysOnly:
		return bulk.Keys, nil
	}
	return f, nil
}

// fill returns the fields that flags set for items that lack them.
func (c itemsPushCmd) fill() (bulk.Item, error) {
	fill := bulk.Item{Priority: c.Priority, Slots: c.Slots, DoneBy: c.DoneBy, Exclusive: c.Exclusive}
	if c.NotBefore != "" {
		at, err := timeOf("--not-before", c.NotBefore, time.Now())
		if err != nil {
			return fill, err
		}
		fill.NotBefore = &at
	}
	return fill, nil
}

// timeOf parses the time that a flag has, or the duration from now.
func timeOf(flag, text string, now time.Time) (time.Time, error) {
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(d).UTC(), nil
	}
	if t, err := bulk.Moment(text); err == nil {
		return t, nil
	}
	for _, layout := range []string{"2006-01-02 15:04:05", "2006-01-02 15:04", "2006-01-02"} {
		if t, err := time.ParseInLocation(layout, text, now.Location()); err == nil && encodable(t) {
			return t.UTC(), nil
		}
	}
	return time.Time{}, command.Usage(`%s must be a time such as 2030-01-31T08:00:00Z or "2030-01-31 08:00", or a time from now such as 90m, not %q`, flag, text)
}

// encodable says whether JSON has the time. In UTC the year may be another one than it was written with.
func encodable(t time.Time) bool {
	year := t.UTC().Year()
	return year >= 0 && year <= 9999
}

// pushRows pushes keys, or a file row by row: in batches, however long it is, and the good rows of a file that also has bad ones.
func (c itemsPushCmd) pushRows(ctx context.Context, s *command.Streams, path string, format bulk.Format) error {
	fill, err := c.fill()
	if err != nil {
		return err
	}
	client, err := c.Connect(web.Agent)
	if err != nil {
		return err
	}
	client.Retry = api.Retry{Tries: 6} // a push is repeated only if the server has not begun it
	name, read, err := c.source(ctx, format)
	if err != nil {
		return err
	}
	at := name + ":"
	if c.File == "" {
		at = "key "
	}
	progress := command.NewProgress(s)
	bad, odd, heard := []badRow{}, []oddRow{}, false // heard: the last push may have been carried out although it failed
	p := &bulk.Pusher{
		Push: func(ctx context.Context, items []bulk.Item) (pushed assign.Pushed, err error) {
			_, err = client.Do(ctx, Call{Method: "POST", Path: path, Body: items}, &pushed)
			heard = mayBeHeard(err)
			return pushed, oneItem(err)
		},
		Bad: func(row bulk.Row, why string) {
			if row.Nth > 0 {
				why = fmt.Sprintf("item %d: %s", row.Nth, why)
			}
			progress.Clear()
			bad = append(bad, badRow{row.Line, why})
			_, _ = fmt.Fprintf(s.Errs, "%s%d: %s\n", at, row.Line, why)
		},
		Pushed: func(t bulk.Totals) {
			progress.Show("%d rows: %d pushed, %d duplicates, %d bad", t.Rows, t.Accepted, t.Duplicates, t.Bad)
		},
	}
	err = read(func(row bulk.Row) error {
		if ctx.Err() != nil {
			return ErrInterrupted
		}
		if row.Line < c.FromLine {
			return nil
		}
		if why := row.Item.Odd(); row.Err == nil && why != "" {
			if odd = append(odd, oddRow{row.Line, why}); len(odd) <= shownOdd {
				progress.Clear()
				_, _ = fmt.Fprintf(s.Errs, "%s%d: warning: %s\n", at, row.Line, why)
			}
		}
		row.Item.FillIn(fill)
		return p.Add(ctx, row)
	})
	switch {
	case ctx.Err() != nil:
		err = ErrInterrupted
	case err == nil:
		err = p.Flush(ctx)
	case p.Totals.Rows == 0:
		err = command.Usage("%s: %w", name, err)
	}
	progress.Clear()
	if more := len(odd) - shownOdd; more > 0 {
		_, _ = fmt.Fprintf(s.Errs, "%s: warning: the same holds for %d more\n", name, more)
	}
	t := p.Totals
	err = c.result(err, t, p.From(), heard, name)
	if c.JSON {
		return errors.Join(err, printJSON(s.Out, struct {
			bulk.Totals
			Errors   []badRow `json:"errors"`
			Warnings []oddRow `json:"warnings"`
		}{t, bad, odd}))
	}
	if t.Rows > 0 {
		if _, failed := fmt.Fprintln(s.Out, pushedText(assign.Pushed{Accepted: t.Accepted, Duplicates: t.Duplicates}, c.Task)); failed != nil {
			err = errors.Join(err, failed)
		}
	}
	return err
}

// source returns what reads the rows, and the name that their lines have in messages.
func (c itemsPushCmd) source(ctx context.Context, format bulk.Format) (name string, read func(func(bulk.Row) error) error, err error) {
	if c.File == "" {
		return "the command line", func(each func(bulk.Row) error) error {
			for i, key := range c.Keys {
				if err := each(bulk.KeyRow(i+1, key)); err != nil {
					return err
				}
			}
			return nil
		}, nil
	}
	from, name := os.Stdin, "standard input"
	if c.File != "-" {
		name = c.File
		if from, err = os.Open(c.File); err != nil {
			return "", nil, command.AsUsage(err)
		}
	}
	return name, func(each func(bulk.Row) error) error {
		defer from.Close()
		file := untilDone(ctx, from)
		defer file.Close()
		return bulk.Read(file, format, each)
	}, nil
}

// result says how a push ended, and how to go on. from is the first line of the rows that were not pushed, or 0.
func (c itemsPushCmd) result(err error, t bulk.Totals, from int, heard bool, name string) error {
	switch {
	case err == nil && t.Rows == 0 && c.FromLine > 0:
		return fmt.Errorf("nothing was pushed: %s has no item from line %d on", name, c.FromLine)
	case err == nil && t.Rows == 0:
		return fmt.Errorf("nothing was pushed: %s has no item in it", name)
	case err == nil && t.Bad > 0:
		return fmt.Errorf("%s bad, of %d; correct them and push them again, best alone: items of the other rows that were completed meanwhile would be pushed anew", areBad(t.Bad), t.Rows)
	case err == nil || from == 0 || c.File == "" && from == 1 && !heard:
		return err
	case c.File == "" && heard:
		return fmt.Errorf("the keys from number %d on may be pushed or not: %w\npush them again when the fault is mended; of what is pushed twice, only items that were completed meanwhile are pushed anew", from, err)
	case c.File == "":
		return fmt.Errorf("the keys from number %d on are not pushed: %w", from, err)
	case heard:
		return fmt.Errorf("the rows from line %d on may be pushed or not: %w\n--from-line %d pushes them when the fault is mended; of what is pushed twice, only items that were completed meanwhile are pushed anew", from, err, from)
	}
	return fmt.Errorf("the rows from line %d on are not pushed: %w\n--from-line %d pushes them when the fault is mended", from, err, from)
}

// mayBeHeard reports whether the server may have carried out a push that failed: it did not refuse it, and a connection was made.
// An interrupted push counts as heard, because its answer is not known.
func mayBeHeard(err error) bool {
	var r *refused
	var none *unreached
	switch {
	case err == nil:
		return false
	case errors.As(err, &r):
		return r.Status/100 != 4
	case errors.As(err, &none):
		return !none.unsent
	}
	return true
}

// badRow is a row that was not pushed.
type badRow struct {
	Line  int    `json:"line"`
	Error string `json:"error"`
}

// oddRow is a row that was pushed, although its key may be meant to be another one.
type oddRow struct {
	Line    int    `json:"line"`
	Warning string `json:"warning"`
}

// shownOdd is how many of these are printed: a column of type char(n) makes every key one.
const shownOdd = 10

func areBad(n int) string {
	if n == 1 {
		return "1 row is"
	}
	return strconv.Itoa(n) + " rows are"
}

// oneItem turns a refusal that names an item, as "[3].priority", into a [bulk.Refusal].
func oneItem(err error) error {
	var r *refused
	if !errors.As(err, &r) || r.Status != http.StatusBadRequest || len(r.Errors) == 0 {
		return err
	}
	index, field, found := strings.Cut(strings.TrimPrefix(r.Errors[0].Field, "["), "]")
	at, wrong := strconv.Atoi(index)
	if !found || wrong != nil {
		return err
	}
	why := r.Errors[0].Detail
	if field = strings.TrimPrefix(field, "."); field != "" {
		why = field + ": " + why
	}
	return &bulk.Refusal{Index: at, Why: why}
}

type itemsShowCmd struct {
	Task   string `arg:"" help:"The task."`
	Item   string `arg:"" help:"The item's key."`
	Remote `embed:""`
}

// Help returns the text that --help adds.
func (itemsShowCmd) Help() string {
	return "If the task has a query and no fresh result, the query is run to look for the item, for up to its query_timeout; Ctrl-C gives up. \"could go\" names those of who is here, at most 200, to whom getwork items claim --to could give it; --json says why not to the others. For managers."
}

// Run explains one item.
func (c itemsShowCmd) Run(ctx context.Context, s *command.Streams) error {
	path, err := itemsPath(c.Task, c.Item)
	if err != nil {
		return err
	}
	client, err := c.Connect(web.Manager)
	if err != nil {
		return err
	}
	var e assign.Explanation
	shown := command.NewProgress(s).Count("Asking the task’s query")
	got, err := client.Do(ctx, Call{Method: "GET", Path: path, query: true}, &e)
	shown()
	switch {
	case err != nil:
		return err
	case c.JSON:
		return printJSON(s.Out, got.body)
	}
	return printExplanation(s.Out, e)
}

func printExplanation(w io.Writer, e assign.Explanation) error {
	var b strings.Builder
	say := func(name, value string) {
		if value != "" {
			_, _ = fmt.Fprintf(&b, "%-9s %s\n", name, plain(value))
		}
	}
	_, _ = fmt.Fprintf(&b, "%s, of task %s\n%s\n\n", plain(e.Item), plain(e.Task), plain(e.Text))
	say("matches", matchText(e))
	say("places", strconv.Itoa(e.Slots))
	say("group", textOf(e.Exclusive))
	say("until", moment(e.Until))
	say("deadline", moment(e.Deadline))
	if e.Matches {
		say("details", details(e.Details))
	}
	var may []string
	for _, r := range e.Could {
		if r.May {
			may = append(may, r.User)
		}
	}
	say("could go", strings.Join(may, ", "))
	for _, barred := range e.Barred {
		text := holderText(assign.Work{User: barred.User, Instance: barred.Instance}) + ", who " + barred.Because
		if barred.Until != nil {
			text += ", until " + moment(barred.Until)
		}
		say("not for", text)
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return err
	}
	for _, part := range []struct {
		title string
		works []assign.Work
	}{{"Held now:", e.Held}, {"History, newest first:", e.History}} {
		if len(part.works) == 0 {
			continue
		}
		if _, err := fmt.Fprintf(w, "\n%s\n", part.title); err != nil {
			return err
		}
		if err := printHistory(w, part.works); err != nil {
			return err
		}
	}
	return nil
}

// matchText says whether the task has the item, where it was found, and at which rank.
func matchText(e assign.Explanation) string {
	if !e.Matches {
		return "no"
	}
	text := map[string]string{"shelf": "yes, on the shelf", "query": "yes, by the task's query", "inbox": "yes, it is in the inbox"}[e.Source]
	if text == "" {
		text = "yes"
	}
	if e.Rank != nil {
		text += fmt.Sprintf(", at rank %d", *e.Rank)
	}
	return text
}
