package identity

import (
	"context"
	"fmt"
	"testing"
	"time"

	"getwork/assign"
	"getwork/assign/rights"
	"getwork/schema/schematest/timeout"
)

// Log-out works whatever has become of a session's rights, as often as it is asked for.
func TestLogOutOfAnySession(t *testing.T) {
	t.Parallel()
	n := start(t)
	l := &LogIns{Rights: n.rights}
	for what, before := range map[string]string{
		"alive":   "",
		"idle":    `update getwork.session set idle_at = clock_timestamp() where id = $1`,
		"expired": `update getwork.session set ends_at = clock_timestamp() where id = $1`,
		"blocked": `update getwork.principal set blocked_at = clock_timestamp() where id = (select principal from getwork.session where id = $1)`,
	} {
		_, cookie := n.browser(t, what, assign.RoleWorker)
		id := rights.Hash(cookie)
		if before != "" {
			if _, err := n.db.Exec(t.Context(), before, id); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 {
			if _, err := l.End(t.Context(), cookie); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
		var by string
		if err := n.db.QueryRow(t.Context(), `select coalesce(ended_by, '') from getwork.session where id = $1`, id).Scan(&by); err != nil || by != "log-out" {
			t.Errorf("%s: ended by %q, %v", what, by, err)
		}
	}
}

// Strangers who log out with cookies that they made up cause no transaction. Somebody who is logged in gets out
// meanwhile.
func TestLogOutOfStrangers(t *testing.T) {
	t.Parallel()
	n := start(t)
	l := &LogIns{Rights: n.rights}
	_, cookie := n.browser(t, "oliver", assign.RoleWorker)
	if _, err := n.rights.Session(t.Context(), cookie); err != nil {
		t.Fatal(err)
	}
	tx, err := n.db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	if _, err := tx.Exec(t.Context(), `lock table getwork.session in share mode`); err != nil { // an update would wait
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), timeout.Scale(20*time.Second))
	defer cancel()
	for i := range 100 { // how many are looked up depends on how fast they come: TestUnknownCredentialsAskLittle
		_, err := l.End(ctx, fmt.Sprint("made up ", i))
		if r := rights.RejectionOf(err); err != nil && (r == nil || r.Why != rights.WhyOverload) {
			t.Fatalf("cookie %d: %v", i, err)
		}
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := l.End(t.Context(), cookie); err != nil {
		t.Fatal(err)
	}
	var ended bool
	if err := n.db.QueryRow(t.Context(), `select ended_at is not null from getwork.session where id = $1`, rights.Hash(cookie)).Scan(&ended); err != nil || !ended {
		t.Errorf("oliver's session has ended: %v, %v", ended, err)
	}
}
