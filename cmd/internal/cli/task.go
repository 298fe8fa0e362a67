package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"

	"getwork/assign"
	"getwork/cmd/internal/command"
	"getwork/web"
)

// TaskCmd has the commands with which managers change tasks.
type TaskCmd struct {
	List     taskListCmd     `cmd:"" help:"List the tasks, with the number of waiting requests and held items."`
	Show     taskShowCmd     `cmd:"" help:"Print a task as a file that apply reads."`
	Create   taskCreateCmd   `cmd:"" help:"Create a task, from a file or from flags."`
	Apply    taskApplyCmd    `cmd:"" help:"Create the tasks in a file, or update them to match it."`
	Update   taskUpdateCmd   `cmd:"" help:"Change the given settings of a task, and no others."`
	Delete   taskDeleteCmd   `cmd:"" help:"Delete a task that nobody holds work of. Its history stays."`
	Compare  taskCompareCmd  `cmd:"" help:"Compare another query with a task's own: what comes in, falls out and moves. Nothing is changed."`
	Preview  taskPreviewCmd  `cmd:"" help:"Try a query: its best items, its time and cost. Nothing is handed out."`
	Versions taskVersionsCmd `cmd:"" help:"List the versions of a task, and who made them."`
	Log      taskLogCmd      `cmd:"" help:"List when a task was changed, paused and resumed, and by whom."`
	Restore  taskRestoreCmd  `cmd:"" help:"Restore an earlier version of a task."`
	Runs     taskRunsCmd     `cmd:"" help:"List the runs of a task's query, newest first."`
	Pause    taskPauseCmd    `cmd:"" help:"Stop handing out work of a task."`
	Resume   taskResumeCmd   `cmd:"" help:"Hand out work of a paused task again."`
}

// reader returns the role in which tasks are read: worker for users who name their groups, and so see the tasks that
// are open to them; otherwise one that sees all.
func (r Remote) reader() web.Role {
	if len(r.MemberOf) > 0 {
		return web.Worker
	}
	return web.Observer
}

type taskListCmd struct {
	Remote `embed:""`
}

// Help returns the text that --help adds.
func (taskListCmd) Help() string {
	return "Lists all tasks; with --member-of or --role worker it lists those that are open to you."
}

// Run prints all tasks.
func (c taskListCmd) Run(ctx context.Context, s *command.Streams) error {
	client, err := c.Connect(c.reader())
	if err != nil {
		return err
	}
	var list struct {
		Tasks []assign.Task `json:"tasks"`
	}
	got, err := client.Do(ctx, Call{Method: "GET", Path: "/tasks"}, &list)
	switch {
	case err != nil:
		return err
	case c.JSON:
		return printJSON(s.Out, got.body)
	case len(list.Tasks) == 0:
		_, err = fmt.Fprintln(s.Errs, "There are no tasks yet. `getwork task create --help` says how to create one.")
		return err
	}
	rows := make([][]string, len(list.Tasks))
	for i, t := range list.Tasks {
		state := "active"
		if t.Paused {
			state = "paused"
		}
		late := ""
		if t.Late > 0 {
			late = strconv.FormatInt(t.Late, 10)
		}
		rows[i] = []string{t.Name, state, strconv.FormatInt(t.Waiting, 10), strconv.FormatInt(t.Held, 10),
			strconv.FormatInt(t.Shelf, 10), backlog(t.Backlog), late, t.Title}
	}
	return Table(s.Out, lean([]string{"NAME", "STATE", "WAITING", "HELD", "SHELF", "BACKLOG", "LATE", "TITLE"}, &rows, 5), rows)
}

// backlog returns how much was free when the last run looked, or nothing if none has.
func backlog(b *assign.Backlog) string {
	if b == nil {
		return ""
	}
	return strconv.FormatInt(b.Free, 10)
}

type taskShowCmd struct {
	Name   string `arg:"" help:"The task."`
	Remote `embed:""`
}

