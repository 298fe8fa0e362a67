package ws

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"getwork/assign"
	"getwork/assign/manage"
)

// A socket gets hello, then a snapshot, then changes of the user's own work; with the subprotocol and no compression.
func TestSocket(t *testing.T) {
	t.Parallel()
	n := start(t, Config{})
	n.newTask(t, "verify", true)
	waits := n.click(t, "verify", "oliver", assign.Duration(time.Hour))
	c := n.dial(t, "oliver")
	if kind, hello, err := c.message(); err != nil || kind != "hello" || hello["node"] != n.engine.Node || hello["user"] != "oliver" || hello["role"] != "worker" || !strings.HasSuffix(hello["server_time"].(string), "Z") {
		t.Errorf("first %s %v, %v", kind, hello, err)
	}
	kind, snapshot, err := c.message()
	if err != nil || kind != "snapshot" || len(snapshot["work"].([]any)) != 0 || len(snapshot["requests"].([]any)) != 1 {
		t.Fatalf("second %s %v, %v", kind, snapshot, err)
	}
	other := n.open(t, "tracy")
	if _, err := n.engine.Cancel(t.Context(), waits.ID, waits.Holder(), false); err != nil {
		t.Fatal(err)
	}
	if r := c.ended(); r["id"] != "1" || r["state"] != "cancelled" {
		t.Errorf("request %v", r)
	}
	n.mark("after it")
	for kind := ""; kind != "mark"; {
		if kind, _, err = other.message(); err != nil || kind == "request" {
			t.Fatalf("somebody else was told: %s, %v", kind, err)
		}
	}

	_, response := n.handshake(t, "uma", "Sec-WebSocket-Protocol: other, getwork.v1", "Sec-WebSocket-Extensions: permessage-deflate")
	if got := response.Header; response.StatusCode != http.StatusSwitchingProtocols || got.Get("Sec-WebSocket-Protocol") != "getwork.v1" || got.Get("Sec-WebSocket-Extensions") != "" {
		t.Errorf("status %d, %v", response.StatusCode, got)
	}
}

// An event during the reading of the snapshot comes after it.
func TestEventDuringTheSnapshot(t *testing.T) {
	t.Parallel()
	n := start(t, Config{})
	n.newTask(t, "verify", true)
	waits := n.click(t, "verify", "oliver", assign.Duration(time.Hour))
	tx, err := n.db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `lock table getwork.work in access exclusive mode`); err != nil {
		t.Fatal(err)
	}
	c := n.dial(t, "oliver")
	await(t, "the snapshot waits for the lock", func() bool {
		var waiting bool
		err := n.db.QueryRow(t.Context(), `select exists (select from pg_locks where relation = 'getwork.work'::regclass and not granted
			and database = (select oid from pg_database where datname = current_database()))`).Scan(&waiting)
		return err == nil && waiting
	})
	n.mark("meanwhile")
	if _, err := n.engine.Cancel(t.Context(), waits.ID, waits.Holder(), false); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"hello", "snapshot", "mark"} {
		kind, body, err := c.message()
		for kind == "tasks" || kind == "request" && body["state"] == "pending" { // of what is new, which came meanwhile, too
			kind, body, err = c.message()
		}
		if err != nil || kind != want {
			t.Fatalf("%s %v (%v), want %s", kind, body, err, want)
		}
	}
	if r := c.ended(); r["state"] != "cancelled" {
		t.Errorf("request %v", r)
	}
}

