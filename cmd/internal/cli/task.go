package cli

import (
	"context"
	"fmt"
	"strconv"

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
		rows[i] = []string{t.Name, state, strconv.FormatInt(t.Waiting, 10), strconv.FormatInt(t.Held, 10),
			strconv.FormatInt(t.Shelf, 10), strconv.Itoa(t.Version), t.Title}
	}
	return Table(s.Out, []string{"NAME", "STATE", "WAITING", "HELD", "SHELF", "VERSION", "TITLE"}, rows)
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
	return t.print(s.Document())
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
	if wanted.Name == nil || !wanted.Query.named {
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
	if given == (TaskFields{}) {
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
	done, err := r.change(ctx, name, TaskFields{Paused: &paused})
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