// Run prints one task.
func (c taskShowCmd) Run(ctx context.Context, s *command.Streams) error {
	client, err := c.Connect(c.reader())
	if err != nil {
		return err
	}
	t, err := client.Task(ctx, c.Name)
	switch {
	case err != nil:
		return err
	case c.JSON:
		return printJSON(s.Out, t.raw)
	}
	return t.print(s.Out)
}

type taskCreateCmd struct {
	File string `short:"f" help:"Read the task from this YAML file; - is standard input. Flags override it." placeholder:"task.yaml" complete:"file"`
	taskFlags
	Remote `embed:""`
}

// Help returns the text that --help adds.
func (taskCreateCmd) Help() string {
	return `Examples:

  getwork task create -f task.yaml
  getwork task create --name review-photos --query-file photos.sql --max-request 3
  getwork task create --name resize-photos --inbox --lease 2m --max-attempts 5

` + fileHelp
}

// Run creates one task.
func (c taskCreateCmd) Run(ctx context.Context, s *command.Streams) error {
	var wanted TaskFields
	if c.File != "" {
		files, err := readTasks(ctx, c.File)
		if err != nil {
			return err
		}
		if len(files) != 1 {
			return command.Usage("%s has %d tasks; create takes one, `getwork task apply` takes several", c.File, len(files))
		}
		wanted = files[0]
	}
	given, err := c.fields(ctx)
	if err != nil {
		return err
	}
	wanted = wanted.with(given)
	if !wanted.named["name"] || !wanted.named["query"] {
		return command.Usage("a task needs a name and a query: give -f FILE, or --name with --query, --query-file or, for a task whose items are pushed to it, --inbox")
	}
	client, err := c.Connect(web.Manager)
	if err != nil {
		return err
	}
	t, err := client.Create(ctx, wanted)
	if err != nil {
		return err
	}
	return change{t, "created", nil}.print(s, c.JSON)
}

type taskUpdateCmd struct {
	Task string `arg:"" name:"task" help:"The task to change."`
	taskFlags
	Remote `embed:""`
}

// Help returns the text that --help adds.
func (taskUpdateCmd) Help() string {
	return `Examples:

  getwork task update review-photos --query-file photos.sql --query-timeout 90s
  getwork task update review-photos --lease none --groups editors,chiefs

--name renames the task. If the query, the recheck, slots or max_candidates change, a run
that is under way starts over.`
}

// Run changes one task.
func (c taskUpdateCmd) Run(ctx context.Context, s *command.Streams) error {
	given, err := c.fields(ctx)
	if err != nil {
		return err
	}
	if len(given.named) == 0 {
		return command.Usage("say what to change, such as --title or --query-file; `getwork task update --help` lists all")
	}
	done, err := c.change(ctx, c.Task, given)
	if err != nil {
		return err
	}
	return done.print(s, c.JSON)
}

type taskPauseCmd struct {
	Task   string `arg:"" name:"task" help:"The task."`
	Remote `embed:""`
}

// Help returns the text that --help adds.
func (taskPauseCmd) Help() string {
	return "Waiting requests go on waiting; new ones are told that the task is paused. Held work stays with its holders. It makes no version; `getwork task log` lists it."
}

// Run pauses a task.
func (c taskPauseCmd) Run(ctx context.Context, s *command.Streams) error {
	return c.pause(ctx, s, c.Task, true)
}

type taskResumeCmd struct {
	Task   string `arg:"" name:"task" help:"The task."`
	Remote `embed:""`
}

// Run resumes a task.
func (c taskResumeCmd) Run(ctx context.Context, s *command.Streams) error {
	return c.pause(ctx, s, c.Task, false)
}