// A subscription sends a task's state at once and whenever it changes, until it ends.
func TestSubscribe(t *testing.T) {
	t.Parallel()
	n := start(t, Config{})
	n.newTask(t, "first", true)
	n.newTask(t, "second", true)
	c := n.open(t, "oliver")
	c.say(`{"type":"subscribe","tasks":["first","second"]}`)
	seen := map[any]bool{}
	for len(seen) < 2 {
		seen[c.next("task")["name"]] = true
	}
	n.click(t, "first", "tracy", assign.Duration(time.Hour))
	for task := c.next("task"); task["name"] != "first" || task["waiting"] != 1.0; task = c.next("task") {
	}
	c.say(`{"type":"unsubscribe","tasks":["first","unheard-of"]}`)
	c.say(`{"type":"nonsense"}`)
	c.next("error") // so the one before was obeyed
	n.click(t, "first", "uma", assign.Duration(time.Hour))
	n.click(t, "second", "uma", assign.Duration(time.Hour))
	for task := c.next("task"); task["name"] != "second" || task["waiting"] != 1.0; task = c.next("task") {
		if task["name"] == "first" && task["waiting"] == 2.0 {
			t.Error("told of a task that is not followed any more")
		}
	}
}

// A task of groups can be followed by their members and by managers and observers; for others it does not exist.
func TestSubscribeByGroup(t *testing.T) {
	t.Parallel()
	groups := map[string][]string{"member": {"other", "desk"}, "outsider": {"desks"}}
	n := start(t, Config{Caller: func(r *http.Request) (assign.Who, string) {
		user := r.Header.Get("User")
		return assign.Who{Holder: assign.Holder{User: user}, Groups: groups[user], Anything: user == "maria"}, "worker"
	}})
	n.newTask(t, "open", true)
	s := assign.DefaultSettings()
	s.Name, s.Query, s.Groups = "closed", "select 1 as item", []string{"desk"}
	if _, err := manage.CreateTask(t.Context(), n.engine, s, "maria"); err != nil {
		t.Fatal(err)
	}
	for _, user := range []string{"member", "maria"} {
		c := n.open(t, user)
		c.say(`{"type":"subscribe","tasks":["closed"]}`)
		if task := c.next("task"); task["name"] != "closed" {
			t.Errorf("%s is told of %v", user, task)
		}
	}
	c := n.open(t, "outsider")
	c.say(`{"type":"subscribe","tasks":["open","closed"]}`)
	if p := c.next("error"); p["type"] != "/problems/not-found" {
		t.Errorf("an outsider is told %v", p)
	}
	c.say(`{"type":"subscribe","tasks":["open"]}`)
	if task := c.next("task"); task["name"] != "open" {
		t.Errorf("an outsider is told of %v", task)
	}
}

// Without a Caller function, a hub lets clients follow only tasks without groups.
func TestSubscribeWithoutGroups(t *testing.T) {
	t.Parallel()
	n := start(t, Config{})
	s := assign.DefaultSettings()
	s.Name, s.Query, s.Groups = "closed", "select 1 as item", []string{"desk"}
	if _, err := manage.CreateTask(t.Context(), n.engine, s, "maria"); err != nil {
		t.Fatal(err)
	}
	c := n.open(t, "oliver")
	c.say(`{"type":"subscribe","tasks":["closed"]}`)
	if p := c.next("error"); p["type"] != "/problems/not-found" {
		t.Errorf("told %v", p)
	}
}

// A message that can't be obeyed is answered with a problem, and the socket stays open.
func TestBadMessages(t *testing.T) {
	t.Parallel()
	n := start(t, Config{})
	c := n.open(t, "oliver")
	for message, want := range map[string]string{
		`{"type":"subscribe","tasks":["nothing"]}`:            "/problems/not-found",
		`{"type":"get-work"}`:                                 "/problems/invalid",
		`{"type":"subscribe","tasks":["verify"],"colour":""}`: "/problems/invalid",
		`{"type":"subscribe","tasks":"verify"}`:               "/problems/invalid",
		`{}`:                                                  "/problems/invalid", `[]`: "/problems/invalid", `null`: "/problems/invalid", `"subscribe"`: "/problems/invalid",
	} {
		c.say(message)
		if p := c.next("error"); p["type"] != want || p["detail"] == "" || p["title"] == "" || p["status"] == 0.0 {
			t.Errorf("%s is answered %v", message, p)
		}
	}
	c.say(`{"type":"subscribe","tasks":[]}`)
	n.mark("still there")
	c.next("mark")
}

