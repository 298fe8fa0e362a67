package cli

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"getwork/assign"
	"getwork/cmd/internal/command"
	"getwork/web"
	"getwork/ws/agent"
	api "getwork/ws/client"
)

// AgentCmd takes work and runs a program for each item.
type AgentCmd struct {
	Task         string         `arg:"" optional:"" help:"The task to take work from; getwork task list lists the tasks."`
	Program      []string       `arg:"" optional:"" help:"The program to run for each item, and its arguments, after --."`
	Any          []string       `help:"Take work of any of these tasks, separated by commas, instead of one: by their priority, and in turns." placeholder:"TASK"`
	Codes        map[int]string `mapsep:"," help:"What exit statuses mean in a task with outcomes, separated by commas: 0=sent,3=no-answer. That of 75 is also the code of what the agent gives back by itself." placeholder:"STATUS=CODE"`
	Answer       bool           `help:"The last line of PROGRAM's standard output says what becomes of the item, as JSON, if it exits with 0 or a status of --codes."`
	Lines        bool           `help:"PROGRAM stays: it reads a line of JSON for each item, and writes one for each result."`
	Concurrency  int            `help:"How many items to work on at the same time." default:"2" placeholder:"N"`
	Lease        time.Duration  `help:"How long an item is held before it goes back, if the task sets no lease; it is extended while PROGRAM runs." default:"30s"`
	Timeout      time.Duration  `help:"Stop PROGRAM after this long and count the attempt as failed; 0s means never." default:"0s"`
	KillAfter    time.Duration  `help:"How long PROGRAM has to end after SIGTERM, before SIGKILL." default:"10s"`
	DrainTimeout time.Duration  `help:"How long running programs may go on after SIGTERM or Ctrl-C, before they are stopped and their work goes back." default:"30s"`
	Pass         []string       `help:"Leave this variable in PROGRAM's environment although getwork reads it or it looks like a secret; may be repeated." placeholder:"NAME"`
	Once         bool           `help:"Exit when nothing is left to take, instead of waiting for more."`

	URL       string             `group:"Which node, and who asks:" help:"The node to ask; any node will do." default:"http://127.0.0.1:8080" placeholder:"URL"`
	Token     string             `group:"Which node, and who asks:" help:"API token, which identifies the user. Every user of this machine can read it in the list of processes; --token-file and GETWORK_TOKEN show it to nobody." placeholder:"TOKEN"`
	TokenFile command.SecretFile `group:"Which node, and who asks:" help:"Read the API token from this file; it overrides --token, unless only that is given as a flag." placeholder:"FILE" complete:"file"`
	User      string             `group:"Which node, and who asks:" help:"The user's name, under --auth dev. The default is the name that you are logged in with on this machine." placeholder:"NAME"`
	Role      string             `group:"Which node, and who asks:" help:"The user's role, under --auth dev: worker, agent, observer or manager. The default is agent." placeholder:"ROLE"`
	MemberOf  []string           `group:"Which node, and who asks:" help:"The user's groups, under --auth dev, separated by commas." placeholder:"GROUP"`
	Instance  string             `group:"Which node, and who asks:" help:"Tells agents of one user apart. By default each process has its own. If you set it, an agent that is started again continues with the work that it held." placeholder:"NAME"`
}