// pause pauses or resumes a task.
func (r Remote) pause(ctx context.Context, s *command.Streams, name string, paused bool) error {
	done, err := r.change(ctx, name, Fields(assign.Settings{Paused: paused}, "paused"))
	if err != nil {
		return err
	}
	if r.JSON {
		return done.print(s, true)
	}
	state := "active"
	if paused {
		state = "paused"
	}
	if done.what == "unchanged" {
		_, err = fmt.Fprintf(s.Out, "task %s was %s already\n", done.task.Name, state)
	} else {
		_, err = fmt.Fprintf(s.Out, "task %s is %s now\n", done.task.Name, state)
	}
	return err
}

// change sets the named settings of a task.
func (r Remote) change(ctx context.Context, name string, wanted TaskFields) (change, error) {
	client, err := r.Connect(web.Manager)
	if err != nil {
		return change{}, err
	}
	return client.Update(ctx, name, wanted)
}

type taskDeleteCmd struct {
	Task   string `arg:"" name:"task" help:"The task to delete."`
	Yes    bool   `help:"Delete it even if items of it are ready; they are deleted, too."`
	Remote `embed:""`
}

// Help returns the text that --help adds.
func (taskDeleteCmd) Help() string {
	return "The command is refused while somebody holds work of the task or waits for it. If items of an inbox are ready, it needs --yes: they are gone with the task, and so are those that are put off. The name can be used again; the history of the work stays."
}

// Run deletes a task.
func (c taskDeleteCmd) Run(ctx context.Context, s *command.Streams) error {
	client, err := c.Connect(web.Manager)
	if err != nil {
		return err
	}
	path, err := taskPath(c.Task)
	if err != nil {
		return err
	}
	var task assign.Task
	if _, err := client.Do(ctx, Call{Method: "GET", Path: path}, &task); err != nil {
		return err
	}
	if task.Inbox() && task.Shelf > 0 && !c.Yes {
		return command.Usage("task %s has %s to hand out, and they would be gone with it: --yes deletes it all the same", plain(c.Task), counted(int(task.Shelf), "item"))
	}
	if _, err := client.Do(ctx, Call{Method: "DELETE", Path: path}, nil); err != nil || c.JSON {
		return err
	}
	_, err = fmt.Fprintf(s.Out, "task %s deleted\n", plain(c.Task))
	return err
}

// remoteTask is a task as the server has it.
type remoteTask struct {
	assign.Task
	tag string // its ETag
	raw json.RawMessage
}

func taskPath(name string) (string, error) {
	if name == "" {
		return "", command.Usage("name a task; `getwork task list` lists them")
	}
	return "/tasks/" + url.PathEscape(name), nil
}

// Task reads a task as the server sends it.
func (c *Client) Task(ctx context.Context, name string) (remoteTask, error) {
	path, err := taskPath(name)
	if err != nil {
		return remoteTask{}, err
	}
	return c.doTask(ctx, Call{Method: "GET", Path: path})
}

// Create creates a task and returns it as the server sends it.
func (c *Client) Create(ctx context.Context, wanted TaskFields) (remoteTask, error) {
	return c.doTask(ctx, Call{Method: "POST", Path: "/tasks", Body: wanted})
}

func (c *Client) doTask(ctx context.Context, what Call) (remoteTask, error) {
	var t remoteTask
	got, err := c.Do(ctx, what, &t.Task)
	t.tag, t.raw = got.Tag(), got.body
	return t, err
}

// Update changes the settings that differ from the wanted ones, if any do. If another client changes the task between
// the read and the write, Update repeats both once.
func (c *Client) Update(ctx context.Context, name string, wanted TaskFields) (change, error) {
	done, err := c.updateOnce(ctx, name, wanted)
	if IsRefused(err, http.StatusPreconditionFailed) {
		done, err = c.updateOnce(ctx, name, wanted)
	}
	return done, err
}

