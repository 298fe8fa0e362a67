package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	"getwork/assign"
	"getwork/cmd/internal/bulk"
	"getwork/cmd/internal/command"
	"getwork/cmd/internal/itemtext"
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
	return printList(s, found, c.JSON, "There is no such work.", func(works []assign.Work) error {
		return printHistory(s.Out, works)
	})
}

// printHistory lists work in any state. Columns that are empty in every row are left out.
func printHistory(w io.Writer, works []assign.Work) error {
	rows := make([][]string, len(works))
	for i, work := range works {
		rows[i] = []string{strconv.FormatInt(work.ID, 10), work.Task, work.Item, holderText(work), string(work.State), minute(&work.AssignedAt),
			minute(work.ClosedAt), minute(work.LeaseExpiresAt), minute(work.AvailableAt), attempt(works, work), textOf(work.Code), cut(textOf(work.Error)), cut(textOf(work.Note))}
		if work.State != "held" {
			rows[i][7] = "" // the lease of closed work means nothing any more
		}
	}
	heads := []string{"WORK-ID", "TASK", "ITEM", "USER", "STATE", "SINCE", "UNTIL", "LEASE UNTIL", "AGAIN FROM", "ATTEMPT", "CODE", "ERROR", "NOTE"}
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

The newest work comes first. It is read page by page, so an export may be of any size. In CSV, text that a spreadsheet would take for a formula begins with an apostrophe, and text that begins with apostrophes before such a character with one more. getwork items push takes one off. A file or a pipe gets the texts as they are; on a terminal what it would obey is shown as escapes, as all other commands print it. Observers may read everything except notes, which are for managers: --role manager.`
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
	out, whole := s.Data(), func() {}
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
			err = readLeftOut(ctx, client, page.Work)
		}
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

// readLeftOut replaces the rows whose details were too much for one page by the work as it is by itself.
func readLeftOut(ctx context.Context, client *Client, rows []json.RawMessage) error {
	for i, row := range rows {
		var w assign.Work
		if err := json.Unmarshal(row, &w); err != nil {
			return err
		}
		if !w.DetailsLeftOut {
			continue
		}
		got, err := client.Do(ctx, Call{Method: "GET", Path: "/work/" + strconv.FormatInt(w.ID, 10)}, &w)
		if IsRefused(err, http.StatusNotFound) {
			continue // it was removed meanwhile
		}
		if err != nil {
			return err
		}
		rows[i] = json.RawMessage(bytes.TrimSpace(got.body))
	}
	return nil
}

type workExtendCmd struct {
	IDs     []string `arg:"" name:"work-id" help:"The work to extend; get and pipeline show its id."`
	holding `embed:""`
}

// Help returns the text that --help adds.
func (workExtendCmd) Help() string {
	return "The lease starts over with its full length. Work whose lease has expired went back and can't be extended: ask for work again with `getwork get`."
}

// Run extends the work, in calls of up to [assign.MaxMany]. A refused item keeps no other from being extended.
func (c workExtendCmd) Run(ctx context.Context, s *command.Streams) error {
	if err := checkIDs(c.IDs...); err != nil {
		return err
	}
	client, err := c.connect(web.Worker)
	if err != nil {
		return err
	}
	var ids []string
	for _, id := range workIDs(c.IDs) {
		ids = append(ids, strconv.FormatInt(id, 10))
	}
	extended, works, failed := inBulk(ctx, client, "/work/extend", "ids", slices.Chunk(ids, assign.MaxMany), func(id string) int64 {
		n, _ := strconv.ParseInt(id, 10, 64)
		return n
	})
	var rows [][]string
	for _, w := range works {
		until := minute(w.LeaseExpiresAt)
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
	Force  bool   `help:"Don't ask if nobody of that name has been seen."`
	Remote `embed:""`
}

// Help returns the text that --help adds.
func (workReassignCmd) Help() string {
	return "The holder is told. The work is closed as reassigned, and the item appears in the other user's pipeline under a new id. The task's rules apply to that user, with the groups of their last log-in or request. If nobody of that name has logged in, asked for work or held any, it asks first, since the name may be mistyped; if nobody can be asked, --force is needed. For managers."
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
	call := Call{Method: "POST", Path: "/work/" + url.PathEscape(c.ID) + "/reassign"}
	got, err := client.give(ctx, s, call, assign.Reassignment{User: c.To, Force: c.Force}, "nothing was reassigned", &w)
	switch {
	case err != nil:
		return err
	case c.JSON:
		return printJSON(s.Out, got.body)
	}
	return printHistory(s.Out, []assign.Work{w})
}

// give makes a call that gives work to a user. At a terminal it asks first if nobody of that name has been seen.
func (c *Client) give(ctx context.Context, s *command.Streams, call Call, to assign.Reassignment, otherwise string, w *assign.Work) (reply, error) {
	call.Body = to
	got, err := c.Do(ctx, call, w)
	if r := new(refused); command.IsTerminal(os.Stdin) && errors.As(err, &r) && slices.ContainsFunc(r.Errors, func(f assign.Field) bool { return f.Field == "force" }) {
		if err := ask(ctx, s, false, fmt.Sprintf("Nobody called %s has logged in, asked for work or held any here; the name may be mistyped.", to.User), otherwise); err != nil {
			return reply{}, err
		}
		call.Body = assign.Reassignment{User: to.User, Force: true}
		got, err = c.Do(ctx, call, w)
	}
	return got, err
}

type workShowCmd struct {
	ID      string `arg:"" name:"work-id" help:"The work to show; get, pipeline and work list show its id."`
	All     bool   `help:"Show folded columns, too."`
	holding `embed:""`
}

// Help returns the text that --help adds.
func (workShowCmd) Help() string {
	return `Shows one item as the task's display wants it: its title, its details with labels and formats, and where the work is done. ! marks values that stand out. --json prints the work as the API has it, with raw details.

Workers see their own work, observers and managers everybody's: --role observer.`
}

