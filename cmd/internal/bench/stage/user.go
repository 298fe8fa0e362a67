package stage

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// User is a user who clicks on a kept connection. It writes and reads without net/http's client, which uses as much CPU
// for a call as the node: the load must not be what is measured.
type User struct {
	stage      *Stage
	task, name string
	shows      []string // headers that say who it is
	next       bool     // it asks over all tasks
	count      int
	conn       net.Conn
	in         *bufio.Reader
	Body       bytes.Buffer // of the last answer
	call       []byte
	items      []int64
	waited     int
	stop       func() bool
}

// User opens a user's connection to a node. Each click is to ask for count items of the task.
func (s *Stage) User(ctx context.Context, node int, task, name string, count int) (*User, error) {
	return s.user(ctx, node, User{task: task, count: count}, name)
}

// Next opens a user's connection to a node, whose clicks ask for count items over all tasks. The items are counted under the task.
func (s *Stage) Next(ctx context.Context, node int, task, name string, count int) (*User, error) {
	return s.user(ctx, node, User{task: task, count: count, next: true}, name)
}

func (s *Stage) user(ctx context.Context, node int, as User, name string) (*User, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", strings.TrimPrefix(s.Nodes[node].URL, "http://"))
	if err != nil {
		return nil, err
	}
	u := &as
	u.stage, u.conn, u.in = s, conn, bufio.NewReader(conn)
	if err := u.becomes(ctx, name); err != nil {
		_ = conn.Close()
		return nil, err
	}
	u.stop = context.AfterFunc(ctx, func() { _ = conn.Close() })
	return u, nil
}

// becomes has somebody else click on the connection.
func (u *User) becomes(ctx context.Context, name string) error {
	shown, err := u.stage.Show(ctx, name, "worker")
	if err != nil {
		return err
	}
	u.name, u.shows = name, u.shows[:0]
	for header, values := range shown {
		u.shows = append(u.shows, header+": "+values[0])
	}
	if u.next {
		u.call = u.Request("POST", "/api/v1/requests", fmt.Sprintf(`{"tasks":["*"],"count":%d}`, u.count))
		return nil
	}
	u.call = u.Request("POST", "/api/v1/tasks/"+u.task+"/requests", fmt.Sprintf(`{"count":%d}`, u.count))
	return nil
}

// Close ends the connection, and names the items that were handed out to the stage's check.
func (u *User) Close() {
	u.stop()
	_ = u.conn.Close()
	u.stage.mu.Lock()
	defer u.stage.mu.Unlock()
	u.stage.Given[u.task] = append(u.stage.Given[u.task], u.items...)
}

// Request returns a whole call, which can be sent any number of times.
func (u *User) Request(method, path, body string, headers ...string) []byte {
	headers = append(append(headers, u.shows...), "Host: "+u.conn.RemoteAddr().String(), "Content-Type: application/json", fmt.Sprint("Content-Length: ", len(body)))
	return []byte(method + " " + path + " HTTP/1.1\r\n" + strings.Join(headers, "\r\n") + "\r\n\r\n" + body)
}

// answerWithin is how long an answer may take; a node holds an answer for two minutes at most.
const answerWithin = 150 * time.Second

// Do sends a request and reads its answer into Body.
func (u *User) Do(request []byte) (status int, err error) {
	if err := u.conn.SetDeadline(time.Now().Add(answerWithin)); err != nil {
		return 0, err
	}
	if _, err := u.conn.Write(request); err != nil {
		return 0, err
	}
	answer, err := http.ReadResponse(u.in, nil)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	u.Body.Reset()
	_, err = u.Body.ReadFrom(answer.Body)
	return answer.StatusCode, err
}

// Click gets work, and returns how long that took. Every click must be answered with as many items as it asked for.
func (u *User) Click() (time.Duration, error) {
	began := time.Now()
	status, err := u.Do(u.call)
	for status == http.StatusAccepted && err == nil { // it waits for a run, so wait until that is over
		u.waited++
		var id int64
		if id, err = IDOf(u.Body.Bytes()); err == nil {
			_, err = u.Do(u.Request("GET", fmt.Sprint("/api/v1/requests/", id), "", "Prefer: wait=120"))
		}
		status = http.StatusCreated // or the answer is not 200
	}
	took := time.Since(began)
	if err == nil && status != http.StatusCreated {
		err = fmt.Errorf("status %d: %s", status, u.Body.Bytes())
	}
	if err == nil {
		u.items, err = TakeItems(u.items, u.Body.Bytes(), u.count)
	}
	if err != nil {
		return 0, fmt.Errorf("a click of %s: %w", u.name, err)
	}
	return took, nil
}

// IDOf returns the id of the first request in a text.
func IDOf(text []byte) (int64, error) {
	_, rest, _ := bytes.Cut(text, []byte(`{"id":"`))
	id, _, _ := bytes.Cut(rest, []byte(`"`))
	n, err := strconv.ParseInt(string(id), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("there is no id in %.200s", text)
	}
	return n, nil
}

// TakeItems appends the items of a request, which are numbers, to items.
func TakeItems(items []int64, request []byte, want int) ([]int64, error) {
	if !bytes.Contains(request, []byte(`"state":"assigned"`)) {
		return items, fmt.Errorf("there are no items, or not all, in %.400s", request)
	}
	from := len(items)
	for i, part := range bytes.Split(request, []byte(`"item":"`)) {
		if i == 0 {
			continue
		}
		key, _, _ := bytes.Cut(part, []byte(`"`))
		n, err := strconv.ParseInt(string(key), 10, 64)
		if err != nil {
			return items, fmt.Errorf("the item %q does not exist", key)
		}
		items = append(items, n)
	}
	if got := len(items) - from; got != want {
		return items, fmt.Errorf("there are %d items, not %d, in %.400s", got, want, request)
	}
	return items, nil
}

// Show returns the headers that say who a user is.
func (s *Stage) Show(ctx context.Context, user, role string) (http.Header, error) {
	if s.LogIn != nil {
		return s.LogIn(ctx, s, user, role)
	}
	h := http.Header{"X-Getwork-User": {user}}
	if role != "worker" {
		h.Set("X-Getwork-Role", role)
	}
	return h, nil
}