func (c *Client) updateOnce(ctx context.Context, name string, wanted TaskFields) (change, error) {
	t, err := c.Task(ctx, name)
	if err != nil {
		return change{}, err
	}
	values, err := wanted.values()
	if err != nil {
		return change{}, err
	}
	var current map[string]any
	if err := json.Unmarshal(t.raw, &current); err != nil {
		return change{}, fmt.Errorf("read task %s: %w", name, err)
	}
	maps.DeleteFunc(values, func(field string, value any) bool {
		return reflect.DeepEqual(asSet(field, value), asSet(field, current[field]))
	})
	if len(values) == 0 {
		return change{t, "unchanged", nil}, nil
	}
	path, err := taskPath(name)
	if err != nil {
		return change{}, err
	}
	header := map[string]string{"If-Match": t.tag}
	if _, paused := values["paused"]; paused && len(values) == 1 {
		header = nil // whoever else changes the task at the same time is no reason not to pause it
	}
	t, err = c.doTask(ctx, Call{Method: "PATCH", Path: path, Body: values, header: header})
	return change{t, "updated", slices.Sorted(maps.Keys(values))}, err
}

// asSet returns the names of a field in which neither order nor repetition matters in one order, and other values as they are. The
// server sends such names sorted, so that a file with another order would make a new version each time.
func asSet(field string, value any) any {
	names, isList := value.([]any)
	if !isList || field != "groups" && field != "conflicts_with" {
		return value
	}
	sorted := make([]string, 0, len(names))
	for _, name := range names {
		sorted = append(sorted, fmt.Sprint(name))
	}
	slices.Sort(sorted)
	return slices.Compact(sorted)
}

// print writes the task as a file that apply reads, under comments that show its state.
func (t remoteTask) print(w io.Writer) error {
	fields, err := fieldsOf(t.raw)
	if err != nil {
		return fmt.Errorf("read task %s: %w", t.Name, err)
	}
	durations := yaml.CustomMarshaler(func(d assign.Duration) ([]byte, error) { return []byte(d.String()), nil })
	b, err := yaml.MarshalWithOptions(fields.list(), durations, yaml.UseLiteralStyleIfMultiline(true))
	if err != nil {
		return fmt.Errorf("write task %s: %w", t.Name, err)
	}
	// go-yaml can't write every text so that it reads back the same, such as lines that end with blanks; and it writes what a
	// terminal obeys as it is. JSON is YAML, too, can express everything, and has escapes.
	if again, err := readTask(string(b)); err != nil || !reflect.DeepEqual(again, fields) || command.Obeyed(b) {
		var quoted bytes.Buffer
		e := json.NewEncoder(&quoted)
		e.SetEscapeHTML(false)
		e.SetIndent("", "  ")
		if err := e.Encode(fields); err != nil {
			return fmt.Errorf("write task %s: %w", t.Name, err)
		}
		b = quoted.Bytes()
	}
	_, err = fmt.Fprintf(w, "# version %d; %d waiting, %d held, %d on the shelf\n%s%s%s", t.Version, t.Waiting, t.Held, t.Shelf, found(t.Backlog), late(t.Task), b)
	return err
}

// late is the comment that says what is late, and when the next deadline is over.
func late(t assign.Task) string {
	switch {
	case t.NextDeadline != nil:
		return fmt.Sprintf("# %d late; the next deadline is %s\n", t.Late, moment(t.NextDeadline))
	case t.Late > 0:
		return fmt.Sprintf("# %d late\n", t.Late)
	}
	return ""
}

// found is the comment that says what the last run found; empty for an inbox.
func found(b *assign.Backlog) string {
	if b == nil || b.AsOf == nil {
		return ""
	}
	since := ""
	if b.Oldest != nil {
		since = ", the oldest since " + moment(b.Oldest)
	}
	return fmt.Sprintf("# at %s the query found %d, %d of them free%s\n", moment(b.AsOf), b.Found, b.Free, since)
}

// taskList has the flags of a command that lists something of a task.
type taskList struct {
	Name   string `arg:"" help:"The task."`
	paged  `embed:""`
	Remote `embed:""`
}