// Run shows one work.
func (c workShowCmd) Run(ctx context.Context, s *command.Streams) error {
	if err := checkIDs(c.ID); err != nil {
		return err
	}
	client, err := c.connect(web.Worker)
	if err != nil {
		return err
	}
	var w assign.Work
	got, err := client.Do(ctx, Call{Method: "GET", Path: "/work/" + url.PathEscape(c.ID)}, &w)
	switch {
	case err != nil:
		return err
	case c.JSON:
		return printJSON(s.Out, got.body)
	}
	task, err := client.Task(ctx, w.Task)
	if err != nil && !IsRefused(err, http.StatusNotFound) { // it may have been deleted or renamed, or may not be open to the caller
		return err
	}
	item, err := itemtext.Of(task.Display, w)
	if err != nil {
		return err
	}
	return c.print(s, w, item)
}

func (c workShowCmd) print(s *command.Streams, w assign.Work, item itemtext.Item) error {
	var lines [][2]string
	add := func(label, value string) {
		if value != "" {
			lines = append(lines, [2]string{label, value})
		}
	}
	add("Work", fmt.Sprintf("%d of task %s, %s", w.ID, w.Task, w.State))
	add("Item", w.Item)
	add("Holder", holderText(w))
	add("Since", moment(&w.AssignedAt))
	if w.State == assign.WorkHeld {
		add("Lease until", moment(w.LeaseExpiresAt))
	}
	add("Deadline", moment(w.Deadline))
	add("Later", moment(w.LaterUntil))
	add("Code", textOf(w.Code))
	add("Result", string(w.Result))
	add("Note", textOf(w.Note))
	add("Open", item.Link)
	label := "Earlier"
	for _, e := range w.Earlier {
		add(label, ending(e))
		label = ""
	}
	if w.DetailsLeftOut {
		add("Details", fmt.Sprintf("left out: they have more than %d KiB or %d levels", assign.MaxDetails>>10, assign.MaxLevels))
	}
	lines = append(lines, [2]string{})
	folded := 0
	for _, line := range item.Lines {
		if line.Folded && !c.All && !line.StandsOut {
			folded++
			continue
		}
		mark := ""
		if line.StandsOut {
			mark = "! "
		}
		lines = append(lines, [2]string{line.Label, mark + line.Value})
	}
	width := 0
	for _, line := range lines {
		width = max(width, len([]rune(line[0])))
	}
	var b strings.Builder
	b.WriteString(item.Title + "\n\n")
	for _, line := range lines {
		text := strings.ReplaceAll(line[1], "\n", "\n"+strings.Repeat(" ", width+2))
		b.WriteString(strings.TrimRight(fmt.Sprintf("%-*s  %s", width, line[0], text), " ") + "\n")
	}
	if folded > 0 {
		fmt.Fprintf(&b, "\n%d more with --all\n", folded)
	}
	_, err := fmt.Fprint(s.Out, strings.TrimRight(b.String(), "\n")+"\n")
	return err
}