// Help returns the text that --help adds.
func (AgentCmd) Help() string {
	return `PROGRAM gets the work as JSON on standard input, and GETWORK_ITEM, GETWORK_TASK, GETWORK_WORK_ID and GETWORK_ATTEMPT in its environment. Where somebody had the item before, "earlier" says how they let go of it, unless the task keeps that for managers. Its output goes where the agent's own output goes.

Its exit status decides what happens to the item:

  0      complete
  75     returned after the task's backoff; the attempt does not count
  other  failed, with the end of its standard error

An item can come twice if an agent dies or loses its lease, so PROGRAM must make sure that its effects happen once.

The exit counts at once, even if processes that PROGRAM started still run or keep its output open. Those in its process group are killed. Those that left it, as by setsid, run on: nothing stops them, nobody waits for them, and half a second after the exit nobody reads what they write.

A task's outcomes have codes, which say what is done. --codes has the codes of exit statuses, and --answer reads the last line of standard output, whose fields are those of --lines without the id; the exit status fills in what it leaves out:

  {"code":"sent","result":{"receipt":"A-17"},"note":"by e-mail"}

If the task refuses a code or a result, the item has failed, with the reason.

With --lines PROGRAM is started once. It reads each item as a line of JSON on standard input, up to --concurrency of them before it answers, and writes a line for each result, in any order, with the item's id and what getwork done takes:

  {"id":"17","outcome":"complete"}
  {"id":"18","outcome":"return","after":"5m","note":"the site is down"}
  {"id":"19","outcome":"fail","error":"no such page"}
  {"id":"20","code":"sent","result":{"receipt":"A-17"}}

It must write each line out at once. If it ends, items that it was given and did not answer have failed, and it starts again after 1s, later up to 60s. It is stopped if it writes anything else, if an item takes longer than --timeout, and if the lease of one is lost.

PROGRAM does not get the variables that getwork itself reads (GETWORK_…, DATABASE_URL, PG…, OTEL_…), nor any that looks like a secret by its name (SECRET_KEY, GITHUB_TOKEN, ADMIN_PASSWORD, …) or by its value (a URL with a password), unless --pass names it. The log says which were withheld.

Example:

  getwork agent resize-photos --concurrency 4 -- sh -c 'convert "$GETWORK_ITEM" -resize 800x "small/$GETWORK_ITEM"'`
}

func (c *AgentCmd) check() error {
	if len(c.Any) > 0 { // then there is no task among the words
		if c.Task != "" {
			c.Program = append([]string{c.Task}, c.Program...)
		}
		c.Task = strings.Join(c.Any, ", ")
	}
	switch {
	case c.Task == "" || slices.Contains(c.Any, ""):
		return command.Usage("name the task to take work from; `getwork task list` lists the tasks")
	case c.Concurrency < 1 || c.Concurrency > 1000:
		return command.Usage("--concurrency must be from 1 to 1000, not %d", c.Concurrency)
	case c.Lease < time.Second || c.Lease > 24*time.Hour:
		return command.Usage("--lease must be from 1s to 24h, not %s", assign.Duration(c.Lease))
	case c.Timeout < 0:
		return command.Usage("--timeout must be 0s or more, not %s", assign.Duration(c.Timeout))
	case c.KillAfter < 0:
		return command.Usage("--kill-after must be 0s or more, not %s", assign.Duration(c.KillAfter))
	case c.DrainTimeout < 0:
		return command.Usage("--drain-timeout must be 0s or more, not %s", assign.Duration(c.DrainTimeout))
	case c.Lines && c.Answer:
		return command.Usage("--answer is for a program that ends; with --lines each line is an answer")
	case len(c.Program) == 0 || c.Program[0] == "":
		return command.Usage("name the program to run for each item, after --: getwork agent %s -- PROGRAM", c.Task)
	}
	for status, code := range c.Codes {
		switch {
		case status < 0 || status > 255:
			return command.Usage("--codes: an exit status is from 0 to 255, not %d", status)
		case !assign.IsTaskName(code):
			return command.Usage("--codes: %q is no code; `getwork task show` has the task's outcomes", code)
		case c.Lines && status != exitLater:
			return command.Usage("--codes: with --lines each line names its code; only %d has one here, that of what goes back", exitLater)
		}
	}
	return nil
}