// list reads the list that has that name in the API.
func (c taskList) list(ctx context.Context, role web.Role, plural string) (list, error) {
	path, err := taskPath(c.Name)
	if err != nil {
		return list{}, err
	}
	client, err := c.Connect(role)
	if err != nil {
		return list{}, err
	}
	return c.paged.list(ctx, client, path+"/"+plural, nil, plural)
}

type taskRunsCmd struct {
	taskList `embed:""`
}

// Run lists the runs of a task's query.
func (c taskRunsCmd) Run(ctx context.Context, s *command.Streams) error {
	found, err := c.list(ctx, web.Observer, "runs")
	if err != nil {
		return err
	}
	return printList(s, found, c.JSON, fmt.Sprintf("No query of task %s has been run yet.", c.Name), func(runs []assign.Run) error {
		rows := make([][]string, len(runs))
		for i, r := range runs {
			took := ""
			if r.DurationMS != nil {
				took = milliseconds(*r.DurationMS)
			}
			rows[i] = []string{strconv.FormatInt(r.ID, 10), minute(&r.StartedAt), took, r.State, strconv.Itoa(r.Version), r.Node,
				number(r.Given), number(r.Blocked), number(r.PassedOver), number(r.Candidates), cut(textOf(r.Error))}
		}
		heads := []string{"RUN", "STARTED", "TOOK", "STATE", "VERSION", "NODE", "ROWS", "BLOCKED", "PASSED OVER", "CANDIDATES", "ERROR"}
		return Table(s.Out, lean(heads, &rows, 6), rows)
	})
}

func number[T int | int64](n *T) string {
	if n == nil {
		return ""
	}
	return strconv.FormatInt(int64(*n), 10)
}

type taskVersionsCmd struct {
	taskList `embed:""`
}

// Help returns the text that --help adds.
func (taskVersionsCmd) Help() string {
	return "Every change of a task makes a version, except pausing and resuming it, which `getwork task log` lists; --json prints versions in full. `getwork task restore` goes back to one. For managers."
}

// Run lists the versions of a task.
func (c taskVersionsCmd) Run(ctx context.Context, s *command.Streams) error {
	found, err := c.list(ctx, web.Manager, "versions")
	if err != nil {
		return err
	}
	return printList(s, found, c.JSON, "", func(versions []assign.Version) error {
		rows := make([][]string, len(versions))
		for i, v := range versions {
			changed := "created"
			if v.Version > 1 {
				changed = "" // the version before is on the next page
			}
			if i+1 < len(versions) {
				fields, err := changedFields(found.rows[i+1], found.rows[i])
				if err != nil {
					return err
				}
				changed = strings.Join(fields, ", ")
			}
			rows[i] = []string{strconv.Itoa(v.Version), minute(&v.CreatedAt), v.CreatedBy, changed}
		}
		return Table(s.Out, []string{"VERSION", "SINCE", "BY", "CHANGED"}, rows)
	})
}

type taskLogCmd struct {
	taskList `embed:""`
}

// Help returns the text that --help adds.
func (taskLogCmd) Help() string {
	return "`getwork task versions` says what each change was. For observers and managers."
}

// Run lists when a task was changed, paused and resumed.
func (c taskLogCmd) Run(ctx context.Context, s *command.Streams) error {
	found, err := c.list(ctx, web.Observer, "log")
	if err != nil {
		return err
	}
	return printList(s, found, c.JSON, "", func(changes []assign.TaskChange) error {
		rows := make([][]string, len(changes))
		for i, change := range changes {
			rows[i] = []string{minute(&change.At), change.Act, strconv.Itoa(change.Version), change.By}
		}
		return Table(s.Out, []string{"AT", "WAS", "VERSION", "BY"}, rows)
	})
}

