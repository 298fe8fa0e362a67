package serve

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"getwork/schema/schematest/timeout"
	"getwork/ws"
)

// visit is somebody who is logged in, with everything open that can depend on their rights.
type visit struct {
	*testing.T
	*office
	name    string
	session string
	token   string  // one of theirs, if that is what everything depends on
	here    running // where everything is open
	there   running // where the rights end
	began   time.Time
	stood   func() time.Duration // for how long this process was not let run, since began at the latest
}

// seen is how something has ended, and when.
type seen struct {
	how string
	at  time.Time
}

// visit logs somebody in.
func (o *office) visit(t *testing.T, name string) *visit {
	t.Helper()
	v := &visit{T: t, office: o, name: name, here: o.nodes[0]}
	var err error
	if v.session, err = o.at.comeIn(o.client, name, "10.2."+strings.ReplaceAll(strings.TrimPrefix(name, "user-"), "-", ".")); err != nil {
		t.Fatal(err)
	}
	return v
}

// header are the headers of a call by the session, or by the token.
func (v *visit) header(at running, session string) http.Header {
	if session == v.session && v.token != "" {
		return http.Header{"Authorization": {"Bearer " + v.token}}
	}
	return http.Header{"Cookie": {"__Host-getwork-" + port(at.url) + "=" + session}}
}

// do makes a call, and returns its status and text.
func (v *visit) do(at running, method, path, body string, header http.Header, more ...string) (status int, text string, err error) {
	r, err := http.NewRequestWithContext(v.Context(), method, at.url+path, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	r.Header = header.Clone()
	for i := 0; i < len(more); i += 2 {
		r.Header.Set(more[i], more[i+1])
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	response, err := v.client.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	b, err := io.ReadAll(response.Body)
	return response.StatusCode, string(b), err
}

// call makes a call with a session, which must succeed.
func (v *visit) call(at running, method, path, body, session string) error {
	cookie := http.Header{"Cookie": {"__Host-getwork-" + port(at.url) + "=" + session}}
	status, text, err := v.do(at, method, path, body, cookie)
	if err == nil && status/100 != 2 {
		err = fmt.Errorf("%s %s: %d %s", method, path, status, text)
	}
	return err
}

func (v *visit) post(at running, path, session string) error {
	return v.call(at, "POST", path, "", session)
}

// regrouped has the provider say other groups of them at a refresh, which is due. It returns when that is committed.
func (v *visit) regrouped(groups ...string) error {
	v.at.idp.SetGroups(v.name, groups)
	if _, err := v.db.Exec(v.Context(), `update getwork.session set refreshed_at = refreshed_at - interval '11 minutes' where id = sha256($1)`, []byte(v.session)); err != nil {
		return err
	}
	// It is asked for by this call, unless one of the open channels has already: then the session may be over.
	if err := v.call(v.there, "GET", "/api/v1/me", "", v.session); err != nil && !strings.Contains(err.Error(), ": 401 ") {
		return err
	}
	timeout.Await(v, "the refresh", func() bool {
		var changed bool
		err := v.db.QueryRow(v.Context(), `select ended_at is not null or groups = $2 from getwork.session where id = sha256($1)`, []byte(v.session), groups).Scan(&changed)
		return err == nil && changed
	})
	return nil
}

// expired waits for the end that the session had when all was opened.
func (v *visit) expired() error {
	var left float64
	err := v.db.QueryRow(v.Context(), `select extract(epoch from ends_at - clock_timestamp())::float8 from getwork.session where id = sha256($1)`, []byte(v.session)).Scan(&left)
	<-time.After(time.Duration(left * float64(time.Second)))
	return err
}

// ends opens everything, ends the rights, and checks what all of it hears.
func (v *visit) ends(e ending) {
	v.Helper()
	if e.name == "its time is over" {
		if _, err := v.db.Exec(v.Context(), `update getwork.session set ends_at = clock_timestamp() + $2 * interval '1 second' where id = sha256($1)`,
			[]byte(v.session), timeout.Scale(2*time.Second).Seconds()); err != nil {
			v.Fatal(err)
		}
	}
	if e.name == "revoked token" {
		v.token = v.makeToken()
	}
	open := map[string]<-chan seen{"socket": v.socket(), "stream": v.stream(), "held answer": v.held()}
	if status, text, err := v.do(v.here, "POST", "/api/v1/tasks/lingering/requests", `{"count":1,"linger":"1h"}`, v.header(v.here, v.session)); status != 202 {
		v.Fatalf("linger: %d %s, %v", status, text, err)
	}
	states := func() (all string) {
		_ = v.db.QueryRow(v.Context(), `select string_agg(state, ' ' order by id) from getwork.work_requested where user_name = $1`, v.name).Scan(&all)
		return all
	}
	timeout.Await(v, "two requests wait", func() bool { return states() == "pending pending" })
	v.stood = standstill(v.T)
	if err := e.by(v); err != nil {
		v.Fatal(err)
	}
	v.began = time.Now()
	within := timeout.Scale(2 * time.Second)
	late := func(at time.Time) bool { return at.Sub(v.began)-v.stood() > within }
	limit := time.After(5 * within)
	for what, how := range map[string]string{"socket": strconv.Itoa(int(e.closes)), "stream": "/problems/" + e.says, "held answer": strconv.Itoa(e.held)} {
		select {
		case got := <-open[what]:
			if !strings.Contains(got.how, how) || late(got.at) {
				v.Errorf("%s: ended with %s after %s, want %s", what, got.how, got.at.Sub(v.began), how)
			}
		case <-limit:
			v.Errorf("%s: is open after %s", what, 5*within)
			limit = time.After(0)
		}
	}
	for _, n := range v.nodes {
		for status := 0; status != e.call; {
			status, _, _ = v.do(n, "GET", "/api/v1/me", "", v.header(n, v.session))
			if status != e.call && late(time.Now()) {
				v.Errorf("a call after %s: %d, want %d", time.Since(v.began), status, e.call)
				break
			}
		}
	}
	for want := e.waits + " " + e.waits; states() != want; {
		if late(time.Now()) {
			v.Errorf("after %s the requests are %s, want %s", time.Since(v.began), states(), want)
			break
		}
	}
	if e.waits == "pending" {
		var regrouped int
		if err := v.db.QueryRow(v.Context(), `select count(*) from getwork.work_requested where user_name = $1 and 'new' = any(groups)`, v.name).Scan(&regrouped); err != nil || regrouped != 2 {
			v.Errorf("%d requests have the new groups, %v", regrouped, err)
		}
	}
}

// standstill begins to measure for how long this process is not let run, although it could: on a busy machine that is not getwork's
// time.
func standstill(t *testing.T) (sofar func() time.Duration) {
	var stood atomic.Int64
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		const often = 5 * time.Millisecond
		tick, last := time.NewTicker(often), time.Now()
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				stood.Add(int64(max(0, time.Since(last)-often)))
				last = time.Now()
			}
		}
	}()
	t.Cleanup(func() { stop(); <-done })
	return func() time.Duration { return time.Duration(stood.Load()) }
}