// Run takes work until its context ends or, with --once, until nothing is left.
func (c AgentCmd) Run(ctx context.Context, s *command.Streams) error {
	if err := c.check(); err != nil {
		return err
	}
	path, err := exec.LookPath(c.Program[0])
	if err != nil {
		return command.Usage("can't run %q: %v", c.Program[0], errors.Unwrap(err))
	}
	// The client explains what is wrong with an address, a name or a token.
	client, err := holding{Remote: Remote{URL: c.URL, Token: c.Token, TokenFile: c.TokenFile, User: c.User, Role: c.Role, MemberOf: c.MemberOf}, Instance: c.Instance}.connect(web.Agent)
	if err != nil {
		return err
	}
	errs := &shared{w: s.RawErrs}
	log := slog.New(slog.NewTextHandler(errs, nil))
	environ, withheld := withoutSecrets(os.Environ(), c.Pass)
	if len(withheld) > 0 {
		log.Info("PROGRAM does not get variables that look like secrets; --pass NAME passes one on", "variables", withheld)
	}
	p := &program{path: path, args: c.Program, environ: environ, codes: c.Codes, answer: c.Answer, timeout: c.Timeout, killAfter: c.KillAfter, out: shareable(s.RawOut), errs: errs, log: log}
	if p.warden, err = newWarden(); err != nil {
		log.Warn("processes that PROGRAM starts may outlive an agent that is killed", "error", err)
	}
	defer p.warden.close()
	var handler agent.Handler = p
	if c.Lines {
		l := &lines{program: *p}
		defer l.close()
		handler = l
	}
	drain := c.DrainTimeout
	if drain == 0 {
		drain = -1
	}
	a := &agent.Agent{
		URL: client.URL, Token: client.Token, User: client.User, Role: client.Role,
		Groups: c.MemberOf, Instance: c.instance(), Task: c.task(), Any: c.Any, ReturnCode: c.Codes[exitLater], Handler: handler, Concurrency: c.Concurrency, Lease: c.Lease, Drain: drain, Once: c.Once, Log: log,
	}
	err = a.Run(ctx)
	var r *api.Problem
	if errors.As(err, &r) {
		return &refused{Problem: *r, url: client.URL, byToken: client.Token != ""}
	}
	return err
}

// task returns the one task to take work from, if there is one.
func (c *AgentCmd) task() string {
	if len(c.Any) > 0 {
		return ""
	}
	return c.Task
}

// instance returns the instance that was named, or else the machine's name and a random suffix, so that people see
// where work is.
func (c *AgentCmd) instance() string {
	if c.Instance != "" {
		return c.Instance
	}
	host, _ := os.Hostname()
	host = strings.Map(func(r rune) rune {
		if assign.CheckInstance(string(r)) != nil {
			return '-'
		}
		return r
	}, host)
	return host[:min(len(host), 40)] + "-" + strings.ToLower(rand.Text()[:10])
}

// shared is a stream to which several goroutines write.
type shared struct {
	mu sync.Mutex
	w  io.Writer
}

// Write writes p without mixing it with other writes.
func (s *shared) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.w.Write(p)
}

// shareable returns w itself if programs can write to it directly, and otherwise a shared.
func shareable(w io.Writer) io.Writer {
	if f, ok := w.(*os.File); ok {
		return f
	}
	return &shared{w: w}
}

// program is the Handler that runs a program for each item.
type program struct {
	path      string
	environ   []string
	args      []string       // including its name
	codes     map[int]string // of exit statuses
	answer    bool           // the last line of its output is one
	timeout   time.Duration
	killAfter time.Duration
	out, errs io.Writer
	warden    *warden
	log       *slog.Logger
}

// exitLater is the exit status of a program that can't work on the item now: EX_TEMPFAIL of sysexits.h.
const exitLater = 75

