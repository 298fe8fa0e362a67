package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"

	"getwork/assign"
	"getwork/cmd/internal/bulk"
	"getwork/cmd/internal/command"
	"getwork/web"
	api "getwork/ws/client"
)

// WorkCmd has the commands for held work, apart from letting go of it.
type WorkCmd struct {
	List     workListCmd     `cmd:"" help:"List work, held and past, newest first."`
	Show     workShowCmd     `cmd:"" help:"Show one item as its task wants it shown."`
	Export   workExportCmd   `cmd:"" help:"Write work, held and past, as CSV or NDJSON."`
	Holders  workHoldersCmd  `cmd:"" help:"List who holds how much of which task, longest held first."`
	Extend   workExtendCmd   `cmd:"" help:"Renew the lease of work that you hold."`
	Reassign workReassignCmd `cmd:"" help:"Give work that somebody holds to somebody else."`
	Release  workReleaseCmd  `cmd:"" help:"Take back the work that a user holds, or all held work of a task."`
}

type workListCmd struct {
	Of     *string `help:"Only this user's work." placeholder:"USER"`
	Task   *string `help:"Only work of this task." placeholder:"TASK"`
	Item   *string `help:"Only work on this item." placeholder:"ITEM"`
	State  *string `help:"Only work in this state: held, completed, returned, never, failed, expired or reassigned." enum:"held,completed,returned,never,failed,expired,reassigned" placeholder:"STATE"`
	Value  *string `help:"Only work of the last 31 days with this in one of its details; needs --task." placeholder:"TEXT"`
	paged  `embed:""`
	Remote `embed:""`
}

// Help returns the text that --help adds.
func (workListCmd) Help() string {
	return `Examples:

  getwork work list --task verify --state held
  getwork work list --item 4711 --all
  getwork work list --task verify --value lovell
  getwork work list --of tracy --limit 20 --json

Observers may read everything except notes, which are for managers: --role manager. Workers read their own work with getwork pipeline.`
}

// Run lists work.
func (c workListCmd) Run(ctx context.Context, s *command.Streams) error {
	if err := filled(map[string]*string{"--of": c.Of, "--task": c.Task, "--item": c.Item, "--value": c.Value}); err != nil {
		return err
	}
	client, err := c.Connect(web.Observer)
	if err != nil {
		return err
	}
	query := url.Values{}
	for name, value := range map[string]*string{"user": c.Of, "task": c.Task, "item": c.Item, "state": c.State, "value": c.Value} {
		if value != nil {
			query.Set(name, *value)
		}
	}
	found, err := c.list(ctx, client, "/work", query, "work")
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(s.Out, found)
	}
	works, err := rowsOf[assign.Work](found)
	if err != nil {
		return err
	}
	if len(works) == 0 {
		_, err = fmt.Fprintln(s.Errs, "There is no such work.")
		return err
	}
	defer found.more(s)
	return printHistory(s.Out, works)
}

// printHistory lists work in any state. Columns that are empty in every row are left out.
func printHistory(w io.Writer, works []assign.Work) error {
	rows := make([][]string, len(works))
	for i, work := range works {
		rows[i] = []string{strconv.FormatInt(work.ID, 10), work.Task, work.Item, holderText(work), string(work.State), moment(&work.AssignedAt),
			moment(work.ClosedAt), moment(work.LeaseExpiresAt), moment(work.AvailableAt), attempt(works, work), cut(textOf(work.Error)), cut(textOf(work.Note))}
		if work.State != "held" {
			rows[i][7] = "" // the lease of closed work means nothing any more
		}
	}
	heads := []string{"WORK-ID", "TASK", "ITEM", "USER", "STATE", "SINCE", "UNTIL", "LEASE UNTIL", "AGAIN FROM", "ATTEMPT", "ERROR", "NOTE"}
	return Table(w, lean(heads, &rows, 6), rows)
}

// holderText returns who holds work, with the instance if a program holds it.
func holderText(w assign.Work) string {
	if w.Instance == "" {
		return w.User
	}
	return w.User + " (" + w.Instance + ")"
}

func textOf(t *string) string {
	if t == nil {
		return ""
	}
	return *t
}

type workExportCmd struct {
	Of     *string `help:"Only this user's work." placeholder:"USER"`
	Task   *string `help:"Only work of this task." placeholder:"TASK"`
	Item   *string `help:"Only work on this item." placeholder:"ITEM"`
	State  *string `help:"Only work in this state: held, completed, returned, never, failed, expired or reassigned." enum:"held,completed,returned,never,failed,expired,reassigned" placeholder:"STATE"`
	Format string  `help:"csv, or ndjson, which has every field unchanged. The default is what the name of --out ends with, or csv." enum:",csv,ndjson" default:"" placeholder:"FORMAT"`
	Out    string  `help:"Write to this new file; the default is standard output." placeholder:"FILE" complete:"file"`
	Cursor string  `help:"Continue where an export broke off, at the cursor that it printed." placeholder:"CURSOR"`
	Remote `embed:""`
}

// Help returns the text that --help adds.
func (workExportCmd) Help() string {
	return `Examples:

  getwork work export --task verify --out verify.csv
  getwork work export --state completed --format ndjson | jq -r .item

The newest work comes first. It is read page by page, so an export may be of any size. In CSV, text that a spreadsheet would take for a formula begins with an apostrophe. Observers may read everything except notes, which are for managers: --role manager.`
}

