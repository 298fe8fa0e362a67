package cli

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"getwork/cmd/internal/cluster"
	"getwork/cmd/internal/command"
	"getwork/cmd/internal/e2e"
)

func TestClientUsage(t *testing.T) {
	t.Parallel()
	c := e2e.Terminal{T: t, Binary: cluster.Binary(t)}
	for _, tt := range []struct {
		status int
		says   string
		args   []string
	}{
		{1, "no server at http://127.0.0.1:1: connection refused\nStart one with `getwork serve`", []string{"task", "list", "--url", "http://127.0.0.1:1"}},
		{1, "no server at http://127.0.0.1:1", []string{"get", "verify", "--url", "http://127.0.0.1:1/"}},
		{1, "work 1: no server at", []string{"done", "1", "2", "--url", "http://127.0.0.1:1/"}},
		{2, "--url must be an address such as http://127.0.0.1:8080", []string{"pipeline", "--url", "localhost:8080"}},
		{2, "a token identifies the user", []string{"pipeline", "--token", "gw_x", "--user", "oliver"}},
		{2, "--role must be worker, agent, observer or manager", []string{"pipeline", "--role", "boss"}},
		{2, "a user name has no control characters", []string{"pipeline", "--user", "a\nb"}},
		{2, "the token contains a character", []string{"pipeline", "--token", "a\nb"}},
		{2, "an instance is made of", []string{"pipeline", "--instance", "a b"}},
		{2, "--count must be 1 or more", []string{"get", "verify", "--count", "0"}},
		{2, "--wait must be 0s or more", []string{"get", "verify", "--wait=-1s"}},
		{2, "needs --after", []string{"done", "1", "--outcome", "return"}},
		{2, "belongs to --outcome return", []string{"done", "1", "--after", "1h"}},
		{2, "from 0s to 72h", []string{"done", "1", "--outcome", "return", "--after", "73h"}},
		{2, "--to belongs to --outcome return", []string{"done", "1", "--to", "others"}},
		{2, "--error belongs to --outcome fail", []string{"done", "1", "--outcome", "never", "--error", "x"}},
		{2, "must be one of \"complete\",\"return\",\"never\",\"fail\"", []string{"done", "1", "--outcome", "lose"}},
		{2, "work-id", []string{"done"}},
		{2, "--linger must be from 0s to 24h, not 25h", []string{"get", "verify", "--linger", "25h"}},
		{2, "--lease must be from 1s to 24h", []string{"get", "verify", "--lease", "1ms"}},
		{2, "--of is empty", []string{"pipeline", "--of", ""}},
		{2, "a group has 1 to 128 bytes", []string{"pipeline", "--member-of", "a\nb"}},
		{2, "a token identifies the user", []string{"pipeline", "--token", "gw_x", "--member-of", "clerks"}},
		{2, "--item is empty", []string{"work", "list", "--item", ""}},
		{2, "--state must be one of", []string{"work", "list", "--state", "lost"}},
		{2, "--limit must be 1 or more", []string{"work", "list", "--limit", "0"}},
		{2, "work-id", []string{"work", "extend"}},
		{2, "--to=USER", []string{"work", "reassign", "1"}},
		{2, "say whose work to take back", []string{"work", "release"}},
		{2, "--of is empty", []string{"work", "release", "--of", "", "--task", "verify", "--yes"}},
		{2, "nobody can be asked: --yes", []string{"work", "release", "--task", "verify"}},
		{2, "can't be used together", []string{"work", "release", "--task", "verify", "--yes", "--dry-run"}},
		{2, "name the items to push", []string{"items", "push", "photos"}},
		{2, "name the items to push", []string{"items", "push", "photos", "a", "-f", "x"}},
		{2, "no such file", []string{"items", "push", "photos", "-f", "no-such-file"}},
		{2, "--keys-only needs -f", []string{"items", "push", "photos", "a", "--keys-only"}},
		{2, "--not-before must be a time such as", []string{"items", "push", "photos", "a", "--not-before", "soon"}},
		{2, "--not-before must be a time such as", []string{"items", "push", "photos", "a", "--not-before=-1h"}},
		{2, "name an item by its key", []string{"items", "claim", "photos", ""}},
		{2, "name a task", []string{"items", "show", "", "a"}},
		{2, "name the items to put back, or give --all", []string{"items", "redrive", "photos"}},
		{2, "name the items to put back, or give --all", []string{"items", "redrive", "photos", "a", "--all"}},
		{2, "--limit must be from 1 to 100", []string{"task", "preview", "verify", "--limit", "101"}},
		{2, "a version must be 1 or more", []string{"task", "restore", "verify", "0"}},
		{2, "--lease: ", []string{"task", "update", "verify", "--lease", "soon"}},
		{2, "--max-open: a whole number or none", []string{"task", "update", "verify", "--max-open", "many"}},
		{2, "can't be used together", []string{"task", "create", "--name", "x", "--inbox", "--query", "select 1"}},
		{2, "to it, --inbox", []string{"task", "create", "--name", "x"}},
		{2, "must be one of \"bash\",\"zsh\",\"fish\"", []string{"completion", "tcsh"}},
		{2, "say what to change", []string{"task", "update", "verify"}},
		{2, "a task needs a name", []string{"task", "create", "--query", "select 1"}},
		{2, "can't be used together", []string{"task", "create", "--query", "select 1", "--query-file", "x.sql"}},
		{2, "no such file", []string{"task", "create", "-f", "no-such-file.yaml"}},
		{2, "name a task", []string{"task", "show", ""}},
	} {
		c.Run(tt.status, e2e.Text(tt.says), tt.args...)
	}
}

