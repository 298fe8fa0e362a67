package access

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"getwork/cmd/internal/cluster"
	"getwork/cmd/internal/e2e"
	"getwork/cmd/lab/page"
)

var (
	loginAddress = regexp.MustCompile(`^\s+(http\S+)$`)
	loginCheck   = regexp.MustCompile(`approve if the page shows (\S+):`)
)

// logsInTerminal starts `getwork login`, which prints an address and what the page shows.
func logsInTerminal(t *testing.T, c e2e.Terminal, args ...string) (process *exec.Cmd, stdin io.Writer, lines *bufio.Scanner, address, check string) {
	t.Helper()
	process, _, _ = c.Command(append([]string{"login"}, args...)...)
	process.Stdin, process.Stderr = nil, nil
	stdin, err := process.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	said, err := process.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = process.Process.Kill() }) // one that has ended is left alone
	for lines = bufio.NewScanner(said); address == "" && lines.Scan(); {
		if shows := loginCheck.FindStringSubmatch(lines.Text()); shows != nil {
			check = shows[1]
		}
		if at := loginAddress.FindStringSubmatch(lines.Text()); at != nil {
			address = at[1]
		}
	}
	if address == "" || check == "" {
		t.Fatalf("getwork login said neither an address nor what the page shows: %v", lines.Err())
	}
	return process, stdin, lines, address, check
}

// Somebody logs a terminal in by their browser, where they log in first, and works there until they log it out. By a code that they
// carry it works as well.
func TestPageApprovesTerminal(t *testing.T) {
	t.Parallel()
	at := page.NewBank(t)
	page.Leased(at.Site, "1h", "first", "second")
	b := page.NewBrowser(t, "")
	config := t.TempDir()
	c := e2e.Terminal{T: t, Binary: cluster.Binary(t), Env: []string{"XDG_CONFIG_HOME=" + config, "BROWSER=true", "GETWORK_URL=" + at.Address}}

	c.Run(1, e2e.Text("Log in with `getwork login`"), "pipeline")
	process, _, lines, address, check := logsInTerminal(t, c)
	b.Do(chromedp.Navigate(address))
	b.Press(fmt.Sprintf(`button[value="%s"]`, page.Subs["Oliver"])) // the provider asks who it is
	b.Shows("main", "Oliver")
	b.Shows("main", check)
	b.Press("#approve")
	b.Shows("body", "The terminal is logged in.")
	for lines.Scan() {
		if strings.Contains(lines.Text(), "gw_") {
			t.Errorf("the terminal shows its token: %s", lines.Text())
		}
	}
	if err := process.Wait(); err != nil {
		t.Fatalf("getwork login: %v", err)
	}
	if address := b.Eval("location.href"); !strings.HasPrefix(address, "http://127.0.0.1:") || strings.HasPrefix(address, at.Address) {
		t.Errorf("the browser is at %s", address)
	}
	c.Run(0, e2e.Text("first"), "get", "verify", "--wait", "30s")
	b.Do(chromedp.Navigate(at.Address))
	b.Works(1, e2e.Soon)

	// Log-out ends the token itself, not only this machine's knowledge of it.
	file := filepath.Join(config, "getwork", "tokens.json")
	kept, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	c.Run(0, e2e.Text("Logged out"), "logout")
	c.Run(1, e2e.Text("Log in with `getwork login`"), "pipeline")
	if err := os.WriteFile(file, kept, 0o600); err != nil {
		t.Fatal(err)
	}
	c.Run(1, e2e.Text("log in"), "pipeline")

	process, stdin, lines, address, check := logsInTerminal(t, c, "--paste")
	b.Do(chromedp.Navigate(address))
	b.Shows("main", check)
	b.Shows("main", "give it to nobody")
	b.Press("#approve")
	b.Shows("#said", "Paste this code")
	if _, err := io.WriteString(stdin, b.Eval(`document.getElementById('code').textContent`)+"\n"); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() {
		t.Log(lines.Text())
	}
	if err := process.Wait(); err != nil {
		t.Fatalf("getwork login --paste: %v", err)
	}
	c.Run(0, e2e.Text("first"), "pipeline")

	// The pages beside the page speak its languages.
	b.Do(chromedp.Navigate(at.Address + "/auth/wall?lang=de"))
	b.Shows("h1", "Die Wandanzeige hier zeigen?")
	b.Shows("#said", "Dieser Link ist nicht vollständig")
	b.Do(chromedp.Navigate(at.Address + "/auth/callback?code=none&state=none"))
	b.Shows("h1", "Die Anmeldung ist fehlgeschlagen")
	b.Shows("main", "Diese Anmeldung kann nicht abgeschlossen werden")
	b.Shows("a", "Noch einmal versuchen")
}