// ending returns how somebody let go of an item before.
func ending(e assign.Ending) string {
	text := fmt.Sprintf("%s %s by %s", moment(&e.ClosedAt), e.State, holderText(assign.Work{User: e.User, Instance: e.Instance}))
	if e.Code != nil {
		text += " (" + *e.Code + ")"
	}
	for _, said := range []*string{e.Note, e.Error} {
		if said != nil {
			text += ": " + plain(*said)
		}
	}
	return text
}

type workHoldersCmd struct {
	Of     *string `help:"Only work that this user holds." placeholder:"USER"`
	Task   *string `help:"Only work of this task, or of several, separated by commas." placeholder:"TASK"`
	paged  `embed:""`
	Remote `embed:""`
}

// Help returns the text that --help adds.
func (workHoldersCmd) Help() string {
	return `Examples:

  getwork work holders
  getwork work holders --task verify,approve --all
  getwork work holders --of tracy

Prints a line for each user and task, with all of the user's instances together. To list what a user holds, item by item, use getwork work list --state held --of USER. For observers and managers.`
}

// Run lists who holds how much.
func (c workHoldersCmd) Run(ctx context.Context, s *command.Streams) error {
	if err := filled(map[string]*string{"--of": c.Of, "--task": c.Task}); err != nil {
		return err
	}
	client, err := c.Connect(web.Observer)
	if err != nil {
		return err
	}
	query := url.Values{}
	for name, value := range map[string]*string{"user": c.Of, "task": c.Task} {
		if value != nil {
			query.Set(name, *value)
		}
	}
	found, err := c.list(ctx, client, "/holders", query, "holders")
	if err != nil {
		return err
	}
	return printList(s, found, c.JSON, "Nobody holds such work.", func(holders []assign.Held) error {
		rows := make([][]string, len(holders))
		for i, h := range holders {
			instances := ""
			if h.Instances > 0 {
				instances = strconv.FormatInt(h.Instances, 10)
			}
			rows[i] = []string{h.User, h.Task, strconv.FormatInt(h.Held, 10), minute(&h.OldestAt), minute(h.LeaseExpiresAt), instances}
		}
		return Table(s.Out, lean([]string{"USER", "TASK", "HELD", "SINCE", "LEASE UNTIL", "INSTANCES"}, &rows, 4), rows)
	})
}

type workReleaseCmd struct {
	Of     *string `help:"Take back what this user holds, and cancel what they wait for." placeholder:"USER"`
	Task   *string `help:"Take back all held work of this task." placeholder:"TASK"`
	Code   *string `help:"Why, as a code of the task's outcomes that returns work; needed where a task requires a code." placeholder:"CODE"`
	Yes    bool    `help:"Don't ask." xor:"sure"`
	DryRun bool    `help:"Only count the work." xor:"sure"`
	Remote `embed:""`
}