func TestClientHelp(t *testing.T) {
	t.Parallel()
	c := e2e.Terminal{T: t, Binary: cluster.Binary(t)}
	c.Run(0, e2e.Text("task create", "get ", "pipeline ", "done "), "--help")
	c.Run(0, e2e.Text("task list", "task show", "task create", "task apply", "task update", "task delete", "task pause", "task resume"), "task", "--help")
	c.Run(0, e2e.Text("--query-file", "--max-request", "$GETWORK_URL", "name: review-photos"), "task", "create", "--help")
	c.Run(0, e2e.Text("stay as they are", "-f, --file"), "task", "apply", "--help")
	c.Run(0, e2e.Text("--count", "--wait", "--keep", "Which node, and who asks:"), "get", "--help")
	c.Run(0, e2e.Text("--outcome", "--after", "--note", "getwork done 17 18"), "done", "--help")
	c.Run(0, e2e.Text("--instance", "logged in with", "--of"), "pipeline", "--help")
	c.Run(0, e2e.Text("work list", "work extend", "work reassign", "work release"), "work", "--help")
	c.Run(0, e2e.Text("items push", "items show", "items claim", "items redrive"), "items", "--help")
	c.Run(0, e2e.Text("task preview", "task versions", "task restore", "task runs"), "task", "--help")
	c.Run(0, e2e.Text("a task that does not exist yet", "-f, --file=task.yaml"), "task", "preview", "--help")
	c.Run(0, e2e.Text(`{"item": "a.jpg"`, "--not-before", "--from-line"), "items", "push", "--help")
	c.Run(0, e2e.Text("source <(getwork completion bash)"), "completion", "--help")
}

// A wrong address is reported as such, whatever answers there.
func TestNotGetwork(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		answer http.HandlerFunc
		says   string
	}{
		{func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) }, "did not answer as getwork does"},
		{func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusNotFound) }, `answered "404 Not Found", and not as getwork does; is --url right?`},
		{func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://example.com/", http.StatusFound)
		}, "redirects to https://example.com/"},
	} {
		server := httptest.NewServer(tt.answer)
		defer server.Close()
		err := PipelineCmd{holding: holding{Remote: Remote{URL: server.URL, User: "oliver"}}}.Run(t.Context(), &command.Streams{Out: new(bytes.Buffer), Errs: new(bytes.Buffer)})
		if err == nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%v, not %q", err, tt.says)
		}
	}
}

func TestWhoAsks(t *testing.T) {
	t.Parallel()
	var got http.Header
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r.Header
		_, _ = w.Write([]byte(`{"tasks":[],"work":[],"requests":[]}`))
	}))
	defer server.Close()
	run := func(h holding) {
		t.Helper()
		h.URL = server.URL + "/"
		if err := (PipelineCmd{holding: h}).Run(t.Context(), &command.Streams{Out: new(bytes.Buffer), Errs: new(bytes.Buffer)}); err != nil {
			t.Fatal(err)
		}
	}
	run(holding{Remote: Remote{User: "Zoë", MemberOf: []string{"clerks", "chiefs"}}, Instance: "two"})
	if got.Get("X-Getwork-User") != "Zoë" || got.Get("X-Getwork-Groups") != "clerks,chiefs" || got.Get("X-Getwork-Role") != "worker" || got.Get("X-Getwork-Instance") != "two" {
		t.Errorf("by name: %v", got)
	}
	run(holding{Remote: Remote{User: "mary", Role: "manager"}})
	if got.Get("X-Getwork-Role") != "manager" {
		t.Errorf("as a manager: %v", got)
	}
	run(holding{Remote: Remote{Token: "gw_1"}})
	if got.Get("Authorization") != "Bearer gw_1" || got.Get("X-Getwork-User") != "" || got.Get("X-Getwork-Role") != "" {
		t.Errorf("with a token: %v", got)
	}
	run(holding{})
	if got.Get("X-Getwork-User") == "" {
		t.Error("no user is sent; it should be the machine's user")
	}
}
