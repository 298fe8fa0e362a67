package story

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"getwork/assign"
	"getwork/cmd/internal/e2e"
	"getwork/cmd/internal/idp"
	"getwork/cmd/lab"
	"getwork/schema/schematest"
)

// step is a block of the guide.
type step struct {
	section string
	on      []string // the machines that it is typed on; none: it is not typed
	again   bool     // until it shows what the guide says, which takes a while
	text    string
	shows   []string // lines of the output
}

// steps reads a guide: its blocks in sh, each with its machines, and what is printed, the text below.
func steps(t *testing.T, guide string) (all []step) {
	t.Helper()
	text, err := os.ReadFile(lab.Path("docs/" + guide + ".md"))
	if err != nil {
		t.Fatal(err)
	}
	section := ""
	for _, part := range regexp.MustCompile("(?ms)^##+ ([^\n]*)$|^```([a-z]*)([^\n]*)\n(.*?)^```$").FindAllStringSubmatch(string(text), -1) {
		switch {
		case part[1] != "":
			section = part[1]
		case part[2] == "sh":
			names, _, skipped := strings.Cut(part[3], " not typed: ")
			names, again := strings.CutSuffix(names, " again")
			s := step{section: section, on: strings.Fields(names), again: again, text: part[4]}
			if skipped {
				s.on = nil
			} else if len(s.on) == 0 {
				t.Fatalf("%s.md: this block says neither on which machine it is typed nor why not:\n%s", guide, s.text)
			}
			all = append(all, s)
		case part[2] == "text":
			all[len(all)-1].shows = strings.Split(strings.TrimSpace(part[4]), "\n")
		}
	}
	return all
}

// missing returns the first line that the guide says one sees, and that is not in the output, or not in its place. "…" stands for
// anything.
func (s step) missing(h *host, output string) string {
	rest := strings.Split(output, "\n")
	for _, line := range s.shows {
		pattern := regexp.QuoteMeta(strings.Join(strings.Fields(h.changes.Replace(line)), " "))
		wanted := regexp.MustCompile("^" + strings.ReplaceAll(pattern, "…", ".*") + "$")
		for len(rest) > 0 && !wanted.MatchString(strings.Join(strings.Fields(rest[0]), " ")) {
			rest = rest[1:]
		}
		if len(rest) == 0 {
			return line
		}
	}
	return ""
}

// typedOn types a step on one of its machines.
func (s step) typedOn(t *testing.T, h *host) {
	t.Helper()
	if s.again {
		e2e.Await(t, "the guide's "+s.text+"shows "+strings.Join(s.shows, " "), e2e.Soon, func() bool { return s.missing(h, h.typed(s.text, "|| true")) == "" })
		return
	}
	output := h.typed(s.text, "")
	if line := s.missing(h, output); line != "" {
		t.Fatalf("%q: the guide says that one sees %q, and one sees\n%s", s.section, line, output)
	}
}

// The guides docs/install.md, docs/three-nodes.md and docs/durable.md are typed as they stand there, on machines that are folders: from
// PostgreSQL to three nodes behind nginx, with log-in, alerts and a backup that is restored. With failovers docs/patroni.md, too.
func TestInstall(t *testing.T) {
	schematest.Thorough(t)
	t.Parallel()
	m := newMachines(t)
	then := map[string]func(){ // what the guide leaves to people, or to time, by the section before
		"The first token, task and work": m.openToTheNetwork,
		"nginx in front":                 m.peopleLogIn,
		"Alerts":                         m.rulesAreEvaluated,
		"A backup each night":            m.workGoesOn,
		"The restore, now":               m.nothingTwice,
	}
	guides := []string{"install", "three-nodes", "durable"}
	if failovers {
		guides, then["A fail-over"] = append(guides, "patroni"), m.nothingLost
	}
	for _, guide := range guides {
		all := steps(t, guide)
		for i, s := range all {
			for _, name := range s.on {
				h := m.hosts[name]
				if h == nil {
					t.Fatalf("the guide's block is typed on an unknown machine %q:\n%s", name, s.text)
				}
				s.typedOn(t, h)
			}
			if last := i+1 == len(all) || all[i+1].section != s.section; last && then[s.section] != nil {
				then[s.section]()
				delete(then, s.section)
			}
		}
	}
	for section := range then {
		t.Errorf("the guides have no section %q any more", section)
	}
}

// openToTheNetwork: so far PostgreSQL let in its own machine. Here all calls come from that, so that nobody would miss the guide's line.
func (m *machines) openToTheNetwork() {
	if err := os.WriteFile(m.hba, []byte("local all all trust\n"), 0o600); err != nil {
		m.t.Fatal(err)
	}
}

// employee is somebody who has logged in with a browser.
type employee struct {
	*machines
	browser *http.Client
}

// logIn logs somebody in through nginx, whom the provider knows by sub.
func (m *machines) logIn(sub string) employee {
	m.t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		m.t.Fatal(err)
	}
	browser := m.authority.Client()
	browser.Jar, browser.CheckRedirect = jar, func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	p := employee{m, browser}
	at := ""
	e2e.Await(m.t, "the way to the provider", e2e.Soon, func() bool {
		at, _ = p.call(http.StatusSeeOther, "GET", "/auth/login", "", nil)
		return at != ""
	})
	back, err := m.idp.Authorize(at, sub)
	if err != nil {
		m.t.Fatal(err)
	}
	p.call(http.StatusSeeOther, "GET", strings.TrimPrefix(back, m.public), "", nil)
	return p
}