// Help returns the text that --help adds.
func (workReleaseCmd) Help() string {
	return `Examples:

  getwork work release --of tracy
  getwork work release --of tracy --task verify --yes

Counts the work and asks before it takes it back; if nobody can be asked, --yes is needed. With --of it also cancels the requests of that user that wait, since one that lingers would get the work again; with both --of and --task that is so within that task. The items can be handed out again at once, and the attempt does not count. If work is taken or let go of between the count and the answer, nothing is released. More than 5,000 items are released in parts. ` + "`getwork work list --state held`" + ` lists held work. For managers.`
}

// Run counts the work, asks, and releases exactly what it counted.
func (c workReleaseCmd) Run(ctx context.Context, s *command.Streams) error {
	if err := filled(map[string]*string{"--of": c.Of, "--task": c.Task, "--code": c.Code}); err != nil {
		return err
	}
	switch {
	case c.Of == nil && c.Task == nil:
		return command.Usage("say whose work to take back with --of, or of which task with --task, or both")
	case !c.Yes && !c.DryRun && !command.IsTerminal(os.Stdin):
		return command.Usage("nobody can be asked: --yes takes the work back without asking, --dry-run only counts it")
	}
	client, err := c.Connect(web.Manager)
	if err != nil {
		return err
	}
	what := assign.Release{User: textOf(c.Of), Task: textOf(c.Task), Code: textOf(c.Code), DryRun: true}
	var found, done assign.Released
	got, err := client.Do(ctx, c.call(what), &found)
	switch {
	case err != nil:
		return err
	case c.DryRun && c.JSON:
		return printJSON(s.Out, got.body)
	case c.DryRun:
		_, err = fmt.Fprintf(s.Out, "To be released: %s.\n", c.amount(found, "to be cancelled"))
		return err
	case found.Count == 0 && found.Requests == 0 && !c.JSON:
		_, err = fmt.Fprintln(s.Out, "Nobody holds such work or waits for it, so there is nothing to release.")
		return err
	}
	if !c.Yes {
		_, _ = fmt.Fprintf(s.Errs, "To be released: %s. Go on? [y/N] ", c.amount(found, "to be cancelled"))
		if err := confirm(ctx, os.Stdin, "nothing was released"); err != nil {
			return err
		}
	}
	what.DryRun, what.Token = false, found.Token
	got, err = client.Do(ctx, c.call(what), &done)
	switch {
	case IsRefused(err, http.StatusConflict):
		return errors.New("nothing was released: the held work has changed since it was counted\nrun the command again, and look at the count")
	case err != nil:
		return err
	case c.JSON:
		return printJSON(s.Out, got.body)
	}
	_, err = fmt.Fprintf(s.Out, "Released: %s.\n", c.amount(done, "cancelled"))
	return err
}

// amount describes the work that the command is about, and the requests that it cancels.
func (c workReleaseCmd) amount(of assign.Released, cancelled string) string {
	text := counted(of.Count, "item")
	if c.Task != nil {
		text += " of task " + *c.Task
	}
	if c.Of != nil {
		text += ", held by " + *c.Of
	}
	if of.Requests > 0 {
		text += "; " + cancelled + ": " + counted(of.Requests, "waiting request")
	}
	return plain(text)
}

func (c workReleaseCmd) call(what assign.Release) Call {
	body := map[string]any{}
	for name, value := range map[string]string{"user": what.User, "task": what.Task, "token": what.Token, "code": what.Code} {
		if value != "" {
			body[name] = value
		}
	}
	if what.DryRun {
		body["dry_run"] = true
	}
	return Call{Method: "POST", Path: "/work/release", Body: body, query: !what.DryRun}
}

// filled returns a usage error for a filter that is given but empty, as by a script whose variable is empty: it would
// match everything.
func filled(filters map[string]*string) error {
	for _, flag := range slices.Sorted(maps.Keys(filters)) {
		if v := filters[flag]; v != nil && *v == "" {
			return command.Usage("%s is empty; give it a value, or leave it out", flag)
		}
	}
	return nil
}