// makeToken makes a token of theirs.
func (v *visit) makeToken() string {
	v.Helper()
	status, text, err := v.do(v.here, "POST", "/api/v1/tokens", `{"label":"script","scopes":["read","work"]}`, v.header(v.here, v.session))
	var made struct{ Token string }
	if json.Unmarshal([]byte(text), &made) != nil || status != 201 || err != nil {
		v.Fatalf("make a token: %d %s %v", status, text, err)
	}
	return made.Token
}

// held begins a call that is answered when its request ends, or its rights do.
func (v *visit) held() <-chan seen {
	ended := make(chan seen, 1)
	go func() {
		status, text, err := v.do(v.here, "POST", "/api/v1/tasks/held/requests", `{"count":1,"linger":"1h"}`, v.header(v.here, v.session), "Prefer", "wait=60")
		if status == 202 {
			status = 200 // it was answered as it is
		}
		ended <- seen{fmt.Sprint(status, " ", text, " ", err), time.Now()}
	}()
	return ended
}

// socket opens a live channel.
func (v *visit) socket() <-chan seen {
	v.Helper()
	c, err := ws.Dial(v.Context(), nil, v.here.url+"/api/v1/ws", v.header(v.here, v.session))
	if err != nil {
		v.Fatal(err)
	}
	v.Cleanup(c.Close)
	for _, want := range []string{"hello", "snapshot"} {
		if m, err := c.Read(v.Context()); err != nil || !strings.Contains(string(m), want) {
			v.Fatalf("%s %v", m, err)
		}
	}
	ended := make(chan seen, 1)
	go func() {
		for {
			if _, err := c.Read(context.Background()); err != nil {
				ended <- seen{strconv.Itoa(int(ws.CloseStatus(err))), time.Now()}
				return
			}
		}
	}()
	return ended
}

// stream opens an event stream.
func (v *visit) stream() <-chan seen {
	v.Helper()
	r, err := http.NewRequestWithContext(v.Context(), "GET", v.here.url+"/api/v1/events", nil)
	if err != nil {
		v.Fatal(err)
	}
	r.Header = v.header(v.here, v.session)
	response, err := v.client.Do(r)
	if err != nil || response.StatusCode != 200 {
		v.Fatalf("%+v %v", response, err)
	}
	lines := bufio.NewScanner(response.Body)
	for snapshot := false; !snapshot; snapshot = strings.Contains(lines.Text(), `"snapshot"`) {
		if !lines.Scan() {
			v.Fatalf("the stream ends with %q, %v", lines.Text(), lines.Err())
		}
	}
	ended := make(chan seen, 1)
	go func() {
		defer response.Body.Close()
		last := ""
		for lines.Scan() {
			if strings.HasPrefix(lines.Text(), "data: ") {
				last = lines.Text()
			}
		}
		ended <- seen{last, time.Now()}
	}()
	return ended
}
