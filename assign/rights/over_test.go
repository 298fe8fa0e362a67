package rights

import (
	"context"
	"errors"
	"testing"
	"time"

	"getwork/assign"
	"getwork/schema/schematest"
	"getwork/schema/schematest/timeout"
)

// comesFrom is a log-in of a session that the provider calls so, with an ID token of that time.
func comesFrom(sid string, issued time.Time) LogIn {
	return LogIn{Entry: Entry{Iss: "idp", Sub: "1", Name: "ann", Role: assign.RoleWorker, Groups: []string{}}, SID: sid, Max: time.Hour, IssuedAt: issued}
}

// message is a log-out message of the provider.
func (d *desk) message(ctx context.Context, sid string, issued time.Time, once byte) ([]Ended, error) {
	return d.End(ctx, Ending{By: "provider", Iss: "idp", SID: sid, Sub: "1", Once: &[32]byte{once}, Until: time.Now().Add(time.Hour), IssuedAt: issued})
}

// A message that comes between a log-in's code and its session ends the log-in. A later one is welcome.
func TestLogOutBeforeTheSession(t *testing.T) {
	t.Parallel()
	for name, sid := range map[string]string{"of a session": "s1", "of an account": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t)
			now := time.Now().Truncate(time.Second)
			if ended, err := d.message(t.Context(), sid, now, 1); err != nil || len(ended) > 0 {
				t.Fatal(ended, err)
			}
			for issued, want := range map[time.Duration]assign.Kind{-time.Second: assign.LogInFailed, 0: assign.LogInFailed, time.Second: ""} {
				_, err := d.Begin(t.Context(), comesFrom("s1", now.Add(issued)))
				if got := kindOf(err); got != want {
					t.Errorf("a log-in of %v: %v", issued, err)
				}
			}
			if _, err := d.Begin(t.Context(), comesFrom("s2", now)); (kindOf(err) == assign.LogInFailed) != (sid == "") {
				t.Errorf("another session of the account: %v", err)
			}
			if n := d.count(t, `select count(*) from getwork.session where ended_at is null`); n != map[string]int{"s1": 2, "": 1}[sid] {
				t.Errorf("%d sessions live", n)
			}
		})
	}
}

// A message that comes while the session's row is being written waits, and ends it.
func TestLogOutBesideTheSession(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	now := time.Now().Truncate(time.Second)
	d.logIn(t, "bob", assign.RoleWorker, "")
	d.exec(t, `insert into getwork.principal (name, name_key, iss, sub, kind) values ('ann', 'ann', 'idp', '1', 'person')`)
	tx, err := d.db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(t.Context(), `select from getwork.principal where name = 'ann' for update`); err != nil {
		t.Fatal(err)
	}
	waits := func(n int) {
		timeout.Await(t, "they wait for locks", func() bool {
			return schematest.LockWaits(t, d.db) == n
		})
	}
	begun, over := make(chan error, 1), make(chan []Ended, 1)
	go func() {
		_, err := d.Begin(t.Context(), comesFrom("s1", now))
		begun <- err
	}()
	waits(1) // for the principal's row: it has seen no message
	go func() {
		ended, err := d.message(t.Context(), "s1", now, 1)
		if err != nil {
			t.Error(err)
		}
		over <- ended
	}()
	waits(2)
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-begun; err != nil {
		t.Fatal(err)
	}
	if ended := <-over; len(ended) != 1 || ended[0].User != "ann" {
		t.Errorf("the message ended %v", ended)
	}
}

func kindOf(err error) assign.Kind {
	var r *assign.Refusal
	if errors.As(err, &r) {
		return r.Kind
	}
	if err != nil {
		return assign.Internal
	}
	return ""
}