// Work runs the program. Its error is the outcome that the program's exit status stands for.
func (p *program) Work(ctx context.Context, w assign.Work) error {
	input, err := json.Marshal(w)
	if err != nil {
		return fmt.Errorf("encode the work as JSON: %w", err)
	}
	var end complaint
	var last lastLine
	out := p.out
	if p.answer {
		out = io.MultiWriter(&last, lenient{p.out})
	}
	cmd := &exec.Cmd{Path: p.path, Args: p.args, Stdin: bytes.NewReader(input), Stdout: out, Stderr: io.MultiWriter(&end, lenient{p.errs})}
	cmd.Env = append(slices.Clip(p.environ), "GETWORK_ITEM="+w.Item, "GETWORK_TASK="+w.Task,
		"GETWORK_WORK_ID="+strconv.FormatInt(w.ID, 10), "GETWORK_ATTEMPT="+strconv.Itoa(w.Attempt))
	g := &group{cmd: cmd, warden: p.warden, exited: make(chan struct{}), done: make(chan struct{})}
	if err := g.start(); err != nil { // not the item's fault
		p.log.Error("can't start the program; its work goes back until that succeeds", "program", p.path, "error", err)
		return agent.ErrLater
	}
	stopped := p.await(ctx, g)
	<-g.done // its output, too
	switch {
	case errors.Is(stopped, errLate):
		return end.after(fmt.Sprintf("timed out after %s", assign.Duration(p.timeout)))
	case g.state.ExitCode() == exitLater:
		return agent.ErrLater
	}
	code, coded := p.codes[g.state.ExitCode()]
	switch {
	case coded || g.state.Success():
		return p.result(&last, code)
	case stopped != nil:
		return stopped
	}
	return end.after(g.state.String())
}

// result returns the outcome of a program whose exit status has this code, or is 0.
func (p *program) result(last *lastLine, code string) error {
	var d assign.Disposition
	line := last.trimmed()
	if len(line) == 0 && code == "" {
		return nil
	}
	if len(line) > 0 {
		if err := json.Unmarshal(line, &d); err != nil || last.cut {
			return fmt.Errorf("the last line that the program wrote is no answer: %.100q", line)
		}
	}
	if d.Code == nil && d.Outcome == "" {
		if code != "" {
			d.Code = &code
		} else {
			d.Outcome = "complete"
		}
	}
	return agent.As(d)
}

// The variables that getwork itself reads, and those whose name or value looks like a secret: a URL or another address with a password.
var (
	oursByName    = regexp.MustCompile(`^(GETWORK_|PG|OTEL_|DATABASE_URL$)`)
	secretByName  = regexp.MustCompile(`(?i)SECRET|PASSW(OR)?D|PASSPHRASE|CREDENTIAL|API_?KEY|TOKENS?(_|$)|_(PASS|PWD|KEYS?)(_|$)|_AUTH$`)
	secretByValue = regexp.MustCompile(`(?i)://[^/?#@\s]*:[^@\s]+@|\bpassword=`)
)

// withoutSecrets returns the environment without the variables that getwork itself reads, which give access to the agent's account or
// to the database, and without those that look like secrets: a program that works on an item that a stranger has pushed should have
// none but those that it needs. Those that are named in pass stay. withheld has the names of those that look like secrets.
func withoutSecrets(environ, pass []string) (kept, withheld []string) {
	for _, variable := range environ {
		name, value, _ := strings.Cut(variable, "=")
		switch {
		case slices.Contains(pass, name):
			kept = append(kept, variable)
		case oursByName.MatchString(strings.ToUpper(name)):
		case secretByName.MatchString(name) || secretByValue.MatchString(value):
			withheld = append(withheld, name)
		default:
			kept = append(kept, variable)
		}
	}
	return kept, withheld
}

var errLate = errors.New("the program's time is over")

// await returns when the program has exited. It stops the program when ctx ends or its time-out expires, and returns why.
// A program that has exited by itself is never late, however long others keep its pipes open: it would be run again.
func (p *program) await(ctx context.Context, g *group) (stopped error) {
	var over <-chan time.Time
	if p.timeout > 0 {
		t := time.NewTimer(p.timeout)
		defer t.Stop()
		over = t.C
	}
	select {
	case <-g.exited:
		return nil
	case <-ctx.Done():
		stopped = context.Cause(ctx)
	case <-over:
		stopped = errLate
	}
	if !g.signal(stopGroup) {
		return nil
	}
	kill := time.AfterFunc(p.killAfter, func() { g.signal(killGroup) })
	defer kill.Stop()
	<-g.exited
	return stopped
}

