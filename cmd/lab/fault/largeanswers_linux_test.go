package fault

import (
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"

	"golang.org/x/sync/errgroup"

	"getwork/cmd/internal/cluster"
	"getwork/schema/schematest"
)

// answersMiB is what docs/sizing.md gives a node for large answers, in MiB: what calls and live channels hold of them, while they are
// made and until they are written, and what is being read.
const answersMiB = 400

// Some users hold 60 items of 1 MB each, as a version without limits let them, and read them all at once, in every way that there is:
// six calls each, lists and tables, and live channels whose clients read nothing. Who gets no room is answered 429, and the node takes
// no more memory than docs/sizing.md says. Meanwhile a user with little is answered.
func TestLargeAnswers(t *testing.T) { // not beside others, whose calls would take too long
	schematest.Long(t)
	const users, held, idle = 2, 60, 2
	s := newSite(t, 1, "")
	s.Create(map[string]any{"name": "scans", "query": nil})
	s.Exec(`insert into getwork.work (task_id, item, user_name, details)
		select task_id, u || ' ' || i, 'bot-' || u, json_build_object('scan', repeat('x', 1000000)) from getwork.task_state, generate_series(1, $1) u, generate_series(1, $2) i`, users, held)
	s.Exec(`insert into getwork.work (task_id, item, user_name) select task_id, 'small', 'ann' from getwork.task_state`)
	before := resident(t, s.Nodes[0])
	for i := range users * idle {
		user := fmt.Sprint("bot-", 1+i%users)
		socket, stream := s.narrow(user), s.narrow(user)
		if a, err := socket.upgrade(callBound); err != nil || a.Status != http.StatusSwitchingProtocols {
			t.Fatalf("%d %s, %v", a.Status, a.Body, err)
		}
		if err := stream.send("GET", "/api/v1/events", ""); err != nil {
			t.Fatal(err)
		}
	}
	var mu sync.Mutex
	answers := map[string]int{}
	var g errgroup.Group
	get := func(user, role, path string) error {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.Nodes[0].URL+"/api/v1"+path, nil)
		if err != nil {
			return err
		}
		r.Header.Set("X-Getwork-User", user)
		r.Header.Set("X-Getwork-Role", role)
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			return fmt.Errorf("%s reads %s: %w", user, path, err)
		}
		defer response.Body.Close()
		n, err := io.Copy(io.Discard, response.Body)
		if err != nil {
			return fmt.Errorf("%s reads %s: %w", user, path, err)
		}
		if n > 9<<20 {
			return fmt.Errorf("%s reads %s: %d bytes", user, path, n)
		}
		mu.Lock()
		defer mu.Unlock()
		answers[fmt.Sprintf("%s %d", role, response.StatusCode)]++
		return nil
	}
	for u := range users {
		user := fmt.Sprint("bot-", u+1)
		for range 6 {
			g.Go(func() error { return get(user, "agent", "/pipeline") })
		}
		for _, format := range []string{"json", "csv"} {
			g.Go(func() error { return get("otto-"+user, "observer", "/work?limit=1000&user="+user+"&format="+format) })
		}
	}
	g.Go(func() error { return get("ann", "worker", "/pipeline") })
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
	t.Logf("answers: %v", answers)
	if answers["worker 200"] != 1 {
		t.Error("a user with little is not answered")
	}
	for answer, n := range answers {
		switch status := answer[len(answer)-3:]; {
		case status == "200", status == "429":
		case status == "503" && cluster.Race(): // reading a gigabyte under the race detector may take longer than a call may
		default:
			t.Errorf("%d answers: %s", n, answer)
		}
	}
	if answers["agent 200"] == 0 || answers["observer 200"] == 0 {
		t.Error("nobody is answered")
	}
	peak := memory(t, s.Nodes[0], "VmHWM")
	t.Logf("%d MiB before, %d at most", before, peak)
	bound := before + 2*answersMiB // Go's heap grows to about twice what is in use
	if cluster.Race() {
		bound *= 3
	}
	if peak > bound {
		t.Errorf("the node took %d MiB, and docs/sizing.md gives it %d", peak, bound)
	}
}