// call makes a call through nginx. It returns where the answer leads, and reads its body.
func (p employee) call(status int, method, path, body string, answer any) (location string, err error) {
	p.t.Helper()
	r, err := http.NewRequestWithContext(p.t.Context(), method, p.public+path, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	r.Header.Set("Origin", p.public)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Prefer", "wait=30")
	a, err := p.browser.Do(r)
	if err != nil {
		p.t.Fatal(err)
	}
	defer a.Body.Close()
	text, err := io.ReadAll(a.Body)
	if err == nil && a.StatusCode != status {
		err = fmt.Errorf("%s %s: %s %s", method, path, a.Status, text)
	}
	if err == nil && answer != nil {
		err = json.Unmarshal(text, answer)
	}
	return a.Header.Get("Location"), err
}

// gets clicks for so many of the guide's loans.
func (p employee) gets(n int) []assign.Work {
	p.t.Helper()
	var r assign.Request
	if _, err := p.call(http.StatusCreated, "POST", "/api/v1/tasks/oldest-loans/requests", fmt.Sprintf(`{"count": %d}`, n), &r); err != nil || len(r.Work) != n {
		p.t.Fatalf("a click for %d: %+v, %v", n, r, err)
	}
	return r.Work
}

// peopleLogIn: the provider knows getwork by what log-in.md says, and Oliver of the loan desk logs in and clicks.
func (m *machines) peopleLogIn() {
	secret, err := os.ReadFile(m.hosts["node1"].root + "/etc/getwork/oidc-secret")
	if err != nil {
		m.t.Fatal(err)
	}
	m.idp.Register(idp.Client{ID: "getwork", Secret: strings.TrimSpace(string(secret)), Redirects: []string{m.public + "/auth/callback"},
		AfterOut: []string{m.public + "/"}, Messages: []string{m.public + "/auth/backchannel"}})
	m.oliver = m.logIn("0001")
	m.held = m.oliver.gets(3)
}

// rulesAreEvaluated: no alert's rule fails, and none fires.
func (m *machines) rulesAreEvaluated() {
	asks := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	e2e.Await(m.t, "the alerts' rules are evaluated, and quiet", e2e.Soon, func() bool {
		a, err := asks.Get(m.prometheus + "/api/v1/rules")
		if err != nil {
			m.t.Fatal(err)
		}
		defer a.Body.Close()
		var said struct {
			Data struct {
				Groups []struct {
					Rules []struct{ Health, State string }
				}
			}
		}
		if err := json.NewDecoder(a.Body).Decode(&said); err != nil || len(said.Data.Groups) != 1 {
			m.t.Fatalf("Prometheus has the rules %+v, %v", said, err)
		}
		for _, r := range said.Data.Groups[0].Rules {
			if r.Health != "ok" || r.State != "inactive" {
				return false
			}
		}
		return true
	})
}

// nothingLost: Oliver is still logged in after the fail-over, and holds what he held.
func (m *machines) nothingLost() {
	var mine assign.Pipeline
	e2e.Await(m.t, "nodes find the new primary", e2e.Soon, func() bool {
		_, err := m.oliver.call(http.StatusOK, "GET", "/api/v1/pipeline", "", &mine)
		return err == nil
	})
	if diff := cmp.Diff(items(m.held), items(mine.Work)); diff != "" {
		m.t.Errorf("Oliver held before the fail-over, and holds after it (-before +after):\n%s", diff)
	}
}

// workGoesOn: Oliver gets work after the backup, which the restore forgets. And somebody copies the SQL of upgrade.md.
func (m *machines) workGoesOn() {
	m.oliver.gets(2)
	m.hosts["db"].write("root/raise-ids.sql", raiseIDs(m.t), 0o600)
}

// nothingTwice: Oliver is still logged in and holds what he held at the backup. Tracy gets all else, under new ids.
func (m *machines) nothingTwice() {
	var mine assign.Pipeline
	if _, err := m.oliver.call(http.StatusOK, "GET", "/api/v1/pipeline", "", &mine); err != nil {
		m.t.Fatal(err)
	}
	if diff := cmp.Diff(items(m.held), items(mine.Work)); diff != "" {
		m.t.Errorf("Oliver held at the backup, and holds after the restore (-backup +restore):\n%s", diff)
	}
	all := slices.Concat([]string{"20", "19"}, items(mine.Work)) // the guide's reader has the first two
	tracy, hers := m.logIn("0002"), []assign.Work{}
	for len(hers) < 20-len(all) {
		hers = append(hers, tracy.gets(5)...)
	}
	for _, w := range hers {
		if w.ID < 1_000_000 {
			m.t.Errorf("work %d has an id that may have been given out between backup and restore", w.ID)
		}
	}
	all = append(all, items(hers)...)
	slices.Sort(all)
	if once := slices.Compact(slices.Clone(all)); len(once) != 20 {
		m.t.Errorf("handed out are %v; want all of the twenty loans, each once", all)
	}
}

func items(work []assign.Work) (all []string) {
	for _, w := range work {
		all = append(all, w.Item)
	}
	slices.Sort(all)
	return all
}