// changedFields returns the names of the settings in which two versions differ.
func changedFields(before, after json.RawMessage) ([]string, error) {
	var a, b map[string]json.RawMessage
	if err := json.Unmarshal(before, &a); err != nil {
		return nil, fmt.Errorf("read versions: %w", err)
	}
	if err := json.Unmarshal(after, &b); err != nil {
		return nil, fmt.Errorf("read versions: %w", err)
	}
	var fields []string
	for field, value := range b {
		if !slices.Contains([]string{"version", "created_at", "created_by"}, field) && string(value) != string(a[field]) {
			fields = append(fields, field)
		}
	}
	slices.Sort(fields)
	return fields, nil
}

type taskRestoreCmd struct {
	Name    string `arg:"" help:"The task."`
	Version int    `arg:"" help:"The version to go back to, as getwork task versions lists them."`
	Remote  `embed:""`
}

// Help returns the text that --help adds.
func (taskRestoreCmd) Help() string {
	return "The settings of that version become a new version. The task's name stays as it is, and a paused task stays paused. For managers."
}

// Run restores an earlier version.
func (c taskRestoreCmd) Run(ctx context.Context, s *command.Streams) error {
	path, err := taskPath(c.Name)
	if err != nil {
		return err
	}
	if c.Version < 1 {
		return command.Usage("a version must be 1 or more, not %d; `getwork task versions %s` lists them", c.Version, c.Name)
	}
	client, err := c.Connect(web.Manager)
	if err != nil {
		return err
	}
	t, err := client.doTask(ctx, Call{Method: "POST", Path: path + "/versions/" + strconv.Itoa(c.Version) + "/restore"})
	switch {
	case err != nil:
		return err
	case c.JSON:
		return printJSON(s.Out, t.raw)
	}
	_, err = fmt.Fprintf(s.Out, "task %s is as it was in version %d (version %d now)\n", t.Name, c.Version, t.Version)
	return err
}

type taskPreviewCmd struct {
	Name      string  `arg:"" optional:"" help:"The task to preview, with its own query or another."`
	File      string  `short:"f" help:"Try the query of the task in this YAML file, whether or not that task exists; - is standard input." placeholder:"task.yaml" complete:"file"`
	Query     *string `help:"Try this SELECT instead." xor:"query" placeholder:"SQL"`
	QueryFile string  `help:"Try the query in this file; - is standard input." xor:"query" placeholder:"FILE" complete:"file"`
	Limit     int     `help:"How many rows to show, at most 100." default:"10" placeholder:"N"`
	Remote    `embed:""`
}

// Help returns the text that --help adds.
func (taskPreviewCmd) Help() string {
	return `Examples:

  getwork task preview review-photos
  getwork task preview review-photos --query-file photos.sql
  getwork task preview -f task.yaml
  getwork task preview --query "select id as item from photo order by uploaded_at"

Runs the query as a run of the task would, for no longer than its query_timeout, and shows the best items that could be handed out. Nothing is written, and no work is handed out. --json has PostgreSQL's plan, too. For managers.

A file may describe a task that does not exist yet: its query is tried with the query_timeout and slots of the file, and nothing counts as held or put off. If the task exists, the file's query is tried in place of its own, with the task's other settings. Without a file and a task's name the query is tried for no task.`
}

// Run previews.
func (c taskPreviewCmd) Run(ctx context.Context, s *command.Streams) error {
	if c.Limit < 1 || c.Limit > 100 {
		return command.Usage("--limit must be from 1 to 100, not %d", c.Limit)
	}
	tried, err := c.tried(ctx)
	if err != nil {
		return err
	}
	client, err := c.Connect(web.Manager)
	if err != nil {
		return err
	}
	var p assign.Preview
	got, err := c.ask(ctx, client, tried, &p)
	switch {
	case err != nil:
		return err
	case c.JSON:
		return printJSON(s.Out, got.body)
	}
	return c.print(s, p)
}

