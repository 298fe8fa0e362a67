package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// nodeReadyWithin is generous: twenty nodes that start at once on a small machine take their time.
const nodeReadyWithin = time.Minute

// apiConnections is what a node takes for itself when nobody says.
const apiConnections = 8

// Nodes are processes of `getwork serve` on one schema.
type Nodes struct {
	env  *Env
	each []*node
}

// node is one of them. It ends when its standard input is closed, and on Linux when the thread that started it ends:
// so it does not outlive this process, however that dies.
type node struct {
	url   string // such as http://127.0.0.1:41234
	cmd   *exec.Cmd
	stdin io.Closer
	said  *nodeOutput
	done  chan struct{} // closed when the process is gone, and all that it printed was read
}

// Start starts n nodes on a schema, which the first of them makes, and returns when all are ready. flags are more of
// those of `getwork serve`. If it fails, none is left.
func (e *Env) Start(ctx context.Context, schema string, n int, flags ...string) (*Nodes, error) {
	url, err := e.nodeURL(ctx, n)
	if err != nil {
		return nil, err
	}
	args := append([]string{"serve", "--until-stdin-closes", "--listen", "127.0.0.1:0", "--log-level", "warn", "--schema", schema}, flags...)
	// Not as flags: everybody on the machine may see those, and there may be a password in the URL.
	environment := append(nodeEnvironment(), "GETWORK_DATABASE_URL="+url, "GETWORK_LISTEN_DATABASE_URL="+e.DatabaseURL)
	nodes := &Nodes{env: e, each: make([]*node, n)}
	var g errgroup.Group
	for i := range nodes.each {
		g.Go(func() (err error) {
			nodes.each[i], err = startNode(ctx, e.Binary, args, environment)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		nodes.Stop()
		return nil, fmt.Errorf("start a node: %w", err)
	}
	return nodes, nil
}

// nodeURL is the database's, with a bound on each node's connections where the server has not enough for all of them.
func (e *Env) nodeURL(ctx context.Context, nodes int) (string, error) {
	conn, err := e.Connect(ctx)
	if err != nil {
		return "", err
	}
	defer conn.Close(ctx)
	var room int
	const freeConnections = `select current_setting('max_connections')::int - (select count(*) from pg_stat_activity)`
	if err := conn.QueryRow(ctx, freeConnections).Scan(&room); err != nil {
		return "", fmt.Errorf("ask how many connections are free: %w", err)
	}
	const others, beside = 15, 3 // the bench's own; a node's listener and runs
	each := (room-others)/nodes - beside
	if each >= apiConnections {
		return e.DatabaseURL, nil
	}
	if each < 1 {
		return "", fmt.Errorf("the server has room for %d more connections, %d nodes need %d: raise max_connections", room, nodes, others+nodes*(beside+1))
	}
	return withParameter(e.DatabaseURL, "pool_max_conns", strconv.Itoa(each)), nil
}

// withParameter adds a setting to a database's URL, or to the other form, of names and values.
func withParameter(url, name, value string) string {
	switch {
	case !strings.HasPrefix(url, "postgres://") && !strings.HasPrefix(url, "postgresql://"):
		return url + " " + name + "=" + value
	case strings.Contains(url, "?"):
		return url + "&" + name + "=" + value
	}
	return url + "?" + name + "=" + value
}

func startNode(ctx context.Context, binary string, args, environment []string) (*node, error) {
	n := &node{said: &nodeOutput{url: make(chan string, 1)}, done: make(chan struct{})}
	n.cmd = exec.Command(binary, args...)
	n.cmd.Env = environment
	n.cmd.SysProcAttr = nodeAttributes()
	n.cmd.Stdout, n.cmd.Stderr = n.said, n.said
	stdin, err := n.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	n.stdin = stdin
	started := make(chan error)
	go func() {
		// The kernel kills the process when the thread that started it ends. This one lasts until the process is gone.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := n.cmd.Start()
		started <- err
		if err == nil {
			_ = n.cmd.Wait() // what it printed says more than its exit status
		}
		close(n.done)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	if err := n.awaitReady(ctx); err != nil {
		n.kill()
		return nil, err
	}
	return n, nil
}

// nodeEnvironment is this process's without what configures getwork or PostgreSQL's clients. PG… stays: the URL that
// was given may count on it.
func nodeEnvironment() []string {
	var env []string
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "GETWORK_") && !strings.HasPrefix(e, "DATABASE_URL=") {
			env = append(env, e)
		}
	}
	return env
}

func (n *node) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, nodeReadyWithin)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for n.url == "" || !n.ready(ctx) {
		select {
		case n.url = <-n.said.url:
		case <-tick.C:
		case <-n.done:
			return fmt.Errorf("it ended while starting: %s", n.said)
		case <-ctx.Done():
			return fmt.Errorf("it was not ready in time: %w: %s", ctx.Err(), n.said)
		}
	}
	return nil
}