// Run exports work.
func (c workExportCmd) Run(ctx context.Context, s *command.Streams) (err error) {
	if err := filled(map[string]*string{"--of": c.Of, "--task": c.Task, "--item": c.Item}); err != nil {
		return err
	}
	if c.JSON {
		return command.Usage("--json is not for an export; --format ndjson has an object on each line")
	}
	client, err := c.Connect(web.Observer)
	if err != nil {
		return err
	}
	client.Retry = api.Retry{Tries: 6}
	query := url.Values{"limit": {strconv.Itoa(maxPage)}}
	for name, value := range map[string]*string{"user": c.Of, "task": c.Task, "item": c.Item, "state": c.State} {
		if value != nil {
			query.Set(name, *value)
		}
	}
	out, whole := s.Document(), func() {}
	if c.Out != "" {
		file, exists := bulk.NewFile(c.Out)
		if exists != nil {
			return command.Usage("--out must name a file that does not exist yet: %w", exists)
		}
		defer func() { err = errors.Join(err, file.End(err != nil)) }()
		out, whole = file, file.Keep
	}
	format := cmp.Or(bulk.Format(c.Format), bulk.FormatOf(c.Out), bulk.CSV)
	w, err := bulk.NewWriter(out, format, c.Cursor != "")
	if err != nil {
		return err
	}
	progress := command.NewProgress(s)
	defer progress.Clear()
	for n, next := 0, c.Cursor; ; {
		if next != "" {
			query.Set("cursor", next)
		}
		var page struct {
			Work []json.RawMessage `json:"work"`
			Next string            `json:"next_cursor"`
		}
		_, err := client.Do(ctx, Call{Method: "GET", Path: "/work?" + query.Encode()}, &page)
		if err == nil {
			err = w.Write(page.Work)
		}
		if err != nil && next != "" {
			return fmt.Errorf("the export is not complete: %w\n--cursor %s continues after %d rows", err, next, n)
		}
		if n += len(page.Work); err != nil || page.Next == "" || len(page.Work) == 0 {
			return err
		}
		whole()
		next = page.Next
		progress.Show("%d rows", n)
	}
}

type workExtendCmd struct {
	IDs     []string `arg:"" name:"work-id" help:"The work to extend; get and pipeline show its id."`
	holding `embed:""`
}

// Help returns the text that --help adds.
func (workExtendCmd) Help() string {
	return "The lease starts over with its full length. Work whose lease has expired went back and can't be extended: ask for work again with `getwork get`."
}

// Run extends the work one id after the other. If one is refused, the rest are still extended.
func (c workExtendCmd) Run(ctx context.Context, s *command.Streams) error {
	if err := checkIDs(c.IDs...); err != nil {
		return err
	}
	client, err := c.connect(web.Worker)
	if err != nil {
		return err
	}
	extended := []json.RawMessage{}
	var rows [][]string
	var failed []error
	for _, id := range c.IDs {
		var w assign.Work
		got, err := client.Do(ctx, Call{Method: "POST", Path: "/work/" + url.PathEscape(id) + "/extend"}, &w)
		if err != nil {
			failed = append(failed, named("work "+id, err))
			if refusal := new(refused); errors.As(err, &refusal) {
				continue
			}
			break // the server can't be reached: the rest would fail, too
		}
		extended = append(extended, got.body)
		until := moment(w.LeaseExpiresAt)
		if until == "" {
			until = "no lease, it is yours until you let go of it"
		}
		rows = append(rows, []string{strconv.FormatInt(w.ID, 10), w.Task, w.Item, until})
	}
	switch {
	case c.JSON:
		err = printJSON(s.Out, map[string]any{"work": extended})
	case len(rows) > 0:
		err = Table(s.Out, []string{"WORK-ID", "TASK", "ITEM", "LEASE UNTIL"}, rows)
	}
	return errors.Join(append(failed, err)...)
}

type workReassignCmd struct {
	ID     string `arg:"" name:"work-id" help:"The work to reassign; getwork work list shows its id."`
	To     string `required:"" help:"The user who gets it." placeholder:"USER"`
	Remote `embed:""`
}

// Help returns the text that --help adds.
func (workReassignCmd) Help() string {
	return "The holder is told. The work is closed as reassigned, and the item appears in the other user's pipeline under a new id. For managers."
}

// Run gives work to another user.
func (c workReassignCmd) Run(ctx context.Context, s *command.Streams) error {
	if err := cmp.Or(checkIDs(c.ID), fits(assign.CheckUser(c.To))); err != nil {
		return err
	}
	client, err := c.Connect(web.Manager)
	if err != nil {
		return err
	}
	var w assign.Work
	got, err := client.Do(ctx, Call{Method: "POST", Path: "/work/" + url.PathEscape(c.ID) + "/reassign", Body: map[string]string{"user": c.To}}, &w)
	switch {
	case err != nil:
		return err
	case c.JSON:
		return printJSON(s.Out, got.body)
	}
	client.doubt(ctx, s, w)
	return printHistory(s.Out, []assign.Work{w})
}

// doubt warns if the new holder has no other work and never had any: the name may be mistyped.
func (c *Client) doubt(ctx context.Context, s *command.Streams, given assign.Work) {
	var theirs struct {
		Work []assign.Work `json:"work"`
	}
	_, err := c.Do(ctx, Call{Method: "GET", Path: "/work?limit=2&user=" + url.QueryEscape(given.User)}, &theirs)
	if err == nil && len(theirs.Work) == 1 && theirs.Work[0].ID == given.ID {
		_, _ = fmt.Fprintf(s.Errs, "Nobody has worked here as %s so far; if the name is wrong, reassign work %d again.\n", given.User, given.ID)
	}
}