// tried returns what the file and the flags say of the task. Its errors are wrong uses of the command line.
func (c taskPreviewCmd) tried(ctx context.Context) (TaskFields, error) {
	var t TaskFields
	if c.File != "" {
		tasks, err := readTasks(ctx, c.File)
		if err != nil {
			return t, err
		}
		if len(tasks) > 1 {
			tasks = slices.DeleteFunc(tasks, func(t TaskFields) bool { return t.Name != c.Name })
		}
		if len(tasks) != 1 {
			return t, command.Usage("%s has several tasks; name the one whose query to try: getwork task preview NAME -f %[1]s", c.File)
		}
		t = tasks[0]
	}
	if c.Name != "" {
		t.Name = c.Name
		t.name("name")
	}
	if c.Query != nil {
		t.setQuery(*c.Query)
	}
	if c.QueryFile != "" {
		b, err := readFile(ctx, c.QueryFile)
		if err != nil {
			return t, err
		}
		t.setQuery(string(b))
	}
	switch {
	case t.named["query"] && t.Query == "":
		return t, command.Usage("the task in %s is an inbox, which has no query to try", c.File)
	case !t.named["name"] && !t.named["query"]:
		return t, command.Usage("name a task, or the query to try: -f FILE, --query or --query-file")
	}
	return t, nil
}

// ask has a node try the query: for the task if it exists, and otherwise for no task if a file describes it.
func (c taskPreviewCmd) ask(ctx context.Context, client *Client, t TaskFields, p *assign.Preview) (reply, error) {
	tried := TaskFields{Settings: t.Settings, named: map[string]bool{"query": t.named["query"]}}
	ask := func(path string) (reply, error) {
		body, err := tried.values()
		if err != nil {
			return reply{}, err
		}
		body["limit"] = c.Limit
		return client.Do(ctx, Call{Method: "POST", Path: path + "/preview", Body: body, query: true}, p)
	}
	if t.named["name"] {
		path, err := taskPath(t.Name)
		if err != nil {
			return reply{}, err
		}
		got, err := ask(path)
		if c.File == "" || !t.named["query"] || !IsRefused(err, http.StatusNotFound) {
			return got, err
		}
	}
	for _, also := range []string{"query_timeout", "slots"} {
		tried.named[also] = t.named[also]
	}
	return ask("")
}

func (c taskPreviewCmd) print(s *command.Streams, p assign.Preview) error {
	rows := make([][]string, len(p.Rows))
	for i, r := range p.Rows {
		slots := ""
		if r.Slots > 1 {
			slots = strconv.Itoa(r.Slots)
		}
		rows[i] = []string{strconv.FormatInt(r.Rank, 10), r.Item, slots, textOf(r.Exclusive), details(r.Details)}
	}
	if len(rows) > 0 {
		if err := Table(s.Out, lean([]string{"RANK", "ITEM", "PLACES", "GROUP", "DETAILS"}, &rows, 2), rows); err != nil {
			return err
		}
		_, _ = fmt.Fprintln(s.Out)
	}
	_, err := fmt.Fprintf(s.Out, "The query gave %s in %s: %d held or put off, %d skipped for want of a usable item. Planned cost: %.0f.\n",
		counted(int(p.Given), "row"), milliseconds(p.DurationMS), p.Blocked, p.PassedOver, p.Cost)
	return err
}

type taskCompareCmd struct {
	Name      string   `arg:"" help:"The task whose query is the old one." complete:"task"`
	File      string   `short:"f" help:"Compare with the query of the task in this YAML file; - is standard input." xor:"query" placeholder:"task.yaml" complete:"file"`
	Query     *string  `help:"Compare with this SELECT." xor:"query" placeholder:"SQL"`
	QueryFile string   `help:"Compare with the query in this file; - is standard input." xor:"query" placeholder:"FILE" complete:"file"`
	To        *int     `help:"Compare with the query of this version of the task; see getwork task versions." xor:"query" placeholder:"VERSION"`
	Limit     int      `help:"Compare the best N one by one, at most 1000." default:"100" placeholder:"N"`
	Seed      *float64 `help:"Make both queries draw the same random numbers: from -1 to 1." placeholder:"X"`
	Remote    `embed:""`
}