// outputWithin is how long output is read on after the program has exited, if a process that left its group keeps the pipes open.
const outputWithin = 500 * time.Millisecond

// group is a running program and every process that it started.
type group struct {
	cmd    *exec.Cmd
	warden *warden
	exited chan struct{} // closed when the program has exited and its group is killed; then state is set
	done   chan struct{} // closed when its output is read, too
	state  *os.ProcessState

	mu     sync.Mutex
	reaped bool // the id may belong to another process by now
}

// start starts the program in a process group of its own.
func (g *group) start() error {
	g.cmd.SysProcAttr = groupAttributes()
	g.cmd.WaitDelay = outputWithin
	started := make(chan error)
	go func() {
		// The kernel kills the program when the thread that started it ends, so this thread must live as long as the
		// program.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := g.cmd.Start()
		if err == nil {
			g.warden.watch(g.cmd.Process.Pid)
		}
		started <- err
		if err != nil {
			return
		}
		ours := awaitEnd(g.cmd.Process.Pid)
		if !ours {
			g.state, _ = g.cmd.Process.Wait()
		}
		g.mu.Lock()
		killGroup(g.cmd.Process) // processes that it left behind
		g.reaped = true
		g.mu.Unlock()
		if ours {
			g.state, _ = g.cmd.Process.Wait()
		}
		g.warden.forget(g.cmd.Process.Pid)
		close(g.exited)
		_ = g.cmd.Wait() // for the output alone: the state is known
		close(g.done)
	}()
	return <-started
}

// signal sends a signal to the group, and reports whether the program was still running.
func (g *group) signal(send func(*os.Process)) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.reaped {
		send(g.cmd.Process)
	}
	return !g.reaped
}

// maxComplaint is how many bytes of a program's standard error are kept with a failed attempt.
const maxComplaint = 1 << 10

// lenient passes on what can be written, and drops the rest. If a full disk or a terminal that hung up made Write fail, nobody
// would read the program's standard error any more, and its next line there would kill it by SIGPIPE in the middle of its
// effects.
type lenient struct{ w io.Writer }

func (l lenient) Write(p []byte) (int, error) {
	_, _ = l.w.Write(p)
	return len(p), nil
}

// complaint keeps the end of the text that is written to it.
type complaint struct {
	text []byte
	cut  bool
}

// Write is called by a single goroutine, which ends before the group is done.
func (c *complaint) Write(p []byte) (int, error) {
	c.text = append(c.text, p...)
	if over := len(c.text) - maxComplaint; over > 0 {
		c.text, c.cut = append(c.text[:0], c.text[over:]...), true
	}
	return len(p), nil
}

// lastLine keeps the last line that is written to it.
type lastLine struct {
	line []byte
	over bool // it has ended
	cut  bool // it is too long
}

// Write is called by a single goroutine, like that of complaint.
func (l *lastLine) Write(p []byte) (int, error) {
	for part := range bytes.Lines(p) {
		if l.over {
			if len(bytes.TrimSpace(part)) == 0 {
				continue // what follows the last line
			}
			l.line, l.over, l.cut = l.line[:0], false, false
		}
		room := maxResult - len(l.line)
		l.cut = l.cut || len(part) > room
		l.line = append(l.line, part[:min(len(part), room)]...)
		l.over = part[len(part)-1] == '\n' && len(bytes.TrimSpace(l.line)) > 0
	}
	return len(p), nil
}

func (l *lastLine) trimmed() []byte { return bytes.TrimSpace(l.line) }

// after returns an error that says how a program ended, followed by the last whole lines of its output.
func (c *complaint) after(how string) error {
	text := string(c.text)
	if c.cut {
		if _, rest, ok := strings.Cut(text, "\n"); ok && strings.TrimSpace(rest) != "" {
			text = rest
		}
	}
	if text = strings.TrimSpace(strings.ToValidUTF8(text, "")); text != "" {
		how += ": " + text
	}
	return errors.New(how)
}