func (n *node) ready(ctx context.Context) bool {
	status, _, err := ask(ctx, http.MethodGet, n.url+"/readyz", nil)
	return err == nil && status == http.StatusOK
}

func (n *node) kill() {
	_ = n.cmd.Process.Kill()
	<-n.done
	_ = n.stdin.Close()
}

// URL is where the i-th node serves, such as http://127.0.0.1:41234.
func (n *Nodes) URL(i int) string { return n.each[i].url }

// PID is the i-th node's process.
func (n *Nodes) PID(i int) int { return n.each[i].cmd.Process.Pid }

// Stop ends the nodes at once, and tells what they complained of. It may be called twice.
func (n *Nodes) Stop() {
	for i, each := range n.each {
		if each == nil {
			continue
		}
		each.kill()
		if complaint := each.said.complaint(); complaint != "" {
			n.env.log("node %d said: %s", i+1, complaint)
		}
		n.each[i] = nil
	}
}

// CreateTask makes a task, as a manager does.
func (n *Nodes) CreateTask(ctx context.Context, task map[string]any) error {
	body, err := json.Marshal(task)
	if err != nil {
		return err
	}
	status, answer, err := ask(ctx, http.MethodPost, n.URL(0)+"/api/v1/tasks", body)
	if err == nil && status != http.StatusCreated {
		err = fmt.Errorf("the node answers %d: %s", status, answer)
	}
	if err != nil {
		return fmt.Errorf("create the task %v: %w", task["name"], err)
	}
	return nil
}

// ask is a call as a manager, for what is not measured.
func ask(ctx context.Context, method, url string, body []byte) (status int, answer []byte, err error) {
	r, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	r.Header.Set("X-Getwork-User", "bench")
	r.Header.Set("X-Getwork-Role", "manager")
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, nil, err
	}
	answer, err = io.ReadAll(response.Body)
	return response.StatusCode, answer, errors.Join(err, response.Body.Close())
}

// nodeOutput keeps the end of what a node printed, and finds its address in it.
type nodeOutput struct {
	url chan string // gets the address, once

	mu    sync.Mutex
	text  []byte
	found bool
}

const keptOutput = 4 << 10

func (o *nodeOutput) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text = append(o.text, p...)
	if !o.found {
		o.find()
	}
	if over := len(o.text) - keptOutput; over > 0 {
		o.text = append(o.text[:0], o.text[over:]...)
	}
	return len(p), nil
}

// find looks for the line that tells the address, and takes it out.
func (o *nodeOutput) find() {
	for line := range bytes.Lines(o.text) {
		url, ok := strings.CutPrefix(string(line), "listening on ")
		if ok && strings.HasSuffix(url, "\n") {
			o.found = true
			o.url <- strings.TrimSpace(url)
			o.text = bytes.Replace(o.text, line, nil, 1)
			return
		}
	}
}

// complaint is what it printed beside its address: at its log level, nothing good.
func (o *nodeOutput) complaint() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.TrimSpace(string(o.text))
}

func (o *nodeOutput) String() string {
	if said := o.complaint(); said != "" {
		return said
	}
	return "it said nothing"
}
