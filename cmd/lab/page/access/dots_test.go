package access

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"getwork/cmd/internal/cluster"
	"getwork/cmd/internal/e2e"
	"getwork/cmd/lab/page"
	"getwork/schema/schematest"
)

// To the server and the command line, keys such as . and .. are segments like any other. Browsers, and all programs
// that parse URLs as browsers do, can't address them in any encoding. They read that, instead of being led to another
// address.
func TestDotsAsKeys(t *testing.T) {
	schematest.Thorough(t)
	t.Parallel()
	b := page.NewBrowser(t, "")
	s := e2e.NewSite(t, 1, "")
	url := s.Nodes[0].URL
	s.Create(map[string]any{"name": "box"})
	page.Manages(s, "POST", "/tasks/box/items", []map[string]any{{"item": "."}, {"item": ".."}, {"item": "..."}, {"item": "%2e"}, {"item": "a/../b"}})

	c := e2e.Terminal{T: t, Binary: cluster.Binary(t), Env: []string{"GETWORK_URL=" + url, "GETWORK_USER=Oliver"}}
	for _, key := range []string{".", "..", "...", "%2e", "a/../b"} {
		c.Run(0, e2e.Text("in the inbox"), "items", "show", "box", key)
	}
	c.Run(0, e2e.Text(".."), "items", "claim", "box", "..")
	c.Run(0, e2e.Text("Oliver"), "items", "show", "box", "..")

	if curl, err := exec.LookPath("curl"); err != nil {
		t.Log("curl is not installed: ", err)
	} else {
		for path, want := range map[string]string{"..": `"item":".."`, "%2E%2e": `"item":".."`, ".": `"item":"."`, "%252e": `"item":"%2e"`} {
			out, err := exec.CommandContext(t.Context(), curl, "--silent", "--noproxy", "*", "--path-as-is",
				"-H", "X-Getwork-User: mary", "-H", "X-Getwork-Role: manager", url+"/api/v1/tasks/box/items/"+path).CombinedOutput()
			if err != nil || !strings.Contains(string(out), want) {
				t.Errorf("curl --path-as-is …/items/%s: %s %v, want %s", path, out, err, want)
			}
		}
	}

	b.Visit(url, "/tasks", "Mary,manager")
	got := page.InPage[[]string](b, `
		const called = () => performance.getEntriesByType('resource').filter((e) => /tasks[/]box|items|claim/.test(new URL(e.name).pathname) && !e.name.includes('/static/'));
		const api = rest();
		const client = connect();
		const told = [];
		const ask = async (what, call) => {
			const before = called().length;
			const said = await call().then((v) => v.item, (e) => [e instanceof Problem, e.status, e.type, e.message].join(' '));
			told.push(what + ': ' + said + (called().length > before ? '' : ', uncalled'));
		};
		await ask('explain ..', () => api.explain('box', '..'));
		await ask('claim .', () => api.claim('box', '.'));
		await ask('claim ..', () => client.claim('box', '..'));
		await ask('call %2e%2E', () => api.call('GET', '/api/v1/tasks/box/items/%2e%2E'));
		await ask('call .%2e/claim', () => api.call('POST', '/api/v1/tasks/box/items/.%2e/claim'));
		for (const key of ['...', '%2e', 'a/../b', '.a']) await ask('explain ' + key, () => api.explain('box', key));
		client.close();
		return told;`)
	no := func(key string) string {
		return "true 400 /problems/invalid “" + key + "” can’t be named in an address, where it is a step in the path; use the command line: getwork items, uncalled"
	}
	want := []string{"explain ..: " + no(".."), "claim .: " + no("."), "claim ..: " + no(".."), "call %2e%2E: " + no(".."), "call .%2e/claim: " + no(".."),
		"explain ...: ...", "explain %2e: %2e", "explain a/../b: a/../b", "explain .a: .a"}
	for i := range want {
		if i >= len(got) || got[i] != want[i] {
			t.Errorf("told %q, want %q", got, want)
			break
		}
	}

	b.Do(chromedp.Navigate(url + "/items?task=box&item=.."))
	b.Shows(".answer .error", "It can’t be said why: “..” can’t be named in an address")
	b.Shows(".timeline", "Oliver") // parts that need no such address work
}
