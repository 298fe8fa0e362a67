package hook

import (
	"context"
	"crypto/tls"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"getwork/assign"
	"getwork/schema/schematest/memnet"
)

// Making a hook switches triggers of the table that every click writes. While it waits for somebody's long transaction, others
// write.
func TestClicksDontWaitForTheSwitch(t *testing.T) {
	t.Parallel()
	d := newDesk(t, nil)
	long, err := d.db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = long.Rollback(context.WithoutCancel(t.Context())) }()
	const insert = `insert into getwork.work (task_id, item, user_name) values (1, $1, 'oliver')`
	if _, err := long.Exec(t.Context(), insert, "long"); err != nil {
		t.Fatal(err)
	}
	made := make(chan error, 1)
	go func() {
		_, _, err := d.Create(t.Context(), assign.NewWebhook{URL: d.receiver.URL}, "ada")
		made <- err
	}()
	wait(t, "wait for the table's lock", func(context.Context) bool {
		return d.text(`select (exists (select from pg_locks where relation = 'getwork.work'::regclass and not granted and database = (select oid from pg_database where datname = current_database())))::text`) == "true"
	})
	click, err := d.db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, statement := range []string{`set local lock_timeout = '1s'`, strings.Replace(insert, "$1", "'click'", 1)} {
		if _, err := click.Exec(t.Context(), statement); err != nil {
			t.Error(err)
		}
	}
	_ = click.Rollback(t.Context())
	if err := long.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-made; err != nil {
		t.Error(err)
	}
	d.assign("later")
	if d.states() != "waiting 0" {
		t.Errorf("events: %s", d.states())
	}
}

// A login that may only write to work can't have its own functions run with the rights of the triggers' owner.
func TestTriggersIgnoreTemporaryTypes(t *testing.T) {
	t.Parallel()
	d := newDesk(t, nil)
	d.hook()
	tx, err := d.db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	for _, statement := range []string{
		`create function pg_temp.spy(pg_catalog.timestamptz) returns boolean language plpgsql as $$ begin raise exception 'ran as %', current_user; end $$`,
		`create domain pg_temp.timestamptz as pg_catalog.timestamptz check (pg_temp.spy(value))`,
		`insert into getwork.work (task_id, item, user_name) values (1, 'a', 'oliver')`,
	} {
		if _, err := tx.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
}

// What is no HTTP counts as a failure, and nothing of it is kept: it may be a secret, or bytes that PostgreSQL refuses.
func TestAnswerIsNoHTTP(t *testing.T) {
	t.Parallel()
	d := newDesk(t, nil)
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: d.receiver.TLS.Certificates})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = c.Read(make([]byte, 4096))
			_, _ = c.Write([]byte("HTTP/1.1 200 OK\r\nsecret \xff\x00\r\n\r\n"))
			_ = c.Close()
		}
	}()
	w, _, err := d.Create(t.Context(), assign.NewWebhook{URL: "https://" + listener.Addr().String()}, "ada")
	if err != nil {
		t.Fatal(err)
	}
	d.assign("a")
	d.once()
	all, err := d.Deliveries(t.Context(), w.ID, "", 0, 1, anybody)
	if err != nil || len(all) != 1 || all[0].Error == nil || *all[0].Error != "the answer is not valid HTTP" {
		t.Errorf("%+v, %v", all, err)
	}
}

// A node that ends hands back what it has not brought to an end, and another one sends it at once.
func TestHandedBack(t *testing.T) {
	t.Parallel()
	began := make(chan struct{}, 10)
	d := newDesk(t, func(w http.ResponseWriter, r *http.Request) {
		if began <- struct{}{}; len(began) == 1 {
			<-r.Context().Done()
		}
	})
	d.hook()
	d.assign("a")
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- d.sender.Run(ctx) }()
	wait(t, "attempt", func(context.Context) bool { return len(began) == 1 })
	end()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	d.onceBy(d.newSender())
	if d.states() != "delivered 2" {
		t.Errorf("after the other node's turn: %s", d.states())
	}
}

// Events go out while old ones are removed.
func TestSendingDoesNotWaitForTidying(t *testing.T) {
	t.Parallel()
	d := newDesk(t, nil)
	d.hook()
	d.exec(`create function held() returns trigger language plpgsql as $$ begin perform pg_advisory_xact_lock(1); return old; end $$`)
	d.exec(`create trigger held before delete on getwork.hook_event for each row execute function held()`)
	d.exec(`insert into getwork.hook_event (hook_id, task_id, type, body, state, ended_at) values (1, 1, 'work.closed', '{}', 'delivered', clock_timestamp() - interval '8 days')`)
	removing, err := d.db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := removing.Exec(t.Context(), `select pg_advisory_xact_lock(1)`); err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	began := time.Now()
	go func() { ended <- d.sender.Run(ctx) }()
	const waits = `select (exists (select from pg_locks where locktype = 'advisory' and not granted and database = (select oid from pg_database where datname = current_database())))::text`
	wait(t, "removal", func(context.Context) bool { return d.text(waits) == "true" })
	d.assign("a")
	wait(t, "delivery", func(context.Context) bool { return len(d.receiver.all()) == 1 })
	if d.text(waits) != "true" {
		t.Errorf("sent only after the removal, %s after the start", time.Since(began))
	}
	if err := removing.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	end()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// Retry-After is kept in either form, for an hour at most.
func TestRetryAfterForms(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for text, want := range map[string]time.Duration{
			"": 0, "soon": 0, "-1": 0, "600": 10 * time.Minute, "7200": time.Hour, "99999999999999999999": time.Hour,
			time.Now().Add(10 * time.Minute).UTC().Format(http.TimeFormat): 10 * time.Minute,
			time.Now().Add(-time.Minute).UTC().Format(http.TimeFormat):     0,
			time.Now().Add(48 * time.Hour).UTC().Format(http.TimeFormat):   time.Hour,
		} {
			if got := retryAfter(text); got != want {
				t.Errorf("%q: %v, want %v", text, got, want)
			}
		}
	})
	d := newDesk(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", time.Now().Add(10*time.Minute).UTC().Format(http.TimeFormat))
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	d.hook(assign.WorkAssignedEvent)
	d.assign("a")
	d.once()
	if d.text(`select (retry_at > clock_timestamp() + interval '9 minutes')::text from getwork.hook`) != "true" {
		t.Error("the receiver asked for ten minutes by a date, and does not get them")
	}
}

// A receiver's HTTP/2 connection that went silent costs one attempt, not each one after it.
func TestSilentConnection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newClient(nil)
		transport := c.plain.Transport.(*http.Transport)
		transport.Protocols = new(http.Protocols)
		transport.Protocols.SetUnencryptedHTTP2(true)
		receiver := &http.Server{Protocols: transport.Protocols, Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})}
		line := memnet.First{Network: memnet.New()}
		served := make(chan error, 1)
		go func() { served <- receiver.Serve(line.Network) }()
		transport.DialContext = line.Dial
		var got []string
		for range 3 {
			got = append(got, c.post(t.Context(), event{url: "http://receiver/", secret: []byte("secret")}).failed)
			line.Silent.Store(true)
		}
		if got[0] != "" || got[1] == "" || got[2] != "" {
			t.Errorf("before, during and after the silence: %q", got)
		}
		transport.CloseIdleConnections()
		_ = receiver.Close()
		<-served
	})
}