// A client may send many messages when it connects. All are answered, and the socket stays open.
func TestManySubscriptions(t *testing.T) {
	t.Parallel()
	n := start(t, Config{})
	n.newTask(t, "verify", true)
	c := n.open(t, "oliver")
	const more = 10 // than may come at once
	for range messageBurst + more {
		c.say(`{"type":"subscribe","tasks":["nothing"]}`)
	}
	c.say(`{"type":"subscribe","tasks":["verify"]}`)
	began := time.Now()
	for range messageBurst + more {
		c.next("error")
	}
	if task := c.next("task"); task["name"] != "verify" {
		t.Errorf("told of %v", task)
	}
	if took := time.Since(began); took < more*time.Second/messagesPerSecond/2 {
		t.Errorf("%d messages were read within %s", messageBurst+more, took)
	}
}

// A message that is too long, or not JSON text, closes the socket with the matching code.
func TestUnfitMessages(t *testing.T) {
	t.Parallel()
	n := start(t, Config{})
	for _, message := range []string{`{"type":`, "hello", "", `{}{}`} {
		c := n.open(t, "oliver")
		c.say(message)
		if code := c.closed(); code != Unsupported {
			t.Errorf("%q closes with %d, want 1003", message, code)
		}
	}
	r := n.openRaw(t, "oliver")
	r.send(binaryFrame, `{"type":"subscribe","tasks":[]}`)
	if code, _ := r.closed(); code != Unsupported {
		t.Errorf("a binary message closes with %d, want 1003", code)
	}
	long := `{"type":"subscribe","tasks":["` + strings.Repeat("x", maxMessage) + `"]}`
	c := n.open(t, "oliver")
	c.say(long)
	if code := c.closed(); code != TooBig {
		t.Errorf("a long message closes with %d, want 1009", code)
	}
	r.Close()
	n.awaitCount(t, 0)
}

// A page of another site can't open a socket in its visitor's name.
func TestOrigin(t *testing.T) {
	t.Parallel()
	n := start(t, Config{})
	for _, origin := range []string{"https://evil.example", "null", "http://" + n.address() + ".evil.example", "http://localhost:1"} {
		if _, response := n.handshake(t, "oliver", "Sec-WebSocket-Protocol: getwork.v1", "Origin: "+origin); response.StatusCode != http.StatusForbidden {
			t.Errorf("from %s: %d, want 403", origin, response.StatusCode)
		}
	}
	for _, origin := range []string{"http://" + n.address(), "https://" + n.address()} {
		if _, response := n.handshake(t, "oliver", "Sec-WebSocket-Protocol: getwork.v1", "Origin: "+origin); response.StatusCode != http.StatusSwitchingProtocols {
			t.Errorf("from %s: %d, want 101", origin, response.StatusCode)
		}
	}
	if _, err := Dial(t.Context(), nil, n.URL, http.Header{"User": {"oliver"}, "Origin": {"https://evil.example"}}); err == nil || !strings.Contains(err.Error(), "403") {
		t.Errorf("dial: %v", err)
	}
}

// A refused handshake is answered in the API's form, and says what to send.
func TestRefusedHandshake(t *testing.T) {
	t.Parallel()
	n := start(t, Config{})
	for want, lines := range map[string][]string{
		"Sec-WebSocket-Protocol: getwork.v1": {"Sec-WebSocket-Protocol: getwork.v2"},
		"another site's page":                {"Sec-WebSocket-Protocol: getwork.v1", "Origin: https://evil.example"},
	} {
		_, response := n.handshake(t, "oliver", lines...)
		body, err := io.ReadAll(response.Body)
		if err != nil || !strings.Contains(string(body), want) || response.StatusCode/100 != 4 {
			t.Errorf("%v: %d %s (%v), want a 4xx with %q", lines, response.StatusCode, body, err, want)
		}
	}
}
