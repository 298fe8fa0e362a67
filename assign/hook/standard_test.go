package hook

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// verifier is npm's standardwebhooks.
func verifier(t *testing.T) (verify func(secret string, m message) string) {
	t.Helper()
	folder := os.Getenv("GETWORK_TEST_STANDARDWEBHOOKS")
	if folder == "" {
		t.Skip("GETWORK_TEST_STANDARDWEBHOOKS names no folder with npm's standardwebhooks: cp testdata/standardwebhooks/package*.json FOLDER; npm ci --prefix FOLDER")
	}
	node := exec.CommandContext(t.Context(), "node", "testdata/standardwebhooks/verify.mjs", folder)
	node.Stderr = t.Output()
	in, err := node.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := node.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := node.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		if err := node.Wait(); err != nil && t.Context().Err() == nil {
			t.Error(err)
		}
	})
	lines := bufio.NewScanner(out)
	return func(secret string, m message) string {
		t.Helper()
		headers := map[string]string{}
		for name := range m.header {
			headers[strings.ToLower(name)] = m.header.Get(name)
		}
		if err := json.NewEncoder(in).Encode(map[string]any{"secret": secret, "headers": headers, "body": m.body}); err != nil {
			t.Fatal(err)
		}
		if !lines.Scan() {
			t.Fatalf("no answer of node: %v", lines.Err())
		}
		return lines.Text()
	}
}

// A receiver that uses npm's standardwebhooks accepts what is sent, with either secret while they are rotated, and nothing else.
func TestStandardWebhooks(t *testing.T) {
	t.Parallel()
	verify := verifier(t)
	d := newDesk(t, nil)
	w, first := d.hook()
	send := func(item string) message {
		t.Helper()
		d.assign(item)
		d.once()
		return d.receiver.last()
	}
	m := send("a")
	if got := verify(first, m); got != "ok work.assigned" {
		t.Errorf("with the secret: %s", got)
	}
	_, other := newSecret()
	forged := m
	forged.body = strings.Replace(m.body, "oliver", "tracy", 1)
	if verify(other, m) == "ok work.assigned" || verify(first, forged) == "ok work.assigned" || forged.body == m.body {
		t.Error("another secret, or another body, is accepted")
	}
	second, until, err := d.Rotate(t.Context(), w.ID, time.Hour, anybody)
	if err != nil || until == nil || second == first {
		t.Fatalf("rotate: %v, %v", until, err)
	}
	m = send("ä")
	for _, secret := range []string{first, second} {
		if got := verify(secret, m); got != "ok work.assigned" {
			t.Errorf("while the secret is rotated: %s", got)
		}
	}
	d.exec(`update getwork.hook set former_until = clock_timestamp()`) // the hour is over
	m = send("c")
	if got := verify(second, m); got != "ok work.assigned" {
		t.Errorf("with the new secret: %s", got)
	}
	if got := verify(first, m); got == "ok work.assigned" {
		t.Error("the former secret is still used after its time")
	}
	third, until, err := d.Rotate(t.Context(), w.ID, 0, anybody)
	if err != nil || until != nil {
		t.Fatalf("rotate at once: %v, %v", until, err)
	}
	m = send("d")
	if verify(third, m) != "ok work.assigned" || verify(second, m) == "ok work.assigned" {
		t.Error("after a rotation at once the former secret is still used")
	}
}