// Help returns the text that --help adds.
func (taskCompareCmd) Help() string {
	return `Examples:

  getwork task compare review-photos --query-file photos.sql
  getwork task compare review-photos --to 3 --limit 20

Executes both queries on one snapshot, each for no longer than the task's query_timeout, and shows what the other one brings in among the best, leaves out, and moves. Nothing is written, and no work is handed out. --json has both plans, too. For managers.`
}

// Run compares.
func (c taskCompareCmd) Run(ctx context.Context, s *command.Streams) error {
	if c.Limit < 1 || c.Limit > 1000 {
		return command.Usage("--limit must be from 1 to 1000, not %d", c.Limit)
	}
	body := map[string]any{"limit": c.Limit, "version": c.To, "seed": c.Seed}
	if c.To == nil {
		tried, err := taskPreviewCmd{Name: c.Name, File: c.File, Query: c.Query, QueryFile: c.QueryFile}.tried(ctx)
		if err != nil {
			return err
		}
		if !tried.named["query"] {
			return command.Usage("name the query to compare with: -f FILE, --query, --query-file or --to VERSION")
		}
		body["query"] = tried.Query
	}
	client, err := c.Connect(web.Manager)
	if err != nil {
		return err
	}
	path, err := taskPath(c.Name)
	if err != nil {
		return err
	}
	var found assign.Comparison
	got, err := client.Do(ctx, Call{Method: "POST", Path: path + "/compare", Body: body, query: true}, &found)
	switch {
	case err != nil:
		return err
	case c.JSON:
		return printJSON(s.Out, got.body)
	}
	return c.print(s, found)
}

func (c taskCompareCmd) print(s *command.Streams, found assign.Comparison) error {
	if found.Old.Error != "" {
		_, err := fmt.Fprintf(s.Out, "The task's own query fails: %s\nThe other one gave %s in %s.\n", found.Old.Error, counted(int(found.New.Given), "row"), milliseconds(found.New.DurationMS))
		return err
	}
	var rows [][]string
	place := func(rank *int) string {
		if rank == nil {
			return ""
		}
		return strconv.Itoa(*rank)
	}
	row := func(change string, old, new *int, shift assign.Shift) {
		held := ""
		if shift.Held {
			held = "held"
		}
		rows = append(rows, []string{change, place(old), place(new), shift.Item, held})
	}
	for _, shift := range found.In {
		row("in", shift.From, shift.Rank, shift)
	}
	for _, shift := range found.Out {
		row("out", shift.Rank, shift.To, shift)
	}
	for _, shift := range found.Moved {
		row("moved", shift.From, shift.To, shift)
	}
	if len(rows) > 0 {
		if err := Table(s.Out, lean([]string{"CHANGE", "OLD", "NEW", "ITEM", "HELD"}, &rows, 4), rows); err != nil {
			return err
		}
		_, _ = fmt.Fprintln(s.Out)
	}
	for _, o := range found.Overlap {
		if o.Of > 0 && (o.Best == 10 || o.Of > o.Best/10) {
			_, _ = fmt.Fprintf(s.Out, "Of the best %d, %d are the same.\n", o.Of, o.Common)
		}
	}
	_, err := fmt.Fprintf(s.Out, "Old (version %d): %s in %s, cost %.0f. New: %s in %s, cost %.0f. Both return %s.\n", found.Version,
		counted(int(found.Old.Given), "row"), milliseconds(found.Old.DurationMS), found.Old.Cost,
		counted(int(found.New.Given), "row"), milliseconds(found.New.DurationMS), found.New.Cost, counted(found.Both, "item"))
	return err
}

// milliseconds formats a duration.
func milliseconds(ms float64) string {
	if ms < 1000 {
		return fmt.Sprintf("%.0f ms", ms)
	}
	return fmt.Sprintf("%.1f s", ms/1000)
}
