package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"

	"getwork/cmd/internal/node"
)

// apiConnections is what a node takes for itself when nobody says.
const apiConnections = 8

// Nodes are processes of `getwork serve` on one schema.
type Nodes struct {
	env  *Env
	each []*node.Node // nil: it was stopped
}

// Start starts n nodes on a schema, which the first of them makes, and returns when all are ready. flags are more of
// those of `getwork serve`. If it fails, none is left.
func (e *Env) Start(ctx context.Context, schema string, n int, flags ...string) (*Nodes, error) {
	url, err := e.nodeURL(ctx, n)
	if err != nil {
		return nil, err
	}
	o := node.Options{
		Binary: e.Binary,
		Args:   append([]string{"--log-level", "warn", "--schema", schema}, flags...),
		// Not as flags: everybody on the machine may see those, and there may be a password in the URL.
		Env: []string{"GETWORK_DATABASE_URL=" + url, "GETWORK_LISTEN_DATABASE_URL=" + e.DatabaseURL},
	}
	nodes := &Nodes{env: e, each: make([]*node.Node, n)}
	var g errgroup.Group
	for i := range nodes.each {
		nodes.each[i] = node.New(o)
		g.Go(func() error { return nodes.each[i].Start(ctx) })
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

// URL is where the i-th node serves, such as http://127.0.0.1:41234.
func (n *Nodes) URL(i int) string { return n.each[i].URL }

// PID is the i-th node's process.
func (n *Nodes) PID(i int) int { return n.each[i].PID() }

// Stop ends the nodes at once, and tells what they complained of. It may be called twice.
func (n *Nodes) Stop() {
	for i, each := range n.each {
		if each == nil || !each.Started() {
			continue
		}
		each.Kill()
		if complaint := complaint(each.Output()); complaint != "" {
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

// keptOutput is how much of what a node printed is shown.
const keptOutput = 4 << 10

// complaint is what it printed beside its address: at its log level, nothing good.
func complaint(output string) string {
	var text strings.Builder
	for line := range strings.Lines(output) {
		if !strings.HasPrefix(line, "listening on ") {
			text.WriteString(line)
		}
	}
	said := strings.TrimSpace(text.String())
	return said[max(0, len(said)-keptOutput):]
}
