package story

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"getwork/assign"
	"getwork/cmd/internal/cluster"
	"getwork/cmd/internal/node"
	"getwork/schema/schematest"
)

// The commands of docs/situations.md are typed as they stand there, in a shell, on a real node. Commands that
// the page says are refused are refused; all others work.
func TestSituations(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"bash", "curl", "timeout"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip("the page's commands can't be typed here: ", err)
		}
	}
	site := newSite(t, 1, schematest.URL(t))
	site.Task("verify-bank-account", "select 'loan ' || i as item from generate_series(1, 10) i order by i")
	s := shell{t: t, dir: t.TempDir(), url: site.Nodes[0].URL, binary: cluster.Binary(t)}
	page, err := os.ReadFile("../../../../docs/situations.md")
	if err != nil {
		t.Fatal(err)
	}
	section := string(page)
	for _, file := range regexp.MustCompile("(?s)```yaml\nname: ([a-z-]+)\n(.*?)```").FindAllStringSubmatch(section, -1) {
		if err := os.WriteFile(filepath.Join(s.dir, file[1]+".yaml"), []byte("name: "+file[1]+"\n"+file[2]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	typed := 0
	for line := range strings.Lines(section) {
		if command, ok := strings.CutPrefix(line, "    "); ok {
			s.typed(strings.TrimSpace(command))
			typed++
		}
	}
	if typed < 20 {
		t.Errorf("%d commands typed; the page has lost some", typed)
	}
}

// shell types commands.
type shell struct {
	t                *testing.T
	dir, url, binary string
	item             string // the item of the last work that replaced a placeholder
}

var whose = regexp.MustCompile(`(?:--user|X-Getwork-User:) (\w+)`)

// typed runs a command line. It replaces ID by the oldest work that its user holds or, if none, that anybody holds of
// the last task, and ITEM by that work's item.
func (s *shell) typed(line string) {
	s.t.Helper()
	command, remark, _ := strings.Cut(line, "   #")
	if strings.Contains(command, " ID") || strings.Contains(command, "/ID/") {
		user := "Eve"
		if m := whose.FindStringSubmatch(command); m != nil {
			user = m[1]
		}
		var held struct{ Work []assign.Work }
		out, _ := s.run("getwork pipeline --json --user " + user)
		if err := json.Unmarshal([]byte(out), &held); err != nil || len(held.Work) == 0 {
			s.t.Fatalf("%s holds nothing to try %q on (%v)", user, command, err)
		}
		s.item = held.Work[0].Item
		id := strconv.FormatInt(held.Work[0].ID, 10)
		command = strings.NewReplacer(" ID", " "+id, "/ID/", "/"+id+"/").Replace(command)
	}
	command = strings.ReplaceAll(command, " ITEM", ` "`+s.item+`"`)
	command = strings.Replace(command, "timeout 10 ", "timeout 25 ", 1) // this machine may be slower than a reader's
	endless := strings.HasPrefix(command, "curl -N") || strings.HasPrefix(command, "timeout ")
	out, err := s.run(regexp.MustCompile(`http://127\.0\.0\.1:808\d`).ReplaceAllString(command, s.url))
	refused := strings.Contains(remark, "refused")
	switch {
	case endless:
		if !strings.Contains(out, "event: snapshot") && !strings.Contains(out, "resizing one.jpg") {
			s.t.Errorf("%s: %v\n%s", command, err, out)
		}
	case refused && err == nil:
		s.t.Errorf("%s: not refused:\n%s", command, out)
	case !refused && err != nil:
		s.t.Errorf("%s: %v\n%s", command, err, out)
	}
}

func (s *shell) run(command string) (string, error) {
	ctx, cancel := context.WithTimeout(s.t.Context(), 2*time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, "bash", "-c", command)
	c.Dir = s.dir
	c.Env = append(node.Environment(), "GETWORK_URL="+s.url, "PATH="+filepath.Dir(s.binary)+string(os.PathListSeparator)+os.Getenv("PATH"),
		"GORACE=atexit_sleep_ms=0") // without it, each exit with the race detector takes a second longer
	c.WaitDelay = 5 * time.Second
	both, err := os.CreateTemp(s.t.TempDir(), "")
	if err != nil {
		s.t.Fatal(err)
	}
	defer both.Close()
	c.Stdout, c.Stderr = both, both
	printed := func() string {
		b, _ := os.ReadFile(both.Name())
		return string(b)
	}
	if err := c.Start(); err != nil {
		s.t.Fatal(err)
	}
	if strings.HasPrefix(command, "curl -N") { // it never ends; the wanted output comes first
		go func() {
			for ctx.Err() == nil && !strings.Contains(printed(), "event: snapshot") {
				<-time.After(50 * time.Millisecond)
			}
			cancel()
		}()
	}
	err = c.Wait()
	s.t.Logf("$ %s\n%s", command, printed())
	return printed(), err
}
